//! The N least of the weights that are there, kept up to date while they come and go.
//!
//! Invariant: two binary indexed trees over the weights in their order; a change and a question take logarithmic time.

/// The N least weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lowest {
    /// The largest of them.
    pub last: i64,
    /// All of them together.
    pub sum: i64,
}

/// See the module.
pub(crate) struct Ranks {
    /// The members by their place in the order of weights.
    order: Vec<u32>,
    /// The place of each member in this order.
    place: Vec<u32>,
    /// The weights in this order.
    weights: Vec<i64>,
    is_in: Vec<bool>,
    /// How many are there.
    len: usize,
    /// Of each node of the trees: how many are there, and their weights together.
    nodes: Vec<(u32, i64)>,
}

impl Ranks {
    /// Ranks of members with these weights, none of which is there. At most 2^32.
    pub fn new(weights: &[i64]) -> Ranks {
        let mut order: Vec<u32> = (0..weights.len() as u32).collect();
        order.sort_by_key(|member| weights[*member as usize]);
        let mut place = vec![0; weights.len()];
        order.iter().enumerate().for_each(|(at, member)| place[*member as usize] = at as u32);
        let sorted = order.iter().map(|member| weights[*member as usize]).collect();
        let (is_in, nodes) = (vec![false; weights.len()], vec![(0, 0); weights.len() + 1]);
        Ranks { order, place, weights: sorted, is_in, len: 0, nodes }
    }

    /// The `count` least of all members, there or not; there are so many.
    pub fn least_of_all(&self, count: usize) -> Lowest {
        let least = &self.weights[..count];
        Lowest { last: least.last().copied().unwrap_or(0), sum: least.iter().sum() }
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether a member is there.
    pub fn contains(&self, member: usize) -> bool {
        self.is_in[self.place[member] as usize]
    }

    /// Those that are there, in the order of their weights.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        self.order.iter().zip(&self.is_in).filter(|(_, is_in)| **is_in).map(|(member, _)| *member)
    }

    /// Notes whether a member is there.
    pub fn set(&mut self, member: usize, is_there: bool) {
        let place = self.place[member] as usize;
        if std::mem::replace(&mut self.is_in[place], is_there) == is_there {
            return;
        }
        let (one, weight) = if is_there { (1, self.weights[place]) } else { (u32::MAX, -self.weights[place]) };
        self.len = if is_there { self.len + 1 } else { self.len - 1 };
        let mut at = place + 1;
        while let Some((count, sum)) = self.nodes.get_mut(at) {
            *count = count.wrapping_add(one);
            *sum += weight;
            at += at & at.wrapping_neg();
        }
    }

    /// The `count` least of those that are there; there are so many.
    pub fn least(&self, count: usize) -> Lowest {
        let (mut at, mut left, mut sum) = (0, count as u32, 0);
        let mut step = self.nodes.len().next_power_of_two() / 2;
        while step > 0 {
            if let Some((count, together)) = self.nodes.get(at + step)
                && *count < left
            {
                at += step;
                left -= count;
                sum += together;
            }
            step /= 2;
        }
        let last = self.weights.get(at).copied().unwrap_or(0);
        // So many have a place before the last one taken that `left` is 1: each place holds one member.
        Lowest { last, sum: sum + last * i64::from(left.min(1)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_what_sorting_tells(
            members in prop::collection::vec((1_i64..20, any::<bool>()), 1..40),
            changes in prop::collection::vec((0_usize..40, any::<bool>()), 0..30),
            count in 1_usize..10,
        ) {
            let weights: Vec<i64> = members.iter().map(|(weight, _)| *weight).collect();
            let mut is_in: Vec<bool> = members.iter().map(|(_, is_in)| *is_in).collect();
            let mut ranks = Ranks::new(&weights);
            is_in.iter().enumerate().for_each(|(member, is_in)| ranks.set(member, *is_in));
            for (member, is_there) in changes.into_iter().filter(|(member, _)| *member < weights.len()) {
                is_in[member] = is_there;
                ranks.set(member, is_there);
            }
            let mut there: Vec<i64> =
                weights.iter().zip(&is_in).filter(|(_, is_in)| **is_in).map(|(weight, _)| *weight).collect();
            there.sort_unstable();
            prop_assert_eq!(ranks.len(), there.len());
            let members: Vec<i64> = ranks.members().map(|member| weights[member as usize]).collect();
            prop_assert_eq!(&members, &there);
            prop_assert!((0..weights.len()).all(|member| ranks.contains(member) == is_in[member]));
            if there.len() >= count {
                prop_assert_eq!(ranks.least(count), Lowest { last: there[count - 1], sum: there[..count].iter().sum() });
            }
        }
    }
}
