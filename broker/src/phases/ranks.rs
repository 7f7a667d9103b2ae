//! The N shortest seats among the hosts that are available, kept up to date while hosts come and go.
//!
//! Invariant: two binary indexed trees over the hosts in order of their lengths; a change and a question take logarithmic time.

use crate::objective::Least;

/// See the module.
pub(crate) struct Ranks {
    /// The place of each host in the order of lengths.
    place: Vec<usize>,
    /// The lengths in this order.
    lengths: Vec<i64>,
    is_in: Vec<bool>,
    counts: Vec<u32>,
    sums: Vec<i64>,
}

impl Ranks {
    /// Ranks of hosts with these lengths, none of which is available.
    pub fn new(lengths: &[i64]) -> Ranks {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|host| lengths[*host]);
        let mut place = vec![0; lengths.len()];
        order.iter().enumerate().for_each(|(at, host)| place[*host] = at);
        let sorted = order.iter().map(|host| lengths[*host]).collect();
        let (is_in, counts) = (vec![false; lengths.len()], vec![0; lengths.len() + 1]);
        Ranks { place, lengths: sorted, is_in, counts, sums: vec![0; lengths.len() + 1] }
    }

    /// The `count` shortest of all hosts, available or not; there are so many.
    pub fn least_of_all(&self, count: usize) -> Least {
        let shortest = &self.lengths[..count];
        Least { longest: shortest.last().copied().unwrap_or(0), together: shortest.iter().sum() }
    }

    /// Notes whether a host is available.
    pub fn set(&mut self, host: usize, is_available: bool) {
        if std::mem::replace(&mut self.is_in[host], is_available) == is_available {
            return;
        }
        let place = self.place[host];
        let length = if is_available { self.lengths[place] } else { -self.lengths[place] };
        let mut at = place + 1;
        while at < self.counts.len() {
            self.counts[at] = if is_available { self.counts[at] + 1 } else { self.counts[at] - 1 };
            self.sums[at] += length;
            at += at & at.wrapping_neg();
        }
    }

    /// The `count` shortest of the available hosts; there are so many.
    pub fn least(&self, count: usize) -> Least {
        let (mut at, mut left, mut together) = (0, count as u32, 0);
        let mut step = self.counts.len().next_power_of_two() / 2;
        while step > 0 {
            let next = at + step;
            if next < self.counts.len() && self.counts[next] < left {
                at = next;
                left -= self.counts[next];
                together += self.sums[next];
            }
            step /= 2;
        }
        let longest = self.lengths.get(at).copied().unwrap_or(0);
        // `at` hosts have a place before the last one taken, so `left` is 1: each place holds one host.
        Least { longest, together: together + longest * i64::from(left.min(1)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_what_sorting_tells(
            hosts in prop::collection::vec((1_i64..20, any::<bool>()), 1..40),
            changes in prop::collection::vec((0_usize..40, any::<bool>()), 0..30),
            count in 1_usize..10,
        ) {
            let lengths: Vec<i64> = hosts.iter().map(|(length, _)| *length).collect();
            let mut is_in: Vec<bool> = hosts.iter().map(|(_, is_in)| *is_in).collect();
            let mut ranks = Ranks::new(&lengths);
            is_in.iter().enumerate().for_each(|(host, is_in)| ranks.set(host, *is_in));
            for (host, is_available) in changes.into_iter().filter(|(host, _)| *host < lengths.len()) {
                is_in[host] = is_available;
                ranks.set(host, is_available);
            }
            let mut available: Vec<i64> =
                lengths.iter().zip(&is_in).filter(|(_, is_in)| **is_in).map(|(length, _)| *length).collect();
            available.sort_unstable();
            if available.len() >= count {
                let expected = Least { longest: available[count - 1], together: available[..count].iter().sum() };
                prop_assert_eq!(ranks.least(count), expected);
            }
        }
    }
}
