//! What there is to tell of a request, and in which words: `KOLO_*` variables and a JSON document.
//!
//! Only what is so at the moment is told, and what was told is remembered, so there is one notice a request to send at a time: whoever
//! could not be reached for a while hears how things stand, not all that has passed. Invariant: names and units are a contract with those who are told
//! (`docs/notices.md`).

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    ids::{HostId, SeatNumber, SiteId},
    time::{Span, Time},
};
use serde::{Deserialize, Serialize};

use super::request_view::{RequestState, RequestView, ReservedHost};

/// The format of the JSON.
const SCHEMA: &str = "kolo-notice/1";
/// Longest list of hosts in one variable, in bytes; Linux takes 128 KiB.
const HOST_LIST_BYTES_MAX: usize = 96 << 10;

/// What people are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeEvent {
    /// It has come to an end without a reservation.
    Failed,
    /// It has a reservation.
    Reserved,
    /// Hosts are lost, and others are left.
    Degraded,
    /// All of its hosts are lost.
    Lost,
    /// Hosts are there again for all that were lost.
    Repaired,
    /// Its window begins later than was told.
    Later,
    /// Its window has begun.
    Start,
    /// Its window is over.
    End,
    /// It was taken back.
    Cancelled,
}

impl NoticeEvent {
    /// Its name in variables and logs; JSON has the same.
    pub fn name(self) -> &'static str {
        match self {
            NoticeEvent::Failed => "failed",
            NoticeEvent::Reserved => "reserved",
            NoticeEvent::Degraded => "degraded",
            NoticeEvent::Lost => "lost",
            NoticeEvent::Repaired => "repaired",
            NoticeEvent::Later => "later",
            NoticeEvent::Start => "start",
            NoticeEvent::End => "end",
            NoticeEvent::Cancelled => "cancelled",
        }
    }
}

/// How far people have heard of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Heard {
    #[default]
    Nothing,
    Reserved,
    Started,
    /// It is over: nothing more comes.
    Over,
}

/// What people were told of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub heard: Heard,
    /// The seats that are lost, each with the host that it had.
    pub lost: BTreeSet<(SeatNumber, SiteId, HostId)>,
    /// How much later than reserved it begins.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub wait: Span,
}

/// What of `view` is to be told next at `now` to people who know what is `told`, and what they know then; none when they know all.
pub fn next(view: &RequestView, told: &Told, now: Time) -> Option<(NoticeEvent, Told)> {
    let hears = |event, heard| Some((event, Told { heard, ..told.clone() }));
    if told.heard == Heard::Over {
        return None;
    }
    match view.state {
        RequestState::Ended | RequestState::Done => return hears(NoticeEvent::End, Heard::Over),
        RequestState::Cancelling | RequestState::Cancelled => return hears(NoticeEvent::Cancelled, Heard::Over),
        RequestState::Rejected | RequestState::Refused | RequestState::Failed => {
            return hears(NoticeEvent::Failed, Heard::Over);
        }
        _ => {}
    }
    let reservation = view.reservation.as_ref().filter(|_| view.state.is_reserved())?;
    if told.heard == Heard::Nothing {
        return hears(NoticeEvent::Reserved, Heard::Reserved);
    }
    let lost: BTreeSet<(SeatNumber, SiteId, HostId)> =
        lost_hosts(view).map(|host| (host.seat, host.site.clone(), host.host.clone())).collect();
    let are_all = lost.len() == reservation.hosts.len();
    if !lost.is_subset(&told.lost) {
        let event = if are_all { NoticeEvent::Lost } else { NoticeEvent::Degraded };
        return Some((event, Told { lost, ..told.clone() }));
    }
    if lost.is_empty() && !told.lost.is_empty() {
        return Some((NoticeEvent::Repaired, Told { lost, ..told.clone() }));
    }
    if reservation.wait > told.wait {
        let heard = if reservation.start > now { Heard::Reserved } else { told.heard };
        return Some((NoticeEvent::Later, Told { heard, wait: reservation.wait, ..told.clone() }));
    }
    // What has no host left begins for nobody.
    let begins = told.heard == Heard::Reserved && view.begins_at().is_some_and(|start| start <= now) && !are_all;
    begins.then(|| hears(NoticeEvent::Start, Heard::Started)).flatten()
}

/// What people know who have seen `view` for themselves.
pub fn known_of(view: &RequestView, now: Time) -> Told {
    let mut told = Told::default();
    while let Some((_, after)) = next(view, &told, now) {
        told = after;
    }
    told
}

/// When time alone gives something to tell.
pub fn next_moment(view: &RequestView, now: Time) -> Option<Time> {
    let reservation = view.reservation.as_ref().filter(|_| view.state.is_reserved())?;
    [view.begins_at().unwrap_or(reservation.start), reservation.end].into_iter().filter(|at| *at > now).min()
}

/// The hosts of a reservation that are lost.
pub fn lost_hosts(view: &RequestView) -> impl Iterator<Item = &ReservedHost> {
    view.reservation.iter().flat_map(|reservation| &reservation.hosts).filter(|host| host.lost.is_some())
}

/// What is told.
#[derive(Debug, Serialize)]
pub struct Notice<'a> {
    pub event: NoticeEvent,
    /// Counts the notices about this request; one that goes out again keeps it.
    pub number: u32,
    /// How often it has gone out.
    pub run: u32,
    pub request: &'a RequestView,
}

impl Notice<'_> {
    /// The notice of this number, which has gone out `run` times with this one.
    pub fn new(event: NoticeEvent, number: u32, run: u32, request: &RequestView) -> Notice<'_> {
        Notice { event, number, run, request }
    }

    /// It as JSON.
    pub fn document(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: &'static str,
            #[serde(flatten)]
            notice: &'a Notice<'a>,
        }
        // All of its keys are texts.
        serde_json::to_vec(&Document { schema: SCHEMA, notice: self }).unwrap_or_default()
    }

    /// Its main parts as variables of a program.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let view = self.request;
        let name = |host: &ReservedHost| format!("{}/{}", host.site, host.host);
        let list = |hosts: Vec<String>| Some(hosts.join(",")).filter(|list| list.len() <= HOST_LIST_BYTES_MAX);
        let reservation = view.reservation.as_ref();
        let variables = [
            ("KOLO_EVENT", Some(self.event.name().to_owned())),
            ("KOLO_NUMBER", Some(self.number.to_string())),
            ("KOLO_RUN", Some(self.run.to_string())),
            ("KOLO_REQUEST", Some(view.id.to_string())),
            ("KOLO_LABEL", view.label.as_ref().map(ToString::to_string)),
            ("KOLO_USER_NAME", Some(view.user.clone()).filter(|user| !user.is_empty())),
            ("KOLO_STATE", Some(view.state.words().to_owned())),
            ("KOLO_START", reservation.map(|reservation| reservation.start.0.to_string())),
            ("KOLO_END", reservation.map(|reservation| reservation.end.0.to_string())),
            ("KOLO_HOSTS", reservation.and_then(|reservation| list(reservation.hosts.iter().map(name).collect()))),
            ("KOLO_LOST", list(lost_hosts(view).map(name).collect())),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use broker::negotiation::Loss;

    use super::*;
    use crate::samples::view;

    const BEFORE: Time = Time(1_763_711_999);
    const DURING: Time = Time(1_763_712_000);

    /// A view in `state` of a reservation whose hosts of these numbers are lost.
    fn with(state: RequestState, lost: &[usize]) -> RequestView {
        let mut view = view("active", None);
        view.state = state;
        let hosts = &mut view.reservation.as_mut().unwrap().hosts;
        lost.iter().for_each(|at| hosts[*at].lost = Some(Loss::TakenBack));
        view
    }

    /// The events of these views, one after the other.
    fn told(views: &[(RequestView, Time)]) -> Vec<&'static str> {
        let (mut told, mut events) = (Told::default(), Vec::new());
        for (view, now) in views {
            while let Some((event, after)) = next(view, &told, *now) {
                assert_ne!(after, told, "what was told is known");
                told = after;
                events.push(event.name());
            }
            assert!(events.len() < 100);
        }
        events
    }

    #[test]
    fn each_event_is_told_once_and_only_what_is_so() {
        use RequestState::{Active, Cancelled, Confirmed, Degraded, Done, Ended, Planning, Rebrokering, Rejected};
        let whole = |state| with(state, &[]);
        assert_eq!(told(&[(view("planning", None), BEFORE), (whole(Planning), BEFORE)]), Vec::<&str>::new());
        assert_eq!(told(&[(whole(Confirmed), BEFORE), (whole(Confirmed), BEFORE)]), ["reserved"]);
        let life =
            [(whole(Confirmed), BEFORE), (whole(Active), DURING), (whole(Ended), DURING), (whole(Ended), DURING)];
        assert_eq!(told(&life), ["reserved", "start", "end"]);
        // Whoever was not reached hears how things stand.
        assert_eq!(told(&[(whole(Ended), DURING)]), ["end"]);
        assert_eq!(told(&[(whole(Active), DURING), (whole(Done), DURING)]), ["reserved", "start", "end"]);
        assert_eq!(told(&[(whole(Active), DURING), (whole(Cancelled), DURING)]), ["reserved", "start", "cancelled"]);
        assert_eq!(told(&[(view("rejected", None), BEFORE), (whole(Rejected), BEFORE)]), ["failed"]);
        let losses = [
            (whole(Confirmed), BEFORE),
            (with(Rebrokering, &[1]), BEFORE),
            (with(Rebrokering, &[1]), BEFORE),
            (with(Degraded, &[0, 1]), BEFORE),
            (whole(Confirmed), BEFORE),
            (with(Degraded, &[0, 1, 2]), DURING),
            (whole(Active), DURING),
        ];
        let expected = ["reserved", "degraded", "degraded", "repaired", "lost", "repaired", "start"];
        assert_eq!(told(&losses), expected);
    }

    #[test]
    fn a_later_start_is_told_before_it_and_the_start_only_then() {
        let patient = |wait: u64| {
            let mut view = with(RequestState::Confirmed, &[]);
            view.request = serde_json::from_str(r#"{"hosts":1,"duration":7200,"slack":600}"#).unwrap();
            let reservation = view.reservation.as_mut().unwrap();
            reservation.hosts.truncate(1);
            reservation.start = DURING + Span(wait);
            reservation.wait = Span(wait);
            view
        };
        assert_eq!(next_moment(&patient(0), BEFORE), Some(DURING + Span(5)));
        let in_time = [(patient(0), BEFORE), (patient(0), DURING), (patient(60), DURING + Span(4))];
        assert_eq!(told(&in_time), ["reserved", "later"]);
        let begins = (patient(60), DURING + Span(60));
        assert_eq!(told(&[&in_time[..], std::slice::from_ref(&begins)].concat()), ["reserved", "later", "start"]);
        // A site that was silent for long.
        let late = [(patient(0), DURING + Span(5)), (patient(60), DURING + Span(7)), begins];
        assert_eq!(told(&late), ["reserved", "start", "later", "start"]);
        assert_eq!(told(&[(patient(0), DURING + Span(5)), (patient(0), DURING + Span(9))]), ["reserved", "start"]);
    }

    #[test]
    fn what_is_there_at_first_is_no_news() {
        let known = known_of(&with(RequestState::Degraded, &[0]), DURING);
        assert_eq!((known.heard, known.lost.len()), (Heard::Started, 1));
        assert_eq!(next(&with(RequestState::Degraded, &[0]), &known, DURING), None);
        assert_eq!(next_moment(&view("active", None), BEFORE), Some(DURING));
        assert_eq!(next_moment(&view("active", None), DURING), Some(Time(1_763_719_200)));
        assert_eq!(next_moment(&view("rejected", None), BEFORE), None);
    }

    #[test]
    fn a_program_gets_the_main_parts_as_variables_and_all_as_json() {
        let view = with(RequestState::Degraded, &[1]);
        let notice = Notice::new(NoticeEvent::Degraded, 2, 1, &view);
        let variables = notice.variables();
        let text: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            text.join("\n"),
            "KOLO_END=1763719200\nKOLO_EVENT=degraded\nKOLO_HOSTS=12D3KooWaaaa1111/h1,12D3KooWbbbb2222/b1,12D3KooWaaaa1111/h2\n\
             KOLO_LABEL=mine\nKOLO_LOST=12D3KooWbbbb2222/b1\nKOLO_NUMBER=2\nKOLO_REQUEST=r-42\nKOLO_RUN=1\nKOLO_START=1763712000\n\
             KOLO_STATE=degraded"
        );
        let document: serde_json::Value = serde_json::from_slice(&notice.document()).unwrap();
        assert_eq!((&document["schema"], &document["event"]), (&SCHEMA.into(), &"degraded".into()));
        assert_eq!(document["request"]["reservation"]["hosts"][1]["host"], "b1");
    }
}
