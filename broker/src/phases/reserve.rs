//! Phase VI: how the totals are shared among the chosen hosts, and what that does to a schedule.
//!
//! Invariant: shares are whole, add up to `max(e_i, N d_i)` exactly, are at least `d_i`, and never above what the host has
//! free.

use super::{
    Candidate,
    market::Market,
    problem::{Problem, Slot},
};
use crate::{
    amount::Amount,
    ids::SeatNumber,
    objective::Measures,
    plan::{Place, Seat},
    resources::Amounts,
    time::{Span, Window},
};

/// Shares `needed` among hosts with `free` amounts, at least `minimum` each: `d_i + v_j (e_i - N d_i)`, with `v_j` the
/// host's part of what is free beyond the minima. What whole numbers leave over goes to the largest remainders, the first
/// host among equals. Every free amount is at least `minimum`, and together they reach `needed`.
#[must_use]
pub(crate) fn share(needed: i64, minimum: i64, free: &[i64]) -> Vec<i64> {
    let beyond: i128 = free.iter().map(|free| i128::from(free - minimum)).sum();
    let asked = i128::from(needed) - i128::from(minimum) * free.len() as i128;
    if asked <= 0 || beyond == 0 {
        return vec![minimum; free.len()];
    }
    let mut left = asked;
    let mut shares = Vec::with_capacity(free.len());
    let mut remainders: Vec<(std::cmp::Reverse<i128>, usize)> = Vec::with_capacity(free.len());
    for (host, free) in free.iter().enumerate() {
        // At most 2^48 times 2^62: inside 127 bits.
        let exact = i128::from(free - minimum) * asked;
        let whole = exact / beyond;
        left -= whole;
        // A share is at most what is free, so it fits again.
        shares.push(minimum + whole as i64);
        remainders.push((std::cmp::Reverse(exact % beyond), host));
    }
    // Fewer than one unit a host is left, and a host with a remainder has room for one more.
    let left = left as usize;
    if left > 0 {
        remainders.select_nth_unstable(left - 1);
        remainders[..left].iter().for_each(|(_, host)| shares[*host] += 1);
    }
    shares
}

/// The seats at the `chosen` positions, in the order of the hosts. Where the totals shared by what is free cost more than `most`, in
/// thousandths of a credit, they are shared as cheaply as can be.
pub(crate) fn seats(problem: &Problem<'_>, slot: &Slot, chosen: &mut [u32], most: i64) -> Vec<Seat> {
    chosen.sort_unstable();
    if problem.is_exclusive() {
        let whole = chosen.iter().map(|at| problem.hosts[slot.hosts[*at as usize] as usize].host.capacity.clone());
        return seats_with(problem, slot, chosen, whole.collect());
    }
    let seats = seats_with(problem, slot, chosen, shares(problem, slot, chosen));
    let Some(costs) = problem.costs.as_ref().filter(|_| Measures::of(&seats).cost > most) else { return seats };
    let market = Market::new(problem, costs, slot);
    let Some(cheap) = market.shares(chosen) else { return seats };
    let mut amounts: Vec<Amounts> = seats.into_iter().map(|seat| seat.amounts).collect();
    for (kind, column) in market.binding.iter().enumerate() {
        for (member, amounts) in amounts.iter_mut().enumerate() {
            let share = problem.minimum[*column] + cheap.beyond[member * market.binding.len() + kind];
            amounts.insert(problem.resources[*column].clone(), Amount(share.cast_unsigned()));
        }
    }
    seats_with(problem, slot, chosen, amounts)
}

/// The seats at the `chosen` positions with these amounts.
fn seats_with(problem: &Problem<'_>, slot: &Slot, chosen: &[u32], amounts: Vec<Amounts>) -> Vec<Seat> {
    let hosts = chosen.iter().map(|at| slot.hosts[*at as usize] as usize);
    let seat = |(number, (host, amounts)): (u32, (usize, Amounts))| {
        let (Candidate { site, host, .. }, length) = (problem.hosts[host], Span(problem.lengths[host].unsigned_abs()));
        let window = Window::starting(slot.start, length);
        Seat {
            number: SeatNumber(number),
            site: (*site).clone(),
            place: Place::Host(host.id.clone()),
            window,
            agreed: host.tariff.agreement(problem.asked_at, window, &amounts),
            amounts,
        }
    };
    (0..).zip(hosts.zip(amounts)).map(seat).collect()
}

/// What each chosen host gives of every resource.
fn shares(problem: &Problem<'_>, slot: &Slot, chosen: &[u32]) -> Vec<Amounts> {
    let width = problem.width();
    let mut free = vec![0; chosen.len()];
    let mut amounts = vec![Amounts::new(); chosen.len()];
    for (resource, name) in problem.resources.iter().enumerate() {
        for (free, at) in free.iter_mut().zip(chosen) {
            *free = slot.free[*at as usize * width + resource];
        }
        let shares = share(problem.needed[resource], problem.minimum[resource], &free);
        for (amounts, share) in amounts.iter_mut().zip(shares) {
            amounts.insert(name.clone(), Amount(share.cast_unsigned()));
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_are_exact_and_within_what_is_free(
            minimum in 0_i64..1 << 40,
            extra in prop::collection::vec(0_i64..1 << 47, 1..40),
            part in 0.0_f64..=1.0,
        ) {
            let free: Vec<i64> = extra.iter().map(|extra| minimum + extra).collect();
            let least = minimum * free.len().cast_signed() as i64;
            let room: i64 = extra.iter().sum();
            let needed = least + ((room as f64 * part) as i64).min(room);
            let shares = share(needed, minimum, &free);
            prop_assert_eq!(shares.iter().sum::<i64>(), needed);
            for (share, free) in shares.iter().zip(&free) {
                prop_assert!((minimum..=*free).contains(share));
            }
        }
    }

    #[test]
    fn what_is_left_over_goes_to_the_largest_remainders() {
        assert_eq!(share(10, 1, &[4, 4, 4]), [4, 3, 3]);
        assert_eq!(share(7, 0, &[10, 5, 5]), [3, 2, 2]);
        assert_eq!(share(6, 2, &[2, 2, 2]), [2, 2, 2]);
        assert_eq!(share(0, 0, &[0, 0]), [0, 0]);
    }
}
