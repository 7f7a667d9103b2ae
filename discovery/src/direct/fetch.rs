//! Fetching the schedules of a site into the view: in one answer, or part by part.
//!
//! Invariants: nothing is believed before all parts of one version are there and checked; a fetch begins anew at most [`BEGUN_ANEW_MAX`]
//! times, ends after [`WHOLE_FETCH`] at the latest, and takes bounded memory (see [`super::under_way`]). What remains of a large fetch goes
//! on when its caller does not wait any more. This node's own schedules come from its ledger, whatever their size.

use std::{sync::Arc, time::Duration};

use broker::{
    ids::SiteId,
    protocol::{LedgerVersion, ScheduleUpdate},
    time::{Millis, Time},
};
use tokio::{task::JoinHandle, time};
use tracing::debug;

use super::under_way::Fetching;
use crate::{
    command::AskError,
    core::{Core, unexpected, within},
    counters::Counter,
    wire::{
        Assembly, SinceThen, WireAnswer, WireRequest, WireSchedules,
        check::{Invalid, check_update},
    },
};

/// The longest that the schedules of one site may take.
const WHOLE_FETCH: Millis = Millis(120_000);
/// How long one part may take.
const PART_FETCH: Millis = Millis(10_000);
/// Pause before a part is asked for again of a site that was busy, or has not answered.
const PART_PAUSE: Duration = Duration::from_millis(500);
/// How often parts that were not answered are asked for again in one fetch.
const PART_FAILURES_MAX: u32 = 5;
/// How often a fetch begins with the first part again, because the site has not kept the version.
const BEGUN_ANEW_MAX: u32 = 3;
/// Answers with changes in a row; a site keeps fewer.
const CHANGES_IN_A_ROW_MAX: u32 = 64;

/// What has become of a question for schedules.
enum Begun {
    /// All is known.
    Done,
    /// The first of several parts was got, the others are being fetched.
    Rest(JoinHandle<Result<(), AskError>>),
}

impl Core {
    /// Fetches the schedules of a site. What takes longer than `timeout` is an error; then the parts of a large site still come.
    pub(crate) async fn fetch_schedule(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        let whole = async {
            match self.begin_fetch(site, timeout).await? {
                Begun::Done => Ok(()),
                Begun::Rest(rest) => rest.await.unwrap_or(Err(AskError::Stopped)),
            }
        };
        let fetched = within(timeout, whole).await.and_then(|fetched| fetched);
        let fetched = fetched.map_err(|error| self.under_way().progress(site).unwrap_or(error));
        self.note_fetched(site, fetched, timeout)
    }

    /// The same, where only the first answer may take no longer than `timeout`: the rest is waited for.
    pub(crate) async fn fetch_whole_schedule(&self, site: &SiteId, timeout: Millis) -> Result<(), AskError> {
        let begun = within(timeout, self.begin_fetch(site, timeout)).await.and_then(|begun| begun);
        let fetched = match begun {
            Ok(Begun::Done) => Ok(()),
            Ok(Begun::Rest(rest)) => rest.await.unwrap_or(Err(AskError::Stopped)),
            // Somebody else waits for it.
            Err(AskError::OnTheirWay { .. }) => return Ok(()),
            Err(error) => Err(error),
        };
        self.note_fetched(site, fetched, timeout)
    }

    fn note_fetched(&self, site: &SiteId, fetched: Result<(), AskError>, timeout: Millis) -> Result<(), AskError> {
        if let Err(error) = &fetched {
            self.note_failure(site, error, timeout);
            self.shared().view.note_trouble(site, error.to_string());
        }
        let counter = if fetched.is_ok() { Counter::SchedulesFetched } else { Counter::ScheduleFetchesFailed };
        self.shared().count(counter);
        fetched
    }

    async fn begin_fetch(&self, site: &SiteId, timeout: Millis) -> Result<Begun, AskError> {
        let view = &self.shared().view;
        let known = view.version(site);
        if site == self.shared().site() {
            let known = known.filter(|_| view.is_fresh(site, self.shared().clock.now(), Millis(u64::MAX)));
            return self.fetch_own(known).await.map(|()| Begun::Done);
        }
        if let Some(on_their_way) = self.under_way().progress(site) {
            return Err(on_their_way);
        }
        if !view.knows(site) {
            self.learn_site(site, timeout).await?;
        }
        match self.ask_for_schedules(site, known, timeout).await? {
            None => Ok(Begun::Done),
            Some(first) if first.whole().parts > 1 => {
                let fetching = self.under_way().begin(site, first.whole().parts)?;
                let rest = self.clone().fetch_rest(fetching, site.clone(), first);
                Ok(Begun::Rest(tokio::spawn(rest)))
            }
            Some(only) => self.take_in(site, assembly_of(only)?).map(|_| Begun::Done),
        }
    }

    async fn fetch_own(&self, known: Option<LedgerVersion>) -> Result<(), AskError> {
        let own = self.schedules().ask_own(known).ok_or(AskError::Busy)?.await.map_err(|_| AskError::Stopped)?;
        let (site, view, now) = (self.shared().site(), &self.shared().view, self.shared().clock.now());
        match (own, known) {
            (Some(own), _) => {
                view.receive_snapshot(own, None, now);
            }
            (None, Some(known)) => view.receive_version(site, known, now),
            (None, None) => {}
        }
        Ok(())
    }

    /// Asks a site for its schedules and takes in what has changed since `known`; the first part when that does not do.
    async fn ask_for_schedules(
        &self,
        site: &SiteId,
        mut known: Option<LedgerVersion>,
        timeout: Millis,
    ) -> Result<Option<WireSchedules>, AskError> {
        let view = &self.shared().view;
        for _ in 0..CHANGES_IN_A_ROW_MAX {
            let answer = self.request(site, WireRequest::Schedules(known), timeout).await?;
            let now = self.shared().clock.now();
            match answer {
                WireAnswer::Unchanged(version) if Some(version) == known => {
                    view.receive_version(site, version, now);
                    if view.is_fresh(site, now, Millis(u64::MAX)) {
                        return Ok(None);
                    }
                    // A later version was named by somebody.
                    known = None;
                }
                WireAnswer::Changes(SinceThen { from, changes, is_complete }) if Some(from) == known => {
                    let update = ScheduleUpdate { site: site.clone(), from, changes };
                    check_update(&update).map_err(|invalid| wrong(&invalid))?;
                    view.receive_update(&update, now);
                    let later = view.version(site).filter(|version| Some(*version) > known);
                    // Changes that contradict what is known are worth nothing: then all is asked for.
                    known = later;
                    if is_complete && later.is_some() {
                        return Ok(None);
                    }
                }
                WireAnswer::Schedules(part) => return Ok(Some(Arc::unwrap_or_clone(part))),
                WireAnswer::Busy => return Err(AskError::Busy),
                other => return Err(unexpected(&other)),
            }
        }
        Err(AskError::NotKept("its schedules change faster than they can be fetched"))
    }

    /// Fetches the parts behind the first, and what has changed meanwhile.
    async fn fetch_rest(self, fetching: Fetching, site: SiteId, first: WireSchedules) -> Result<(), AskError> {
        let started = self.shared().clock.now();
        let fetched = match within(WHOLE_FETCH, self.fetch_parts(&fetching, &site, first)).await {
            Ok(Ok(version)) => self.catch_up(&site, version).await,
            Ok(Err(error)) => Err(error),
            Err(timed_out) => Err(timed_out),
        };
        drop(fetching);
        let milliseconds = (self.shared().clock.now() - started).0;
        match &fetched {
            Ok(()) => debug!(%site, milliseconds, "schedules fetched in parts"),
            Err(error) => {
                debug!(%site, %error, milliseconds, "parts of schedules not fetched");
                self.shared().view.note_trouble(&site, error.to_string());
            }
        }
        fetched
    }

    /// Takes in what has changed while the parts came. Where that is not known any more, there is a gap.
    async fn catch_up(&self, site: &SiteId, version: LedgerVersion) -> Result<(), AskError> {
        if let Some(later) = self.ask_for_schedules(site, Some(version), PART_FETCH).await? {
            self.shared().view.receive_version(site, later.whole().version, self.shared().clock.now());
        }
        Ok(())
    }

    async fn fetch_parts(
        &self,
        fetching: &Fetching,
        site: &SiteId,
        first: WireSchedules,
    ) -> Result<LedgerVersion, AskError> {
        let mut assembly = assembly_of(first)?;
        let (mut begun_anew, mut failures) = (0, 0);
        while !assembly.is_complete() {
            fetching.note(assembly.have(), assembly.whole().parts);
            let request = WireRequest::SchedulesPart { version: assembly.whole().version, number: assembly.have() };
            match self.request(site, request, PART_FETCH).await {
                Ok(WireAnswer::Schedules(part)) => {
                    assembly.add(Arc::unwrap_or_clone(part)).map_err(|invalid| wrong(&invalid))?;
                }
                // Its share of large answers is used up for now; the time for all parts bounds how often.
                Ok(WireAnswer::Busy) | Err(AskError::Busy) => time::sleep(PART_PAUSE).await,
                Ok(WireAnswer::PartsGone) if begun_anew < BEGUN_ANEW_MAX => {
                    begun_anew += 1;
                    let first = self.ask_for_schedules(site, None, PART_FETCH).await?;
                    assembly = assembly_of(first.ok_or(AskError::Interrupted)?)?;
                }
                Ok(WireAnswer::PartsGone) => {
                    return Err(AskError::NotKept(
                        "it has not kept any version of its schedules for as long as the fetch took",
                    ));
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(AskError::TimedOut | AskError::Interrupted) if failures < PART_FAILURES_MAX => {
                    failures += 1;
                    time::sleep(PART_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.take_in(site, assembly)
    }

    fn take_in(&self, site: &SiteId, assembly: Assembly) -> Result<LedgerVersion, AskError> {
        let coarse_from: Option<Time> = assembly.whole().coarse_from;
        let snapshot = assembly.finish(site.clone()).map_err(|invalid| wrong(&invalid))?;
        let version = snapshot.version;
        let view = &self.shared().view;
        if !view.has_room_for(&snapshot) {
            return Err(AskError::NotKept("this node keeps the schedules of as many large sites as it can"));
        }
        view.receive_snapshot(snapshot, coarse_from, self.shared().clock.now());
        Ok(version)
    }
}

fn assembly_of(first: WireSchedules) -> Result<Assembly, AskError> {
    Assembly::of(first).map_err(|invalid| wrong(&invalid))
}

fn wrong(invalid: &Invalid) -> AskError {
    AskError::Protocol(invalid.to_string())
}
