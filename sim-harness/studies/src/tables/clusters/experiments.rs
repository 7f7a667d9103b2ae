//! The experiments: how jobs are assigned, in which order they are chosen, and small batches as a whole.
//!
//! Invariant: all policies of an experiment run the same workloads.

use broker::batch::{Order, multicluster::Choice};
use serde::Serialize;
use sim_kit::progress::Progress;

use super::setup;
use crate::{
    clusters::{
        mesd::LeastSlowdown,
        oas::{self, Whole},
        policies::{ORDERS, OneByOne, Packages, Placement, order_name},
        world::{Cluster, Ended, Figures, Job, simulate},
    },
    tables::parallel,
};

/// Bandwidths of bisection, in tenths of a GB/s.
pub(super) const BISECTIONS: [u32; 6] = [1, 3, 5, 7, 9, 11];
/// That of the experiments on orders, in tenths of a GB/s.
pub(super) const MIDDLE: u32 = 7;

/// A policy and its mean figures.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) policy: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// One setting of clusters and links.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) heterogeneity_percent: u32,
    /// In tenths of a GB/s.
    pub(super) bisection_tenths: u32,
    pub(super) rows: Vec<Row>,
}

/// A policy under study.
#[derive(Clone, Copy)]
pub(super) enum Studied {
    OneByOne(Order, Placement),
    Packages(Order),
    LeastSlowdown(Choice),
    Exact,
}

/// Both forms of MESD.
pub(super) const LEAST_SLOWDOWN: [Studied; 2] =
    [Studied::LeastSlowdown(Choice::Carried), Studied::LeastSlowdown(Choice::Literal)];

impl Studied {
    pub(super) fn name(self) -> String {
        match self {
            Studied::OneByOne(Order::Fcfs, Placement::Chunk) => "CBS".to_owned(),
            Studied::OneByOne(order, _) => order_name(order),
            Studied::Packages(order) => format!("PAS-{}", order_name(order)),
            Studied::LeastSlowdown(Choice::Carried) => "MESD".to_owned(),
            Studied::LeastSlowdown(Choice::Literal) => "MESD-literal".to_owned(),
            Studied::Exact => "OAS".to_owned(),
        }
    }

    /// What becomes of the jobs.
    pub(super) fn run(self, clusters: &[Cluster], jobs: &[Job]) -> anyhow::Result<Vec<Ended>> {
        Ok(match self {
            Studied::OneByOne(order, placement) => simulate(clusters, jobs, &mut OneByOne { order, placement }),
            Studied::Packages(order) => simulate(clusters, jobs, &mut Packages::new(order)),
            Studied::LeastSlowdown(choice) => simulate(clusters, jobs, &mut LeastSlowdown::new(choice)),
            Studied::Exact if jobs.iter().all(|job| job.arrival <= 0.0) => oas::ordered_and_assigned(clusters, jobs)?,
            Studied::Exact => simulate(clusters, jobs, &mut Whole::new(clusters, oas::EXACT)?),
        })
    }
}

fn rows(
    studied: &[Studied],
    clusters: &[Cluster],
    workloads: &[Vec<Job>],
    progress: &Progress,
) -> anyhow::Result<Vec<Row>> {
    let row = |studied: &Studied| {
        let run = |number: u64| {
            let jobs = &workloads[usize::try_from(number)?];
            Ok(Figures::of(clusters, jobs, &studied.run(clusters, jobs)?))
        };
        let runs = parallel::all(workloads.len() as u64, progress, run)?;
        Ok(Row { policy: studied.name(), figures: Figures::mean(&runs) })
    };
    studied.iter().map(row).collect()
}

/// 3.1.3.2: PAS, CBS and JPR, all in the order of arrival, and the other classic orders, by heterogeneity and load of the links. JPR is FCFS
/// on the fastest hosts.
pub(super) fn assignment(seed: u64, workloads: u64, progress: &Progress) -> anyhow::Result<Vec<Setting>> {
    let others = ORDERS.into_iter().filter(|order| *order != Order::Fcfs);
    let studied: Vec<Studied> = [Studied::Packages(Order::Fcfs), Studied::OneByOne(Order::Fcfs, Placement::Chunk)]
        .into_iter()
        .chain(others.map(|order| Studied::OneByOne(order, Placement::Fastest)))
        .chain([Studied::OneByOne(Order::Fcfs, Placement::Fastest)])
        .collect();
    let settings = setup::HETEROGENEITY.iter().flat_map(|kind| BISECTIONS.map(|tenths| (*kind, tenths)));
    let setting = |(kind, tenths)| setting(seed, workloads, (kind, tenths), &studied, progress);
    let mut settings: Vec<Setting> = settings.map(setting).collect::<anyhow::Result<_>>()?;
    for row in settings.iter_mut().filter_map(|setting| setting.rows.last_mut()) {
        "JPR".clone_into(&mut row.policy);
    }
    Ok(settings)
}

/// 3.1.3.3: PAS in six orders, with the classic orders and MESD beside.
pub(super) fn selection(seed: u64, workloads: u64, progress: &Progress) -> anyhow::Result<Vec<Setting>> {
    let classic = ORDERS.map(|order| Studied::OneByOne(order, Placement::Fastest));
    let studied = [&ORDERS.map(Studied::Packages)[..], &classic, &LEAST_SLOWDOWN].concat();
    let setting = |kind: &_| setting(seed, workloads, (*kind, MIDDLE), &studied, progress);
    setup::HETEROGENEITY.iter().map(setting).collect()
}

fn setting(
    seed: u64,
    workloads: u64,
    (kind, bisection_tenths): ((u32, f64, f64), u32),
    studied: &[Studied],
    progress: &Progress,
) -> anyhow::Result<Setting> {
    let bisection = f64::from(bisection_tenths) / 10.0;
    let workloads: Vec<_> =
        (0..workloads).map(|number| setup::workload(seed, number, bisection)).collect::<anyhow::Result<_>>()?;
    let rows = rows(studied, &setup::clusters(kind), &workloads, progress)?;
    Ok(Setting { heterogeneity_percent: kind.0, bisection_tenths, rows })
}

/// 3.2.2.2 and 3.3.5.1: batches of eight jobs on three small clusters.
pub(super) fn batches(seed: u64, batches: u64, progress: &Progress) -> anyhow::Result<Vec<Row>> {
    let classic = ORDERS.map(|order| Studied::OneByOne(order, Placement::Fastest));
    let studied = [&ORDERS.map(Studied::Packages)[..], &classic, &LEAST_SLOWDOWN, &[Studied::Exact]].concat();
    let bisection = f64::from(MIDDLE) / 10.0;
    let batches: Vec<_> =
        (0..batches).map(|number| setup::batch(seed, number, bisection)).collect::<anyhow::Result<_>>()?;
    rows(&studied, &setup::small(), &batches, progress)
}
