//! A plan that was made elsewhere and is to be reserved as it is, or not at all.
//!
//! Invariant: a plan that passes has exactly the seats that the user asked for, at a start that the user asked for. What depends on
//! the hosts themselves, their speed above all, their sites check as of every hold.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    cost::Cost,
    demand::Length,
    ids::{HostId, SeatNumber, ShapeNumber, SiteId},
    objective,
    plan::{Place, Plan, Seat},
    protocol::Grant,
    resources::{Amounts, amount_of},
    scale::Factor,
    tariff::Agreement,
    time::{Time, Window},
    trust::{RequestStatement, Rule, asked},
    variant::Variant,
};

/// A plan as it is handed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedPlan {
    /// When all seats begin.
    pub start: Time,
    /// Which of the request's shapes it is of.
    #[serde(default)]
    pub shape: ShapeNumber,
    /// The factor at which a moldable request is planned.
    #[serde(default, skip_serializing_if = "Factor::is_one")]
    pub scale: Factor,
    /// The seats, in any order.
    pub hosts: Vec<HandedSeat>,
}

/// One seat of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedSeat {
    /// The host's site.
    pub site: SiteId,
    /// The host.
    pub host: HostId,
    /// When the seat ends.
    pub end: Time,
    /// What it takes of the host.
    pub amounts: Amounts,
}

/// A plan that is not what the user asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct PlanMisfit {
    /// The key of the request that it does not meet.
    pub key: String,
    /// How.
    pub detail: String,
}

impl PlanMisfit {
    fn new(key: &str, detail: impl Into<String>) -> PlanMisfit {
        PlanMisfit { key: key.to_owned(), detail: detail.into() }
    }
}

impl From<Plan> for HandedPlan {
    fn from(plan: Plan) -> HandedPlan {
        let seat = |seat: Seat| HandedSeat {
            host: seat.host().clone(),
            site: seat.site,
            end: seat.window.end,
            amounts: seat.amounts,
        };
        HandedPlan {
            start: plan.start,
            shape: plan.shape,
            scale: plan.scale,
            hosts: plan.seats.into_iter().map(seat).collect(),
        }
    }
}

impl HandedPlan {
    /// The plan, if it is what the user asked for; the request starts by `latest`. A start may lie a little before the plan arrives.
    /// `agreed` says for how much a seat with this window is had.
    ///
    /// # Errors
    /// [`PlanMisfit`], with the first key of the request that it does not meet.
    pub fn check(
        self,
        statement: &RequestStatement,
        latest: Time,
        agreed: impl Fn(&HandedSeat, Window) -> Agreement,
    ) -> Result<Plan, PlanMisfit> {
        let (shape, scale, start) = (self.shape, self.scale, self.start);
        let statement = statement.of_variant(Variant { shape, scale });
        let statement = &statement.map_err(|denial| PlanMisfit::new(&key_of(denial.rule), denial.detail))?;
        let request = &statement.request;
        let asked = request.demand().seats();
        if self.hosts.len() != asked {
            return Err(PlanMisfit::new("hosts", format!("{} hosts, the user asked for {asked}", self.hosts.len())));
        }
        if start > latest {
            return Err(PlanMisfit::new("latest", format!("it starts at {}, the request by {}", start.0, latest.0)));
        }
        let mut hosts = self.hosts;
        hosts.sort_by(|a, b| (&a.site, &a.host).cmp(&(&b.site, &b.host)));
        let seat = |(number, seat): (u32, HandedSeat)| {
            let window = Window { start, end: seat.end };
            let agreed = agreed(&seat, window);
            let HandedSeat { site, host, amounts, .. } = seat;
            Seat { number: SeatNumber(number), site, place: Place::Host(host), window, amounts, agreed }
        };
        let seats: Vec<Seat> = (0..).zip(hosts).map(seat).collect();
        check_windows(statement, &seats)?;
        check_at_sites(statement, &seats)?;
        check_sums(statement, &seats)?;
        let objective = objective::unproven(request.objective(), start, &seats);
        let (efficiency, efficiency_bound) = (0.0, 1.0);
        let traffic = request.demand().traffic();
        Ok(Plan { shape, start, seats, traffic, scale, objective, efficiency, efficiency_bound, start_proven: false })
    }
}

/// Every seat ends after it has begun; where a duration was asked, after that duration; with traffic, with the others.
fn check_windows(statement: &RequestStatement, seats: &[Seat]) -> Result<(), PlanMisfit> {
    let (key, fixed) = match statement.request.demand().length() {
        Length::Duration(duration) => ("duration", Some(duration)),
        Length::Work(_) => ("work", None),
    };
    let traffic = statement.request.demand().traffic();
    for seat in seats {
        let host = seat.host();
        if traffic.is_some() && seat.window.end != seats[0].window.end {
            return Err(PlanMisfit::new(key, format!("host {host} does not end with the others, which it talks to")));
        }
        if !seat.window.is_valid() {
            return Err(PlanMisfit::new(key, format!("host {host} ends at {}, which is no end", seat.window.end.0)));
        }
        let got = seat.window.duration();
        if let Some(asked) = fixed.filter(|asked| *asked != got) {
            return Err(PlanMisfit::new(key, format!("{} s on host {host}, the user asked for {} s", got.0, asked.0)));
        }
    }
    Ok(())
}

/// Every site's part passes the checks of that site.
fn check_at_sites(statement: &RequestStatement, seats: &[Seat]) -> Result<(), PlanMisfit> {
    let mut by_site: BTreeMap<&SiteId, Vec<Grant>> = BTreeMap::new();
    for seat in seats {
        by_site.entry(&seat.site).or_default().push(Grant::from(seat));
    }
    let participants: BTreeSet<SiteId> = by_site.keys().map(|site| (*site).clone()).collect();
    for (site, grants) in &by_site {
        let checked = asked::check(statement, (grants, participants.len()), site, |_| None);
        checked.map_err(|denial| PlanMisfit::new(&key_of(denial.rule), denial.detail))?;
    }
    Ok(())
}

/// All seats together have all that was asked, and no more, and cost no more.
fn check_sums(statement: &RequestStatement, seats: &[Seat]) -> Result<(), PlanMisfit> {
    let grants: Vec<Grant> = seats.iter().map(Grant::from).collect();
    asked::check_budget(statement, grants.iter(), Cost::ZERO)
        .map_err(|denial| PlanMisfit::new(&key_of(denial.rule), denial.detail))?;
    asked::check_total(statement, seats.iter().map(|seat| &seat.amounts))
        .map_err(|denial| PlanMisfit::new(&key_of(denial.rule), denial.detail))?;
    for (name, total) in statement.request.demand().total() {
        let sum: u64 = seats.iter().map(|seat| amount_of(&seat.amounts, name).0).fold(0, u64::saturating_add);
        if sum < total.0 {
            return Err(PlanMisfit::new("total", format!("{sum} of {name} in all, the user asked for {total}")));
        }
    }
    Ok(())
}

/// The key of a request that a rule is about.
fn key_of(rule: Rule) -> String {
    match rule {
        Rule::HostCount => "hosts".to_owned(),
        Rule::Window => "earliest".to_owned(),
        other => other.as_str().replace('-', "_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::RequestId, trust::testing::authorize};

    fn statement(request: &str) -> RequestStatement {
        let request = serde_json::from_str(request).unwrap();
        let authorization = authorize(1, &SiteId::new("e").unwrap(), &RequestId::new("r").unwrap(), &request);
        authorization.request.open().unwrap()
    }

    fn seat(site: &str, host: &str, end: i64, cpu: u64) -> HandedSeat {
        let amounts = serde_json::from_value(serde_json::json!({ "cpu": cpu })).unwrap();
        let (site, host) = (SiteId::new(site).unwrap(), HostId::new(host).unwrap());
        HandedSeat { site, host, end: Time(end), amounts }
    }

    fn checked(request: &str, start: i64, hosts: Vec<HandedSeat>) -> Result<Plan, String> {
        let plan = HandedPlan { start: Time(start), shape: ShapeNumber::default(), scale: Factor::ONE, hosts };
        let agreed = |_: &HandedSeat, _| Agreement { cost: Cost(7), refunds: Vec::new() };
        plan.check(&statement(request), Time(9_000), agreed).map_err(|misfit| format!("{}: {misfit}", misfit.key))
    }

    #[test]
    fn a_plan_that_is_not_what_was_asked_is_refused_by_its_key() {
        let asked = r#"{"hosts":2,"duration":60,"per_host":{"cpu":100},"total":{"cpu":1500},"earliest":5000,"deadline":8000,
            "sites_max":1,"candidates":["a/h1","a/h2","b/h1"]}"#;
        let fits = || vec![seat("a", "h2", 5_160, 1_000), seat("a", "h1", 5_160, 500)];
        let plan = checked(asked, 5_100, fits()).unwrap();
        let seats: Vec<_> = plan.seats.iter().map(|seat| (seat.number.0, seat.host().as_str())).collect();
        assert_eq!((seats, plan.end()), (vec![(0, "h1"), (1, "h2")], Time(5_160)));
        let wrong = |start, change: fn(&mut Vec<HandedSeat>), key: &str| {
            let mut hosts = fits();
            change(&mut hosts);
            let why = checked(asked, start, hosts).unwrap_err();
            assert!(why.starts_with(&format!("{key}: ")), "{key}: {why}");
        };
        wrong(5_100, |hosts| hosts.truncate(1), "hosts");
        wrong(5_100, |hosts| hosts[1] = hosts[0].clone(), "hosts");
        wrong(4_999, |hosts| hosts.iter_mut().for_each(|host| host.end = Time(5_059)), "earliest");
        wrong(9_001, |_| {}, "latest");
        wrong(5_100, |hosts| hosts[0].end = Time(5_161), "duration");
        wrong(5_100, |hosts| hosts[0].end = Time(5_100), "duration");
        wrong(5_100, |hosts| hosts[0].end = Time(i64::MAX), "duration");
        wrong(7_990, |hosts| hosts.iter_mut().for_each(|host| host.end = Time(8_050)), "deadline");
        wrong(5_100, |hosts| hosts[0] = seat("a", "h2", 5_160, 99), "per_host");
        wrong(5_100, |hosts| hosts[0] = seat("a", "h2", 5_160, 999), "total");
        wrong(5_100, |hosts| hosts[0] = seat("a", "h2", 5_160, 1_001), "total");
        wrong(5_100, |hosts| hosts[0] = seat("a", "h2", 5_160, u64::MAX), "total");
        wrong(5_100, |hosts| hosts[0] = seat("a", "h3", 5_160, 1_000), "candidates");
        wrong(5_100, |hosts| hosts[0] = seat("b", "h1", 5_160, 1_000), "sites_max");
    }

    #[test]
    fn how_long_work_takes_only_its_hosts_know() {
        let asked = r#"{"hosts":2,"work":60,"total":{"cpu":2}}"#;
        let hosts = |end| vec![seat("a", "h", 5_060, 1), seat("b", "h", end, 1)];
        assert_eq!(checked(asked, 5_000, hosts(5_120)).unwrap().end(), Time(5_120));
        assert!(checked(asked, 5_000, hosts(5_000)).unwrap_err().starts_with("work: "));
        assert!(checked(asked, 5_000, hosts(i64::MIN)).unwrap_err().starts_with("work: "));
        let talking = r#"{"hosts":2,"work":60,"total":{"cpu":2},"traffic":{"mbps":9}}"#;
        let plan = checked(talking, 5_000, hosts(5_060)).unwrap();
        assert_eq!(plan.loads().into_values().map(|load| load.0).collect::<Vec<_>>(), [9, 9]);
        assert!(checked(talking, 5_000, hosts(5_120)).unwrap_err().starts_with("work: "));
    }
}
