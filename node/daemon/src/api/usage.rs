//! How much of the grid is reserved from now on, by resource.

use std::{collections::BTreeMap, iter, sync::Arc};

use axum::{Json, extract::State};
use broker::{
    amount::Amount,
    classes::name_at,
    resources::{ResourceName, amount_of},
    schedule::{Occupancy, Schedule},
    time::{Span, Time, Window},
    view::Schedules,
};
use kolo_api::usage::{ResourceUsage, Usage};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    extract::{Query, in_range},
    problem::Problem,
    state::ApiState,
};

const POINTS_DEFAULT: u64 = 96;
const POINTS_MAX: u64 = 500;
const SPAN_DEFAULT: u64 = 86_400;
const SPAN_MAX: u64 = 14 * 86_400;
/// Most resources told of; those of the most hosts come first.
const RESOURCES_MAX: usize = 16;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct UsageQuery {
    /// Pieces that the span is cut into.
    #[param(minimum = 1, maximum = 500)]
    points: Option<u64>,
    /// Seconds from now on.
    #[param(minimum = 1, maximum = 1_209_600)]
    span: Option<u64>,
}

#[derive(Default)]
struct Sum {
    hosts: usize,
    capacity: u128,
    /// Amount times seconds, by step.
    used: Vec<u128>,
}

/// How much is reserved from now on, by resource.
#[utoipa::path(get, path = "/usage", tag = "grid", params(UsageQuery), responses((status = 200, description = "Done", body = Usage)))]
pub async fn show_usage(
    State(state): State<Arc<ApiState>>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<Usage>, Problem> {
    let points = in_range("points", query.points.unwrap_or(POINTS_DEFAULT), 1..=POINTS_MAX)?;
    let span = in_range("span", query.span.unwrap_or(SPAN_DEFAULT), 1..=SPAN_MAX)?;
    let from = state.coordinator.clock.now().utc;
    let step = Span(span.div_ceil(points));
    Ok(Json(tokio::task::block_in_place(|| sum_up(&state, from, step, usize::try_from(points).unwrap_or(1)))))
}

fn sum_up(state: &ApiState, from: Time, step: Span, points: usize) -> Usage {
    let view = state.discovery.view();
    let mut sums: BTreeMap<ResourceName, Sum> = BTreeMap::new();
    let mut hosts = 0;
    for site in view.site_ids() {
        view.with_site(&site, |site| {
            let Schedules::Known(known) = site.schedules() else { return };
            for class in site.advert().hosts.classes() {
                hosts += class.count();
                let schedules: Vec<&Schedule> = class.names().filter_map(|host| known.schedules.host(&host)).collect();
                for (name, capacity) in &class.host.capacity {
                    let sum = sums.entry(name.clone()).or_default();
                    sum.hosts += class.count();
                    sum.capacity += class.count() as u128 * u128::from(capacity.0);
                    sum.used.resize(points, 0);
                    for occupancy in schedules.iter().filter_map(|schedule| schedule.occupancy(name)) {
                        add_use(&mut sum.used, occupancy, |amount| amount.min(*capacity).0.into(), from, step);
                    }
                }
            }
            for (class, told) in known.schedules.classes() {
                let first = name_at((class, Some(told.members)), 0).and_then(|host| site.advert().hosts.get(&host));
                let Some(like) = first else { continue };
                for ((name, amount), hosts) in
                    told.used.uses().flat_map(|(used, hosts)| used.iter().zip(iter::repeat(hosts)))
                {
                    let Some(sum) = sums.get_mut(name) else { continue };
                    let each = u128::from((*amount).min(amount_of(&like.capacity, name)).0);
                    add_use(
                        &mut sum.used,
                        hosts,
                        |hosts| u128::from(hosts.0.min(told.members.count.into())) * each,
                        from,
                        step,
                    );
                }
            }
        });
    }
    let mut sums: Vec<(ResourceName, Sum)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.hosts));
    sums.truncate(RESOURCES_MAX);
    let whole = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
    let resources = sums.into_iter().map(|(name, sum)| ResourceUsage {
        name,
        capacity: whole(sum.capacity),
        used: sum.used.into_iter().map(|used| whole(used / u128::from(step.0.max(1)))).collect(),
    });
    Usage { from, step_s: step.0, hosts, resources: resources.collect() }
}

/// Adds to each step what an occupancy means.
fn add_use(used: &mut [u128], occupancy: &Occupancy, meant: impl Fn(Amount) -> u128, from: Time, step: Span) {
    let mut start = from;
    for sum in used {
        let window = Window::starting(start, step);
        let mut pieces = occupancy.segments(window).peekable();
        while let Some((at, amount)) = pieces.next() {
            let end = pieces.peek().map_or(window.end, |(next, _)| *next);
            *sum += meant(amount) * u128::from(end.since(at).0);
        }
        start = window.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_the_mean_over_each_step_and_at_most_the_capacity() {
        let steps = [(Time(0), Amount(2)), (Time(15), Amount(9)), (Time(20), Amount(0))];
        let occupancy = Occupancy::from_steps(&steps).unwrap();
        let mut used = vec![0; 3];
        add_use(&mut used, &occupancy, |amount| amount.min(Amount(4)).0.into(), Time(5), Span(10));
        assert_eq!(used, [2 * 10, 4 * 5, 0]);
    }
}
