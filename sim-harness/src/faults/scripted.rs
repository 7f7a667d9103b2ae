//! Plays scenario files in the simulated grid: nothing goes wrong but what the file says, and the checkers look all the
//! same.
//!
//! Invariant: the same file and seed give the same run, event for event. Settings are the product's own where the file
//! has none.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow};
use broker::{
    ids::RequestId,
    ledger::{BookingState, LedgerLimits},
    negotiation::{NegotiationSettings, Outcome as Ended, Stage},
    schedule::Schedule,
    time::{Millis, Span},
};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{
    life, names,
    node::State,
    options::{Losses, Options},
    trial::Trial,
    user_actions,
};
use crate::{
    engine::{Actor, Medium, Moment},
    scenario::{
        play::{self, Bookings, Outcomes, Played, Sight},
        step::{Action, Asked, GridSettings, ScenarioFile, Site, Submission, What},
    },
    shift::shifted_request,
};

/// Longest delay of a message: nodes are as near as on one machine, and still messages overtake each other.
const DELAY_MS_MAX: u64 = 10;
/// Longest write.
const DISK_MS_MAX: u64 = 5;

/// Plays a scenario. When something did not come true, what happened is written down; where.
///
/// # Errors
/// When it cannot be written.
pub fn play(file: &ScenarioFile, progress: &impl Fn(&Played)) -> anyhow::Result<(Outcomes, Option<PathBuf>)> {
    let mut scripted = Scripted::new(&file.grid);
    let outcomes = play::play(file, &mut scripted, progress)?;
    if outcomes.is_good() {
        return Ok((outcomes, None));
    }
    let failed = || "cannot write the history";
    let folder = tempfile::Builder::new().prefix("kolo-sim-scenario-").tempdir().with_context(failed)?.keep();
    fs::write(folder.join("history.txt"), scripted.trial.world.grid.history(None)).with_context(failed)?;
    Ok((outcomes, Some(folder)))
}

/// A simulated grid that does what a scenario says.
pub struct Scripted {
    trial: Trial,
}

impl Scripted {
    /// A grid of which no site has started.
    pub fn new(settings: &GridSettings) -> Scripted {
        let generators = [0, 1, 2].map(|number| Xoshiro256PlusPlus::seed_from_u64(settings.seed.wrapping_add(number)));
        let mut trial = Trial::new(options(settings), generators, None, true);
        for (index, node) in trial.world.grid.nodes.iter_mut().enumerate() {
            let hosts = settings.hosts(Site(index)).into_iter();
            node.hosts = hosts.map(|host| (host, Schedule::default())).collect();
            node.hosts_at_first.clone_from(&node.hosts);
            node.disk_ms_max = DISK_MS_MAX;
        }
        Scripted { trial }
    }

    /// Everything that has happened so far, for people.
    #[cfg(test)]
    pub fn history(&self) -> String {
        self.trial.world.grid.history(None)
    }

    fn note(&mut self, words: &str) {
        self.trial.world.grid.note(None, format_args!("-- {words}"));
    }

    fn submit(&mut self, submission: &Submission) {
        let Submission { asked, through, request } = submission;
        let id = request_id(asked);
        self.note(&format!("{asked} is {id} here, {through} is {}", names::site(through.0)));
        let by = u64::try_from(self.trial.world.grid.utc().0).unwrap_or_default();
        self.trial.world.submit(through.0, (asked.number as u64, shifted_request(request, Span(by))), None);
    }

    fn go_to(&mut self, asked: &Asked, through: Site) {
        let id = request_id(asked);
        if self.trial.world.grid.nodes[through.0].can_take_over(&id) {
            user_actions::go_to(&mut self.trial.world.grid, through.0, &id);
        } else {
            self.note(&format!("{through} has {asked} already"));
        }
    }

    /// Whether the view that a node has of a site, which runs, is up to date.
    fn knows(&self, node: usize, site: usize) -> bool {
        let grid = &self.trial.world.grid;
        let version = grid.nodes[site].running().map(|running| running.machines.ledger.version());
        let now = grid.clock(node).monotonic;
        grid.nodes[node].running().is_some_and(|running| running.views.shows(site, version, now))
    }

    /// Fails when an invariant does not hold.
    fn checked(&self) -> anyhow::Result<()> {
        match self.found() {
            None => Ok(()),
            Some(what) => Err(anyhow!("violated: {what}")),
        }
    }

    fn found(&self) -> Option<String> {
        self.trial.world.grid.violation().map(ToString::to_string)
    }
}

impl play::World for Scripted {
    fn now(&self) -> Duration {
        Duration::from_millis(self.trial.world.grid.now().ms())
    }

    fn pass(&mut self, until: Duration) -> anyhow::Result<()> {
        self.trial.advance(Moment::of_ms(u64::try_from(until.as_millis()).unwrap_or(u64::MAX)));
        self.checked()
    }

    fn act(&mut self, action: &Action, text: &str) -> anyhow::Result<()> {
        self.note(text);
        match action {
            Action::Start { start } => start.iter().for_each(|site| self.trial.world.start(site.0)),
            Action::Stop { stop } => stop.iter().for_each(|site| {
                life::leave(&mut self.trial.world.grid, site.0);
            }),
            Action::Kill { kill } => kill.iter().for_each(|site| {
                life::kill(&mut self.trial.world.grid, site.0);
            }),
            Action::Shrink { shrink: site, hosts } => {
                life::leave(&mut self.trial.world.grid, site.0);
                self.trial.world.grid.nodes[site.0].hosts.truncate(*hosts);
                self.trial.world.start(site.0);
            }
            Action::Submit(all) => all.iter().for_each(|one| self.submit(one)),
            Action::Cancel { cancel } => self.trial.world.cancel(cancel.number as u64),
            Action::Repair { repair, through } => self.go_to(repair, *through),
            Action::Cut { cut, one_way } => {
                let part: BTreeSet<usize> = cut.iter().map(|site| site.0).collect();
                self.trial.world.grid.network.cut(
                    self.trial.world.grid.nodes.len(),
                    &part,
                    one_way.unwrap_or_default(),
                );
            }
            Action::Heal { .. } => self.trial.world.grid.network.heal(),
        }
        self.checked()
    }

    fn sight(&mut self, asked: &Asked) -> anyhow::Result<Sight> {
        let id = request_id(asked);
        let under_way = |words: &str| Ok(Sight::UnderWay(words.to_owned()));
        let Some(user) = self.trial.world.grid.users.get(&id) else { return under_way("never asked") };
        let node = user.entry_point;
        let Some(running) = self.trial.world.grid.nodes[node].running() else {
            return under_way("its entry point does not run");
        };
        let Some(negotiation) = running.machines.negotiations.get(&id) else {
            return under_way("unknown at its entry point");
        };
        // Users learn only what is on disk.
        if self.trial.world.is_writing(node, &Actor::Request(id)) {
            return under_way("being written down");
        }
        Ok(match negotiation.stage() {
            Stage::Planning | Stage::BackingOff => Sight::UnderWay("planning".to_owned()),
            Stage::Holding(_) => Sight::UnderWay("holding".to_owned()),
            Stage::Confirming(_) => Sight::UnderWay("confirming".to_owned()),
            Stage::Reserved(_) => Sight::Decided(What::Reserved),
            Stage::Degraded { is_rebrokering: true, .. } => Sight::UnderWay("rebrokering".to_owned()),
            Stage::Degraded { .. } => Sight::Decided(What::Degraded),
            Stage::Closed { outcome, .. } => match outcome {
                Ended::Rejected { .. } => Sight::Decided(What::Rejected),
                Ended::Failed(_) => Sight::Decided(What::Failed),
                Ended::Cancelled(_) => Sight::Decided(What::Cancelled),
                Ended::HandedOver => Sight::UnderWay("handed over".to_owned()),
            },
        })
    }

    fn bookings(&mut self, asked: Option<&Asked>, at: &[Site]) -> anyhow::Result<Bookings> {
        let id = asked.map(request_id);
        let mut found = Bookings::default();
        let running = at.iter().filter_map(|site| self.trial.world.grid.nodes[site.0].running());
        for booking in running.flat_map(|running| running.machines.ledger.bookings()) {
            if id.as_ref().is_none_or(|id| booking.attempt.request == *id) {
                match booking.state {
                    BookingState::Held { .. } => found.held += booking.grants.len(),
                    _ => found.confirmed += booking.grants.len(),
                }
            }
        }
        Ok(found)
    }

    fn missing_knowledge(&mut self, at: &[Site], sites: &[Site]) -> anyhow::Result<Option<String>> {
        let pairs = at.iter().flat_map(|one| sites.iter().map(move |other| (one, other)));
        let mut unknown = pairs.filter(|(one, other)| one != other && !self.knows(one.0, other.0));
        Ok(unknown.next().map(|(one, other)| format!("{one} does not know {other} as it is")))
    }

    fn violation(&mut self) -> anyhow::Result<Option<String>> {
        Ok(self.found())
    }

    fn settle(&mut self) -> anyhow::Result<Vec<String>> {
        self.note("everything is healed, and has to settle");
        // The time for settling counts from here.
        self.trial.world.grid.options.faulty_ms = self.trial.world.grid.now().ms();
        for node in self.trial.world.grid.nodes.iter_mut().filter(|node| matches!(node.state, State::Absent)) {
            node.state = State::Gone;
        }
        self.trial.heal();
        self.trial.run();
        Ok(self.found().into_iter().collect())
    }
}

fn request_id(asked: &Asked) -> RequestId {
    names::request(asked.number as u64)
}

/// A grid in which nothing goes wrong by itself.
fn options(settings: &GridSettings) -> Options {
    let (negotiation, limits) = (NegotiationSettings::default(), LedgerLimits::default());
    let millis = |time: Duration| Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Options {
        sites: settings.sites,
        hosts_max: settings.hosts_per_site,
        entry_points: settings.sites,
        delay_ms_max: DELAY_MS_MAX,
        latest_ms: DELAY_MS_MAX,
        hold_for: negotiation.hold_for,
        outcome_wait: limits.outcome_wait,
        answer_timeout: negotiation.answer_timeout,
        patience: negotiation.patience,
        losses: Some(Losses {
            check_min: millis(settings.check),
            check_max: millis(settings.check),
            lost_after: millis(settings.lost_after),
            ..Losses::default()
        }),
        ..Options::default()
    }
}
