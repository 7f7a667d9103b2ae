//! Conservative backfilling once more, slow and obvious, with the processors one by one instead of counted.

use super::{
    cluster, planned,
    random::{HOSTS as PROCESSORS, plain},
    starts,
};
use crate::replay::job::Job;

/// A gap: from, to, processors, and the job before which it is.
type Gap = (i64, i64, usize, Option<usize>);

/// Deals the list: each job gets the processors that are free earliest. The starts by job, and all gaps.
fn deal(jobs: &[Job], list: &[usize], mut free_at: Vec<i64>) -> (Vec<(i64, usize)>, Vec<Gap>) {
    let (mut places, mut gaps) = (Vec::new(), Vec::new());
    for index in list {
        free_at.sort_unstable();
        let taken = &mut free_at[..jobs[*index].known.shape.hosts as usize];
        for count in 1..taken.len() {
            if taken[count - 1] < taken[count] {
                gaps.push((taken[count - 1], taken[count], count, Some(*index)));
            }
        }
        let start = *taken.last().unwrap();
        taken.fill(start + jobs[*index].known.planned_s);
        places.push((start, *index));
    }
    let (first, last) = (*free_at.iter().min().unwrap(), *free_at.iter().max().unwrap());
    gaps.push((first, last, free_at.iter().filter(|at| **at == first).count(), None));
    gaps.push((last, i64::MAX, PROCESSORS as usize, None));
    (places, gaps)
}

/// Processors in use at `at` by jobs whose start is known.
fn used(jobs: &[Job], starts: &[Option<i64>], at: i64) -> u32 {
    let is_running =
        |(job, start): &(&Job, &Option<i64>)| start.is_some_and(|start| start <= at && at < start + job.held_s);
    jobs.iter().zip(starts).filter(is_running).map(|(job, _)| job.known.shape.hosts).sum()
}

fn position(job: &Job, list: &[usize], gaps: &[Gap]) -> usize {
    for (number, first) in gaps.iter().enumerate() {
        let mut until = first.0;
        for gap in &gaps[number..] {
            if gap.2 < job.known.shape.hosts as usize || gap.0 > until {
                break;
            }
            until = until.max(gap.1);
            if until >= first.0.saturating_add(job.known.planned_s) {
                return first.3.map_or(list.len(), |before| list.iter().position(|index| *index == before).unwrap());
            }
        }
    }
    list.len()
}

fn slow_conservative(jobs: &[Job]) -> Vec<i64> {
    let mut found: Vec<Option<i64>> = vec![None; jobs.len()];
    let (mut list, mut now, mut submitted) = (Vec::new(), 0, 0);
    loop {
        if submitted < jobs.len() && jobs[submitted].known.submit_s == now {
            let mut free_at = vec![now; PROCESSORS as usize];
            let ends = jobs.iter().zip(&found).filter_map(|(job, start)| Some((start.as_ref()? + job.held_s, job)));
            let running =
                ends.filter(|(end, _)| *end > now).flat_map(|(end, job)| vec![end; job.known.shape.hosts as usize]);
            for (processor, end) in running.enumerate() {
                free_at[processor] = end;
            }
            let sorted = |list: &[usize]| {
                let (mut places, gaps) = deal(jobs, list, free_at.clone());
                places.sort_by_key(|(start, _)| *start);
                (places.into_iter().map(|(_, index)| index).collect::<Vec<usize>>(), gaps)
            };
            let gaps;
            (list, gaps) = sorted(&list);
            list.insert(position(&jobs[submitted], &list, &gaps), submitted);
            (list, _) = sorted(&list);
            submitted += 1;
        }
        while list.first().is_some_and(|first| used(jobs, &found, now) + jobs[*first].known.shape.hosts <= PROCESSORS) {
            found[list.remove(0)] = Some(now);
        }
        let ends = jobs.iter().zip(&found).filter_map(|(job, start)| Some((*start)? + job.held_s));
        let next = ends.chain(jobs[submitted..].iter().map(|job| job.known.submit_s)).filter(|at| *at > now).min();
        match next {
            Some(at) => now = at,
            None => return found.into_iter().flatten().collect(),
        }
    }
}

#[test]
fn conservative_is_what_a_slow_method_finds() {
    let clusters = [cluster(PROCESSORS, 1, 0)];
    for seed in 0..60 {
        let jobs: Vec<Job> = plain(seed).into_iter().map(|job| planned(job.held_s, job)).collect();
        assert_eq!(starts("conservative", &jobs, &clusters), slow_conservative(&jobs), "seed {seed}");
    }
}
