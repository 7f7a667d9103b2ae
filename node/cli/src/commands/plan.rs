//! `kolo plan`: where a request would be placed, by the node's present view or offline on a snapshot. Nothing is held.

use broker::{ids::SeatNumber, request::Request, time::Span};
use kolo_api::{
    plan::{AllocatedPlan, AskedRequest, LivePlan, PlannedHost},
    request_view::{ReservationView, ReservedHost},
};
use kolo_text::safe::safe;
use serde::Serialize;

use super::{Context, plan_offline, with_suggestion};
use crate::{
    error::CliError,
    exit::Exit,
    grid_args::KeyArgs,
    output::{Look, OutputFormat, Report},
    report::{reservation_text, schedules_text, variant_line},
    request,
    request_args::PlanArgs,
    signing,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; exit code 2 when there is no placement in the window.
pub fn run(context: &mut Context, args: &PlanArgs) -> Result<Exit, CliError> {
    if let (Some(grid), Some(requests)) = (&args.grid, &args.requests) {
        return plan_offline::run(context, args, grid, requests);
    }
    let request = request::checked(args.script.as_deref(), &args.request, &context.now)?;
    let client = context.connect()?;
    let plan: LivePlan = match signing::asker(context, &client, &KeyArgs::default())? {
        Some(asker) => client.post("/v1/plan", &AskedRequest { request: request.clone().into(), asker })?,
        None => client.post("/v1/plan", &request)?,
    };
    let planned = Planned { plan, request: &request };
    if let LivePlan::Rejected(rejected) = &planned.plan {
        if context.output.format() != OutputFormat::Table {
            context.output.print(&planned)?;
        }
        let error = CliError::no_placement(&rejected.reason.detail);
        return Err(with_suggestion(&client, &request, error));
    }
    context.done(&planned)
}

#[derive(Serialize)]
struct Planned<'r> {
    #[serde(flatten)]
    plan: LivePlan,
    #[serde(skip)]
    request: &'r Request,
}

impl Report for Planned<'_> {
    fn text(&self, look: &Look) -> String {
        match &self.plan {
            LivePlan::Allocated(plan) => {
                let head = "possible, nothing is held";
                let text = reservation_text(head, (&as_reservation(plan), self.request.budget().is_some()), look);
                text + &variant_line(self.request, plan.variant()) + &schedules_text(&plan.schedules, &look.zone)
            }
            LivePlan::Rejected(plan) => {
                format!("no placement: {}\n{}", safe(&plan.reason.detail), schedules_text(&plan.schedules, &look.zone))
            }
        }
    }
    fn ids(&self) -> Vec<String> {
        match &self.plan {
            LivePlan::Allocated(plan) => plan.hosts.iter().map(|host| format!("{}/{}", host.site, host.id)).collect(),
            LivePlan::Rejected(_) => Vec::new(),
        }
    }
}

fn as_reservation(plan: &AllocatedPlan) -> ReservationView {
    let host = |(seat, host): (u32, &PlannedHost)| ReservedHost {
        site: host.site.clone(),
        site_name: host.site_name.clone(),
        host: host.id.clone(),
        class: None,
        seat: SeatNumber(seat),
        end: host.end,
        amounts: host.amounts.clone(),
        cost: host.cost,
        contact: None,
        lost: None,
    };
    ReservationView {
        shape: plan.shape,
        scale: plan.scale,
        start: plan.start,
        end: plan.end,
        wait: Span::default(),
        objective: plan.objective,
        cost: plan.cost,
        price: None,
        hosts_seen: Some(plan.hosts_seen),
        hosts_left_out: plan.hosts_left_out,
        efficiency: plan.efficiency,
        efficiency_bound: plan.efficiency_bound,
        start_proven: plan.start_proven,
        hosts: (0..).zip(&plan.hosts).map(host).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::printed;

    fn asked() -> Request {
        let shapes = r#"{"shapes":[{"hosts":2,"duration":7200},{"hosts":1,"duration":3600}]}"#;
        serde_json::from_str(shapes).unwrap()
    }

    fn planned<'r>(text: &str, request: &'r Request) -> Planned<'r> {
        Planned { plan: serde_json::from_str(text).unwrap(), request }
    }

    #[test]
    fn a_plan_reads_like_a_reservation_that_is_not_held() {
        let request = asked();
        let plan = planned(
            r#"{"id":"x","outcome":"allocated","shape":1,"start":1763712000,"end":1763715600,
            "objective":{"kind":"finish","value":1763715600,"bound":1763714700},"cost":0,"hosts_seen":5,"hosts_left_out":1,"hosts":[{"id":"h1",
            "site":"12D3KooWaaaa1111","site_name":"","end":1763715600,"amounts":{"cpu":500},"schedule_age_s":2}],"efficiency":0.5,"efficiency_bound":0.5,"start_proven":false,
            "phases_us":{"find":3},"schedules":[{"site":"12D3KooWaaaa1111","site_name":"alpha","hosts":4,"age_s":2},
            {"site":"12D3KooWbbbb2222","site_name":"","hosts":1,"age_s":75}]}"#,
            &request,
        );
        assert_eq!(
            printed(&plan, OutputFormat::Table),
            "possible, nothing is held: 1 host at 1 site from 2025-11-21 08:00:00+00:00 to 2025-11-21 09:00:00+00:00 \
             (1h)\n  ..aaaa1111: h1 cpu=0.5\n  finish 2025-11-21 09:00:00+00:00, at best 2025-11-21 08:45:00+00:00 among \
             the 5 hosts looked at; efficiency 0.5000, the best at this start\n  \
             shape 2 of 2: 1 host for 1h\n  \
             schedules used: alpha (..aaaa1111) 4 hosts, 2s old; ..bbbb2222 1 host, 1m 15s old\n"
        );
        assert_eq!(printed(&plan, OutputFormat::Quiet), "12D3KooWaaaa1111/h1\n");
        let json: serde_json::Value = serde_json::from_str(&printed(&plan, OutputFormat::Json)).unwrap();
        assert_eq!((&json["schema"], &json["outcome"]), (&"kolo-cli/1".into(), &"allocated".into()));
        assert_eq!(json["shape"], 1);
        let of = |from: &str| {
            format!(
                r#"{{"id":null,"outcome":"rejected","reason":{{"code":"no_window","detail":"8 of 10 hosts"}},"hosts_seen":7,"start_proven":false,
            "phases_us":{{}},"schedules":[{{"site":"12D3KooWaaaa1111","site_name":"alpha","hosts":3,"age_s":2{from}}},
            {{"site":"12D3KooWbbbb2222","site_name":"","hosts":4,"age_s":2}}]}}"#
            )
        };
        let text = |from| printed(&planned(&of(from), &request), OutputFormat::Table);
        assert_eq!(
            text(r#","coarse_from":1763712000"#),
            text("")
                + "  3 hosts of sites that tell coarsely what is used after 2025-11-21 08:00:00+00:00: of starts behind that nothing is proven\n"
        );
    }

    #[test]
    fn no_plan_says_why() {
        let request = asked();
        let plan = planned(
            r#"{"id":null,"outcome":"rejected","reason":{"code":"no_window","detail":"8 of 10 hosts"},"hosts_seen":10,"start_proven":true,
            "phases_us":{},"schedules":[]}"#,
            &request,
        );
        assert_eq!(printed(&plan, OutputFormat::Table), "no placement: 8 of 10 hosts\n");
    }
}
