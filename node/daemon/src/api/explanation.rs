//! Why a request was answered as it was: what each round found, and what each asked site said.

use broker::{
    ids::SiteId,
    negotiation::{AttemptReport, QuoteReport, ReportedAnswer, Round, RoundOutcome, SiteReport},
    reason::CutCounts,
};
use kolo_api::explanation::{AttemptView, CutView, Explanation, QuoteView, RoundView, SiteAnswerView};
use kolo_text::{
    price::price_text,
    words::{reason_text, utc_text, variant_text},
};

use super::shown::{Family, reason_of, round_of, state_of};

/// Explains a request at `now_ms` (Unix milliseconds).
pub fn explain(family: &Family, now_ms: u64, name_of: impl Fn(&SiteId) -> String) -> Explanation {
    let Family { snapshot, parts, .. } = family;
    let record = &snapshot.record;
    Explanation {
        id: record.id.clone(),
        user: record.user.clone(),
        state: state_of(snapshot, parts, now_ms),
        reason: reason_of(snapshot, &name_of),
        variant: snapshot.stage.plan().and_then(|plan| variant_text(&record.request, plan.variant())),
        price: snapshot.stage.plan().and_then(|plan| price_text(plan, record.request.budget(), round_of(record, plan))),
        rounds: record.history.rounds.iter().map(|round| round_view(round, &name_of)).collect(),
        attempts: record.history.attempts.iter().map(|one| attempt_view(one, &name_of)).collect(),
    }
}

fn round_view(round: &Round, name_of: &impl Fn(&SiteId) -> String) -> RoundView {
    let (outcome, start, detail) = match &round.outcome {
        RoundOutcome::Planned(start) => ("planned", Some(*start), format!("start {}", utc_text(*start))),
        RoundOutcome::Rejected(reason) => ("rejected", None, reason_text(reason)),
    };
    RoundView {
        multiplier: round.multiplier,
        asked_hosts: round.asked_hosts,
        found_hosts: round.found_hosts,
        known_hosts: round.known_hosts,
        without_schedule: round.without_schedule,
        left_out: round.left_out,
        cut: cut_view(&round.cut),
        outcome: outcome.to_owned(),
        start,
        detail,
        quotes: round
            .quotes
            .iter()
            .map(|QuoteReport { site, answer }| QuoteView {
                site: site.clone(),
                site_name: name_of(site),
                answer: answer.clone(),
            })
            .collect(),
    }
}

fn cut_view(cut: &CutCounts) -> Vec<CutView> {
    let mut views = Vec::new();
    if cut.candidates > 0 {
        views.push(CutView { constraint: "candidates".to_owned(), hosts: cut.candidates });
    }
    for (words, hosts) in &cut.sites {
        views.push(CutView { constraint: words.clone(), hosts: *hosts });
    }
    for (attribute, hosts) in &cut.attributes {
        views.push(CutView { constraint: format!("attribute {attribute}"), hosts: *hosts });
    }
    if cut.speed > 0 {
        views.push(CutView { constraint: "speed".to_owned(), hosts: cut.speed });
    }
    for (resource, hosts) in &cut.resources {
        views.push(CutView { constraint: format!("per_host {resource}"), hosts: *hosts });
    }
    views
}

fn attempt_view(one: &AttemptReport, name_of: &impl Fn(&SiteId) -> String) -> AttemptView {
    let site_view = |report: &SiteReport| {
        let (answer, detail) = match &report.answer {
            ReportedAnswer::Asked => ("asked", None),
            ReportedAnswer::Held => ("held", None),
            ReportedAnswer::Confirmed => ("confirmed", None),
            ReportedAnswer::Refused(why) => ("refused", Some(why.clone())),
            ReportedAnswer::Silent(why) => ("no answer", Some(why.clone())),
        };
        SiteAnswerView {
            site: report.site.clone(),
            site_name: name_of(&report.site),
            hosts: report.hosts,
            answer: answer.to_owned(),
            detail,
            milliseconds: report.after.0,
        }
    };
    AttemptView { attempt: one.attempt, start: one.start, sites: one.sites.iter().map(site_view).collect() }
}
