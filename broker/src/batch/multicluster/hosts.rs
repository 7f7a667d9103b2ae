//! Which of the free hosts one job gets: as a number of each group of like hosts.
//!
//! Source: the thesis, algorithm 3 (MESD), and 3.1.3 (CBS, JPR). Invariant: no more of a group than is free.

/// Hosts taken of each group when groups are filled in this `order`; none when there are too few hosts. With the fastest groups first
/// these are the fastest hosts: line 3 of algorithm 3, and JPR.
pub fn filled(mut seats: u32, order: &[usize], free: &[u32]) -> Option<Vec<u32>> {
    let mut hosts = vec![0; free.len()];
    for group in order {
        hosts[*group] = seats.min(free[*group]);
        seats -= hosts[*group];
    }
    (seats == 0).then_some(hosts)
}

/// Algorithm 3: the fastest hosts; then seats on faster clusters move to free hosts of the slowest cluster that is used, whose slowest host
/// sets the time anyway. `order` has the groups that serve, the fastest first; those of one cluster have the same `site`.
pub fn allocated(seats: u32, order: &[usize], free: &[u32], site: impl Fn(usize) -> usize) -> Option<Vec<u32>> {
    let mut hosts = filled(seats, order, free)?;
    let slowest = order.iter().rev().find(|group| hosts[**group] > 0)?;
    let is_there = |group: &&usize| site(**group) == site(*slowest);
    for from in order.iter().filter(|group| !is_there(group)) {
        for to in order.iter().rev().filter(is_there) {
            let moved = hosts[*from].min(free[*to] - hosts[*to]);
            hosts[*from] -= moved;
            hosts[*to] += moved;
        }
    }
    Some(hosts)
}

/// Whether `here` of a job's `seats` in one cluster are its chunk by CBS: three quarters or more (3.1.3).
pub fn is_chunk(here: u32, seats: u32) -> bool {
    u64::from(here) * 4 >= u64::from(seats) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_hosts_then_those_of_the_slowest_cluster_among_them() {
        // Groups 0 and 2 are one cluster, 1 and 3 are one each; by speed: 3, 1, 0, 2.
        let (order, site) = ([3, 1, 0, 2], |group: usize| if group == 2 { 0 } else { group });
        let free = [2, 2, 9, 1];
        assert_eq!(filled(6, &order, &free), Some(vec![2, 2, 1, 1]));
        assert_eq!(allocated(6, &order, &free, site), Some(vec![2, 0, 4, 0]));
        assert_eq!(allocated(15, &order, &free, site), None);
        // Groups that do not serve get nothing.
        assert_eq!(allocated(4, &[3, 1, 0], &free, site), Some(vec![2, 2, 0, 0]));
    }
}
