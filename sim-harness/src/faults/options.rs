//! What one seed is about: how large the grid is, what goes wrong in it and how often (swarm testing: every seed draws
//! its own mixture, and leaves some faults out altogether, so that rare combinations get their turn).
//!
//! Invariant: no message lives longer than [`Options::latest_ms`], which is below [`TOMBSTONE_LIFE`]: the ledger's
//! protection against late messages is bounded by design.

use broker::{
    ledger::LedgerLimits,
    negotiation::NegotiationSettings,
    phases::Settings,
    request::Effort,
    time::{Millis, Span},
};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    batches::Batches, canary::Canary, choice::one_of, classes::Classes, clocks::Clocks, demands::Demands,
    descriptors::Descriptors, disks::Disks, drains::Drains, hoards::Hoards, lies::Lies, links::Links, money::Money,
    queues::Queues, rules::Rules, scales::Scales, shapes::Shapes, shares::Shares, slacks::Slacks,
};

/// How long sites remember an attempt that is over.
pub const TOMBSTONE_LIFE: Millis = Millis(40_000);
/// Longest hold, whoever asks.
const HOLD_MAX: Millis = Millis(12_000);
/// In this time a site forgives one lapse.
pub const LAPSE_FORGIVEN_IN: Millis = Millis(60_000);
/// Virtual time after the healing within which everything must have settled: the longest wait between two questions
/// for an outcome (96 s) and between two releases (60 s); each may meet one last message from before the healing.
pub const SETTLE_WITHIN_MS: u64 = 300_000;

/// Faults that a seed has or has not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Nodes crash between two effects, and at any other time.
    pub crashes: bool,
    /// Links are cut, in both directions or in one.
    pub partitions: bool,
    /// Nodes become slow for a while.
    pub slowness: bool,
    /// Sites leave the grid, and come back.
    pub departures: bool,
}

/// A kind of message that is lost more often than others, which leads to rare orders of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unlucky {
    #[default]
    Nothing,
    Confirms,
    Releases,
    Outcomes,
    OutcomesAndInquiries,
    Answers,
}

/// Of 100 messages of the unlucky kind, how many are lost.
pub const UNLUCKY_PERCENT: u64 = 80;

/// What a seed loses after it was reserved.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// Times that an owner takes something away, or gives it back.
    pub shrinks: u64,
    /// Of 100 requests, how many are taken over by another node at some time.
    pub takeover_percent: u64,
    /// Of 100 requests, how many may move when hosts are lost.
    pub move_percent: u64,
    /// How long before they begin reservations are made at least (s); one of these.
    pub ahead_s: [i64; 3],
    /// Shortest wait between two questions whether all is there.
    pub check_min: Millis,
    pub check_max: Millis,
    /// When a silent site counts as lost.
    pub lost_after: Millis,
}

/// The options of one seed. Of the default ones nothing goes wrong, and nobody waits.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Sites, also those that join late.
    pub sites: usize,
    pub hosts_max: usize,
    /// Sites, from the first on, that are entry points.
    pub entry_points: usize,
    pub requests: u64,
    /// Of the sites, how many join only after a while.
    pub late_sites: usize,
    /// How long faults last from the start on.
    pub faulty_ms: u64,
    /// Of 100 messages, how many are lost.
    pub loss_percent: u64,
    /// Messages that are lost more often.
    pub unlucky: Unlucky,
    /// Of 100 messages, how many arrive twice.
    pub repeat_percent: u64,
    /// Of 100 messages, how many are overtaken by many others.
    pub late_percent: u64,
    /// Longest ordinary delay of a message.
    pub delay_ms_max: u64,
    /// Longest delay of a message that is overtaken or repeated.
    pub latest_ms: u64,
    /// Of 1000 effects, before how many the node crashes; and of 1000 writes, during how many.
    pub crash_per_mille: u64,
    pub faults: Faults,
    /// Most sites that never come back.
    pub gone_max: usize,
    /// Wall clocks differ from the true time by at most this.
    pub skew_ms_max: i64,
    /// Monotonic clocks run wrong by at most this, in millionths.
    pub drift_ppm_max: i64,
    /// Of 100 requests, how many the user cancels at some time, and how many as soon as they are reserved.
    pub cancel_percent: u64,
    /// Reservations so short that they end during the run.
    pub has_short_durations: bool,
    /// Windows for the start so tight that a second attempt hardly fits.
    pub has_tight_windows: bool,
    pub hold_for: Millis,
    /// From a confirm to the first question for the outcome.
    pub outcome_wait: Millis,
    /// How long answers are waited for.
    pub answer_timeout: Millis,
    /// How long a request may take.
    pub patience: Millis,
    pub is_closed: bool,
    /// An entry point that cheats.
    pub attacker: Option<usize>,
    /// Whether hosts are lost after they were reserved, and how.
    pub losses: Option<Losses>,
    /// What users ask beyond amounts for a time.
    pub demands: Option<Demands>,
    /// Prices of owners and budgets of users.
    pub money: Option<Money>,
    /// Uplinks of sites, and which requests have traffic.
    pub links: Option<Links>,
    /// Which requests are lists of shapes.
    pub shapes: Option<Shapes>,
    /// Which requests are moldable.
    pub scales: Option<Scales>,
    /// How much later requests may begin.
    pub slacks: Option<Slacks>,
    /// Requests that are planned together.
    pub batches: Option<Batches>,
    /// Which sites are emptied, and when.
    pub drains: Option<Drains>,
    /// Wall clocks that are set wrong.
    pub clocks: Option<Clocks>,
    /// Disks that are full for a while.
    pub disks: Option<Disks>,
    /// Disks that lose what they have told was written.
    pub lies: Option<Lies>,
    /// Nodes that run out of descriptors for a while.
    pub descriptors: Option<Descriptors>,
    /// Rules of owners that change.
    pub rules: Option<Rules>,
    /// What one user, node or network may have of a site.
    pub shares: Option<Shares>,
    /// A node that holds and never confirms.
    pub hoards: Option<Hoards>,
    /// What owners order for their own queues.
    pub queues: Option<Queues>,
    /// Which sites have their hosts in a class.
    pub classes: Option<Classes>,
    /// One of so many users hands a plan in that another node has made; none without.
    pub handed_in_every: Option<u64>,
}

/// The choices of a draw. Where outcomes are lost, participants have to find them out among themselves, which is the most
/// delicate part of the protocol: that has the largest share.
const UNLUCKY: [Unlucky; 13] = [
    Unlucky::Nothing,
    Unlucky::Nothing,
    Unlucky::Nothing,
    Unlucky::Nothing,
    Unlucky::Nothing,
    Unlucky::Confirms,
    Unlucky::Releases,
    Unlucky::Outcomes,
    Unlucky::Outcomes,
    Unlucky::Outcomes,
    Unlucky::Outcomes,
    Unlucky::OutcomesAndInquiries,
    Unlucky::Answers,
];

/// Longest write of a node; drawn for every node.
pub const DISK_MS_MAX: [u64; 5] = [0, 5, 60, 600, 600];

impl Options {
    /// Draws the options of a seed.
    pub fn draw(random: &mut Xoshiro256PlusPlus) -> Options {
        let sites = random.random_range(2..=12);
        let faults = Faults {
            crashes: random.random_range(0..3) > 0,
            partitions: random.random_range(0..2) == 0,
            slowness: random.random_range(0..3) == 0,
            departures: random.random_range(0..4) == 0,
        };
        Options {
            sites,
            hosts_max: random.random_range(1..=4),
            entry_points: random.random_range(1..=sites.min(6)),
            requests: random.random_range(3..=12),
            late_sites: if random.random_range(0..3) == 0 { random.random_range(0..=sites / 3) } else { 0 },
            faulty_ms: random.random_range(8_000..=40_000),
            loss_percent: one_of(random, &[0, 0, 1, 5, 10, 25]),
            unlucky: one_of(random, &UNLUCKY),
            repeat_percent: one_of(random, &[0, 2, 10, 25]),
            late_percent: one_of(random, &[0, 0, 5, 20]),
            delay_ms_max: one_of(random, &[2, 10, 50, 200]),
            latest_ms: one_of(random, &[1_000, 3_000, 8_000]),
            crash_per_mille: if faults.crashes { one_of(random, &[0, 5, 15, 40]) } else { 0 },
            faults,
            gone_max: random.random_range(0..=sites / 4),
            skew_ms_max: one_of(random, &[0, 500, 20_000]),
            drift_ppm_max: one_of(random, &[0, 200, 10_000]),
            cancel_percent: one_of(random, &[0, 20, 80]),
            has_short_durations: random.random_range(0..5) == 0,
            has_tight_windows: random.random_range(0..3) == 0,
            hold_for: one_of(random, &[Millis(1_500), Millis(4_000), Millis(10_000)]),
            outcome_wait: one_of(random, &[Millis(30), Millis(300), Millis(1_500)]),
            answer_timeout: one_of(random, &[Millis(300), Millis(1_000)]),
            patience: one_of(random, &[Millis(5_000), Millis(20_000)]),
            is_closed: false,
            attacker: None,
            losses: None,
            demands: None,
            money: None,
            links: None,
            shapes: None,
            scales: None,
            slacks: None,
            batches: None,
            drains: None,
            clocks: None,
            disks: None,
            lies: None,
            descriptors: None,
            rules: None,
            shares: None,
            hoards: None,
            queues: None,
            classes: None,
            handed_in_every: None,
        }
    }

    /// Draws from the attacker's generator whether the grid is closed and which entry point cheats.
    pub fn draw_trust(&mut self, attacks: &mut Xoshiro256PlusPlus) {
        self.is_closed = attacks.random_range(0..3) == 0;
        self.attacker = (attacks.random_range(0..3) == 0).then(|| attacks.random_range(0..self.entry_points));
    }

    /// Draws whether, and what, is lost.
    pub fn draw_losses(&mut self, fates: &mut Xoshiro256PlusPlus) {
        if fates.random_range(0..2) == 0 {
            return;
        }
        self.gone_max = fates.random_range(0..=self.sites / 2);
        self.losses = Some(Losses {
            shrinks: one_of(fates, &[0, 2, 6]),
            takeover_percent: one_of(fates, &[0, 50, 90]),
            move_percent: one_of(fates, &[0, 50]),
            ahead_s: one_of(fates, &[[0, 20, 40], [20, 60, 1_000], [1_000, 1_000, 3_000]]),
            check_min: one_of(fates, &[Millis(400), Millis(1_500)]),
            check_max: one_of(fates, &[Millis(1_500), Millis(6_000)]),
            lost_after: one_of(fates, &[Millis(1_000), Millis(4_000)]),
        });
    }

    /// Settings of every entry point.
    pub fn negotiation(&self) -> NegotiationSettings {
        // Where no site drops what it has confirmed, nor lies about who coordinates, no coordinator needs to ask again.
        let never = Millis(u64::MAX / 8);
        let (check_min, check_max) = match (&self.losses, self.attacker) {
            (Some(losses), _) => (losses.check_min, losses.check_max),
            (None, Some(_)) => (Millis(1_500), Millis(6_000)),
            (None, None) => (never, never),
        };
        NegotiationSettings {
            planner: Settings { effort: Effort::Fast, ..Settings::default() },
            hold_for: self.hold_for,
            answer_timeout: self.answer_timeout,
            patience: self.patience,
            check_min,
            check_max,
            lost_after: self.losses.as_ref().map_or(never, |losses| losses.lost_after),
            ..NegotiationSettings::default()
        }
    }

    /// Limits of every ledger; a fault may lie in them.
    pub fn ledger(&self, canary: Option<Canary>) -> LedgerLimits {
        LedgerLimits {
            hold_max: if canary == Some(Canary::ForgetHoldDeadline) { Millis(u64::MAX / 4) } else { HOLD_MAX },
            outcome_wait: self.outcome_wait,
            tombstone_life: TOMBSTONE_LIFE,
            max_tombstones: if canary == Some(Canary::NoTombstones) { 1 } else { 10_000 },
            farthest_future: Span(7 * 86_400),
            bound_before: self.classes.as_ref().map_or(Span(0), |classes| classes.bound_before),
            lapse_forgiven_in: if canary == Some(Canary::LapsesForgiven) { Millis(1) } else { LAPSE_FORGIVEN_IN },
            ..LedgerLimits::default()
        }
    }
}
