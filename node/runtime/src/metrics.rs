//! What this node has done, in figures for Prometheus.
//!
//! Invariant: labels come from sets that are fixed when compiled, so nothing that anybody sends makes the figures grow.
//! Figures of other sites are only for callers with a scope; see `docs/metrics.md`.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use broker::{
    ledger::FeedReport,
    negotiation::History,
    phases::Phase,
    protocol::{RefusalReason, SiteAnswer},
    trust::Rule,
};
use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry},
};

type Label = [(&'static str, &'static str); 1];
type TwoLabels = [(&'static str, &'static str); 2];
type Histograms = Family<Label, Histogram, fn() -> Histogram>;

/// How requests end.
pub const OUTCOMES: [&str; 8] =
    ["reserved", "rejected", "refused", "unreachable", "patience_over", "batch", "cancelled", "handed_over"];
/// Every word of [`Metrics::answered`].
const ANSWERS: [&str; 7] = ["held", "confirmed", "released", "settled", "refused", "told", "bookings"];

/// 10 us to 40 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-5, 4.0, 12))
}

/// Figures of writing to disk, kept by the writer.
#[derive(Debug, Clone)]
pub struct WriteFigures {
    /// How long each group of changes took until it was on disk.
    pub seconds: Histogram,
    /// Bytes of changes.
    pub bytes: Counter,
    /// Commits that were written in these groups.
    pub commits: Counter,
}

impl Default for WriteFigures {
    fn default() -> WriteFigures {
        WriteFigures { seconds: seconds(), bytes: Counter::default(), commits: Counter::default() }
    }
}

/// Figures of one door of the API.
#[derive(Debug, Clone, Default)]
pub struct DoorFigures {
    /// Connections open.
    pub open: Gauge,
    /// Connections refused because the door has no more in all.
    pub refused_full: Counter,
    /// Connections refused because one address has too many.
    pub refused_address: Counter,
    /// Attempts to take one that failed, mostly for want of file descriptors.
    pub failed: Counter,
}

/// Why a call of the API is not let through: no token that counts, no signature that does, too small a scope, or too many calls
/// without a token.
const DENIALS: [&str; 4] = ["token", "signature", "scope", "rate"];

pub struct Metrics {
    registry: Registry,
    requests: Family<Label, Counter>,
    request_seconds: Histogram,
    attempts: Counter,
    conflicts: Counter,
    phase_seconds: Histograms,
    answers: Family<Label, Counter>,
    refusals: Family<Label, Counter>,
    discovery: Family<Label, Counter>,
    activation_runs: Family<TwoLabels, Counter>,
    notices: Family<Label, Counter>,
    feed_runs: Family<Label, Counter>,
    feed_entries: Family<Label, Gauge>,
    active: Gauge,
    holds: Gauge,
    reservations: Gauge,
    disk_full: Gauge,
    run_open_files: Gauge,
    runs_kept: Gauge,
    run_output_bytes: Gauge,
    audit_syslog_lost: Counter,
    connections: Family<Label, Gauge>,
    connections_refused: Family<TwoLabels, Counter>,
    denied: Family<Label, Counter>,
}

fn added<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// All figures at zero, with those of the disk; `activation_events` are the events of the owner's hook.
    pub fn new(writes: &WriteFigures, activation_events: &[&'static str]) -> Metrics {
        let mut registry = Registry::with_prefix("kolo");
        let all = &mut registry;
        let phase_seconds: Histograms = Family::new_with_constructor(seconds);
        all.register("write_seconds", "Time until a group of changes is on disk", writes.seconds.clone());
        all.register("write_bytes", "Bytes of changes written", writes.bytes.clone());
        all.register("write_commits", "Commits written, several of which make a group", writes.commits.clone());
        let metrics = Metrics {
            requests: added(all, "requests", "Requests decided at this entry point, by outcome", Family::default()),
            request_seconds: added(all, "request_seconds", "From a request's arrival until it was decided", seconds()),
            attempts: added(all, "tries", "Attempts of decided requests", Counter::default()),
            conflicts: added(all, "conflicts", "Attempts that failed because others were faster", Counter::default()),
            phase_seconds: added(all, "phase_seconds", "Time in each phase of planning, a round", phase_seconds),
            answers: added(all, "ledger_answers", "What this site's ledger has answered", Family::default()),
            refusals: added(all, "refusals", "Refusals of this site's ledger, by rule", Family::default()),
            discovery: added(
                all,
                "discovery_events",
                "What happened between this node and its peers",
                Family::default(),
            ),
            activation_runs: {
                let help = "Runs of the owner's hook, and events given up after the last one";
                added(all, "activation_runs", help, Family::default())
            },
            notices: added(all, "notices", "Notices about requests, by what became of them", Family::default()),
            feed_runs: added(all, "feed_runs", "Runs of the owner's feed of own work, by outcome", Family::default()),
            feed_entries: {
                let help = "Own work of the last run of the feed, by what became of it";
                added(all, "feed_entries", help, Family::default())
            },
            active: added(all, "requests_active", "Requests under way", Gauge::default()),
            holds: added(all, "holds", "Holds in this site's ledger", Gauge::default()),
            reservations: added(all, "reservations", "Reservations in this site's ledger", Gauge::default()),
            disk_full: added(all, "disk_full", "1 while the disk is too full for new promises", Gauge::default()),
            run_open_files: added(all, "run_open_files", "Files open for what users run here", Gauge::default()),
            runs_kept: added(all, "runs_kept", "Runs of users, with ended ones that are kept", Gauge::default()),
            run_output_bytes: added(all, "run_output_bytes", "Disk that the output of runs takes", Gauge::default()),
            audit_syslog_lost: {
                let help = "Lines of the audit log that the machine's syslog has not taken";
                added(all, "audit_syslog_lost", help, Counter::default())
            },
            connections: added(all, "api_connections", "Connections to the API, by door", Family::default()),
            connections_refused: {
                let help = "Connections to the API that were closed at once";
                added(all, "api_connections_refused", help, Family::default())
            },
            denied: added(all, "api_denied", "Calls of the API that were not let through, by why", Family::default()),
            registry,
        };
        metrics.begin(activation_events);
        metrics
    }

    /// Makes every series whose labels are known beforehand, so that a rate has a zero to grow from. Discovery's events come
    /// with their counters.
    fn begin(&self, activation_events: &[&'static str]) {
        for outcome in OUTCOMES {
            drop(self.requests.get_or_create(&[("outcome", outcome)]));
        }
        for phase in Phase::ALL {
            drop(self.phase_seconds.get_or_create(&[("phase", phase.name())]));
        }
        for answer in ANSWERS {
            drop(self.answers.get_or_create(&[("answer", answer)]));
        }
        for rule in Rule::ALL.iter().map(|rule| rule.as_str()).chain(REFUSALS.iter().copied()) {
            drop(self.refusals.get_or_create(&[("rule", rule)]));
        }
        for event in activation_events {
            for outcome in ["done", "failed", "given_up"] {
                drop(self.activation_runs.get_or_create(&[("event", *event), ("outcome", outcome)]));
            }
        }
        for outcome in ["taken", "given_up"] {
            drop(self.notices.get_or_create(&[("outcome", outcome)]));
        }
        for why in DENIALS {
            drop(self.denied.get_or_create(&[("why", why)]));
        }
        for outcome in ["done", "failed"] {
            drop(self.feed_runs.get_or_create(&[("outcome", outcome)]));
        }
        for state in ["entered", "elsewhere", "short", "left_out"] {
            drop(self.feed_entries.get_or_create(&[("state", state)]));
        }
    }

    /// A call of the API was not let through, for one reason of [`DENIALS`].
    pub fn denied(&self, why: &'static str) {
        self.denied.get_or_create(&[("why", why)]).inc();
    }

    /// The figures of the door of this name.
    pub fn door(&self, name: &'static str) -> DoorFigures {
        let refused = |why| self.connections_refused.get_or_create(&[("door", name), ("why", why)]).clone();
        DoorFigures {
            open: self.connections.get_or_create(&[("door", name)]).clone(),
            refused_full: refused("full"),
            refused_address: refused("address"),
            failed: refused("failed"),
        }
    }

    /// A request was decided after `elapsed_ms`, with this outcome of [`OUTCOMES`].
    pub fn decided(&self, outcome: &'static str, elapsed_ms: u64, history: &History) {
        self.requests.get_or_create(&[("outcome", outcome)]).inc();
        self.request_seconds.observe(elapsed_ms as f64 / 1e3);
        self.attempts.inc_by(history.attempts.len() as u64);
        self.conflicts.inc_by(u64::from(history.conflicts));
    }

    /// What the phases of one round have taken, in microseconds, in the order of [`Phase::ALL`].
    pub fn phases(&self, microseconds: [f64; Phase::ALL.len()]) {
        for (phase, taken) in Phase::ALL.into_iter().zip(microseconds).filter(|(_, taken)| *taken > 0.0) {
            self.phase(phase, taken / 1e6);
        }
    }

    /// What one phase has taken.
    pub fn phase(&self, phase: Phase, seconds: f64) {
        self.phase_seconds.get_or_create(&[("phase", phase.name())]).observe(seconds);
    }

    /// The ledger has answered.
    pub fn answered(&self, answer: &SiteAnswer) {
        let kind = match answer {
            SiteAnswer::Held { .. } => "held",
            SiteAnswer::Quoted { .. } => "quoted",
            SiteAnswer::Confirmed { .. } => "confirmed",
            SiteAnswer::Released { .. } => "released",
            SiteAnswer::Settled => "settled",
            SiteAnswer::Refused(refusal) => {
                self.refusals.get_or_create(&[("rule", rule_of(&refusal.reason))]).inc();
                "refused"
            }
            SiteAnswer::Booked { .. }
            | SiteAnswer::Found { .. }
            | SiteAnswer::Status { .. }
            | SiteAnswer::Standing(_) => "told",
            SiteAnswer::Bookings { .. } => "bookings",
        };
        self.answers.get_or_create(&[("answer", kind)]).inc();
    }

    /// A run of the owner's hook has ended, or an event was given up.
    pub fn activated(&self, event: &'static str, outcome: &'static str) {
        self.activation_runs.get_or_create(&[("event", event), ("outcome", outcome)]).inc();
    }

    /// A notice about a request was taken, or given up.
    pub fn noticed(&self, outcome: &'static str) {
        self.notices.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// The feed of own work has run, and reported something unless it has failed.
    pub fn fed(&self, report: Option<&FeedReport>) {
        let outcome = if report.is_some() { "done" } else { "failed" };
        self.feed_runs.get_or_create(&[("outcome", outcome)]).inc();
        let Some(report) = report else { return };
        let counts = [
            ("entered", report.pieces),
            ("elsewhere", report.elsewhere),
            ("short", report.short),
            ("left_out", report.left_out),
            ("queued", report.queued),
        ];
        for (state, count) in counts {
            self.feed_entries.get_or_create(&[("state", state)]).set(whole(count));
        }
    }

    /// Sets what is counted elsewhere, and writes everything down; `of_grid` follows when the caller may see it.
    pub fn write(&self, present: &Present, of_grid: Option<&OfGrid>) -> String {
        self.active.set(whole(present.active));
        self.holds.set(whole(present.holds));
        self.reservations.set(whole(present.reservations));
        self.run_open_files.set(whole(present.run_open_files));
        self.runs_kept.set(whole(present.runs_kept));
        self.run_output_bytes.set(i64::try_from(present.run_output_bytes).unwrap_or(i64::MAX));
        self.disk_full.set(i64::from(present.lacks_room));
        self.audit_syslog_lost.inner().store(present.audit_syslog_lost, Ordering::Relaxed);
        for (name, count) in &present.discovery {
            self.discovery.get_or_create(&[("event", *name)]).inner().store(*count, Ordering::Relaxed);
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        if let Some(of_grid) = of_grid {
            let end = text.rfind("# EOF").unwrap_or(text.len());
            text.truncate(end);
            let _ = encode(&mut text, &of_grid.registry());
        }
        text
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What is true at the moment of this node alone.
pub struct Present {
    pub active: usize,
    pub holds: usize,
    pub reservations: usize,
    pub run_open_files: usize,
    pub runs_kept: usize,
    pub run_output_bytes: u64,
    /// Whether the disk is too full for new promises.
    pub lacks_room: bool,
    /// Lines of the audit log that the machine's syslog has not taken.
    pub audit_syslog_lost: u64,
    /// Counters of discovery.
    pub discovery: BTreeMap<&'static str, u64>,
}

/// What is known of the grid at the moment.
#[derive(Default)]
pub struct OfGrid {
    /// Sites by what is known of their schedules.
    pub sites: BTreeMap<&'static str, usize>,
    /// Hosts known.
    pub hosts: usize,
    pub peers: usize,
    /// Ages of the schedules of other sites in seconds.
    pub ages: Vec<u64>,
    /// How far the median clock of other sites is ahead of this machine's, in milliseconds.
    pub clock_ahead_ms: Option<i64>,
}

impl OfGrid {
    fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("kolo");
        let sites: Family<Label, Gauge> = Family::default();
        for (state, count) in &self.sites {
            sites.get_or_create(&[("schedule", *state)]).set(whole(*count));
        }
        registry.register("sites", "Known sites by what is known of their schedules", sites);
        for (name, help, count) in [("hosts", "Known hosts", self.hosts), ("peers", "Connected peers", self.peers)] {
            let gauge: Gauge = Gauge::default();
            gauge.set(whole(count));
            registry.register(name, help, gauge);
        }
        if let Some(ahead_ms) = self.clock_ahead_ms {
            let ahead: Gauge<f64, AtomicU64> = Gauge::default();
            ahead.set(ahead_ms as f64 / 1000.0);
            let help = "How far the median clock of other sites is ahead of this machine's";
            registry.register("clock_ahead_seconds", help, ahead);
        }
        let ages = Histogram::new([1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 900.0, 3600.0]);
        for age in &self.ages {
            ages.observe(*age as f64);
        }
        registry.register("schedule_age_seconds", "How long ago schedules were received, now, over sites", ages);
        registry
    }
}

macro_rules! refusals {
    ($($reason:pat => $name:literal,)*) => {
        /// Why a ledger refuses, beside the rules of [`Rule::ALL`].
        const REFUSALS: &[&str] = &[$($name),*];

        fn rule_of(reason: &RefusalReason) -> &'static str {
            match reason {
                RefusalReason::NotAllowed(denial) | RefusalReason::NotOffered { denial, .. } => denial.rule.as_str(),
                $($reason => $name,)*
            }
        }
    };
}

refusals! {
    RefusalReason::NotEnough { .. } => "not_enough",
    RefusalReason::HeldByAnother { .. } => "held_by_another",
    RefusalReason::UplinkFull { .. } => "uplink_full",
    RefusalReason::UnknownHost(_) => "unknown_host",
    RefusalReason::NoSuchHold => "no_such_hold",
    RefusalReason::AttemptIsOver => "attempt_is_over",
    RefusalReason::WindowPassed => "window_passed",
    RefusalReason::TooFarAhead(_) => "too_far_ahead",
    RefusalReason::TooManyHolds(_) => "too_many_holds",
    RefusalReason::NotYours => "not_yours",
    RefusalReason::HandedOver(_) => "handed_over",
    RefusalReason::Malformed(_) => "malformed",
    RefusalReason::OtherAttempt => "other_try",
    RefusalReason::PriceChanged { .. } => "price_changed",
    RefusalReason::Busy => "busy",
    RefusalReason::NotUnderstood(_) => "not_understood",
}

#[cfg(test)]
mod tests {
    use broker::protocol::{LedgerVersion, Refusal};

    use super::*;

    #[test]
    fn figures_of_the_grid_are_only_in_what_who_is_known_gets() {
        let metrics = Metrics::new(&WriteFigures::default(), &["start", "end"]);
        let reason = RefusalReason::Busy;
        metrics.answered(&SiteAnswer::Refused(Refusal {
            reason,
            version: LedgerVersion::default(),
            hosts: Vec::new(),
        }));
        metrics.phase(Phase::Find, 0.003);
        metrics.activated("start", "failed");
        metrics.door("remote").refused_address.inc();
        let discovery = BTreeMap::from([("gossip_received", 7)]);
        let present = Present {
            active: 1,
            holds: 2,
            reservations: 3,
            run_open_files: 4,
            runs_kept: 5,
            run_output_bytes: 6,
            lacks_room: true,
            audit_syslog_lost: 8,
            discovery,
        };
        let open = metrics.write(&present, None);
        for line in [
            "kolo_requests_total{outcome=\"handed_over\"} 0",
            "kolo_phase_seconds_count{phase=\"reserve\"} 0",
            "kolo_ledger_answers_total{answer=\"bookings\"} 0",
            "kolo_activation_runs_total{event=\"end\",outcome=\"given_up\"} 0",
            "kolo_feed_runs_total{outcome=\"failed\"} 0",
            "kolo_feed_entries{state=\"left_out\"} 0",
            "kolo_refusals_total{rule=\"busy\"} 1",
            "kolo_refusals_total{rule=\"not_enough\"} 0",
            "kolo_refusals_total{rule=\"owner-hours\"} 0",
            "kolo_ledger_answers_total{answer=\"refused\"} 1",
            "kolo_activation_runs_total{event=\"start\",outcome=\"failed\"} 1",
            "kolo_phase_seconds_count{phase=\"find\"} 1",
            "kolo_discovery_events_total{event=\"gossip_received\"} 7",
            "kolo_reservations 3",
            "kolo_run_open_files 4",
            "kolo_runs_kept 5",
            "kolo_run_output_bytes 6",
            "kolo_disk_full 1",
            "kolo_audit_syslog_lost_total 8",
            "kolo_api_denied_total{why=\"scope\"} 0",
            "kolo_api_connections_refused_total{door=\"remote\",why=\"address\"} 1",
        ] {
            assert!(open.lines().any(|known| known == line), "{line}\n{open}");
        }
        assert!(!open.contains("kolo_sites") && open.ends_with("# EOF\n"));
        let ages = vec![30, 3];
        let of_grid = OfGrid { sites: [("stale", 4)].into(), hosts: 9, peers: 2, ages, clock_ahead_ms: Some(-61_500) };
        let told = metrics.write(&present, Some(&of_grid));
        assert!(
            told.contains("kolo_sites{schedule=\"stale\"} 4") && told.contains("kolo_schedule_age_seconds_count 2")
        );
        assert!(told.contains("kolo_clock_ahead_seconds -61.5\n"), "{told}");
        assert_eq!(told.matches("# EOF").count(), 1);
    }
}
