//! What a scenario says: a grid, and steps one after another. Files are read into these types.
//!
//! Invariant: a [`ScenarioFile`] makes sense: what a step names is there when the step comes, and every time in it is
//! bounded. Nothing in it depends on the world in which it is going to be played.

use std::{fmt, time::Duration};

use broker::{
    host::Host,
    ids::{HostId, SiteId},
    request::Request,
    resources::{Amounts, Attributes},
};
use serde::Deserialize;

/// A site, called by a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Site(pub usize);

impl TryFrom<String> for Site {
    type Error = String;

    fn try_from(name: String) -> Result<Site, String> {
        match name.as_bytes() {
            [letter @ b'a'..=b'z'] => Ok(Site(usize::from(letter - b'a'))),
            _ => Err(format!("expected a site, which is called by a letter, got {name:?}")),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = u8::try_from(self.0).map_or('?', |index| char::from(b'a' + index));
        write!(f, "{letter}")
    }
}

/// A request, called as the scenario calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Asked {
    /// Its place among all requests of the scenario.
    pub number: usize,
    /// Its name.
    pub name: String,
}

impl From<String> for Asked {
    fn from(name: String) -> Asked {
        Asked { number: 0, name }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// One thing or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "OneOrMany<T>")]
pub struct Many<T>(pub Vec<T>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a name or a list of names; sites are called a to z")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> From<OneOrMany<T>> for Many<T> {
    fn from(written: OneOrMany<T>) -> Many<T> {
        match written {
            OneOrMany::One(one) => Many(vec![one]),
            OneOrMany::Many(many) => Many(many),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Many<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(T::to_string).collect::<Vec<_>>().join(", "))
    }
}

/// The grid of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridSettings {
    /// Its sites.
    pub sites: usize,
    /// Hosts of each.
    pub hosts_per_site: usize,
    /// Capacity of each host.
    pub capacity: Amounts,
    /// Everything random comes from this, except what real processes do.
    pub seed: u64,
    /// How often entry points ask whether all of a reservation is still there.
    pub check: Duration,
    /// How long a site has to be silent to count as lost.
    pub lost_after: Duration,
}

impl GridSettings {
    /// The name of a site in the ledgers' world.
    pub fn site_id(site: Site) -> SiteId {
        SiteId::new(&site.to_string()).expect("a letter is a short text without control characters")
    }

    /// The hosts of a site.
    pub fn hosts(&self, site: Site) -> Vec<Host> {
        (1..=self.hosts_per_site)
            .map(|number| Host {
                id: HostId::new(&format!("{site}{number}")).expect("a letter and a number are a short text"),
                capacity: self.capacity.clone(),
                attributes: Attributes::new(),
            })
            .collect()
    }
}

/// A request and its entry point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The request's name.
    pub asked: Asked,
    /// The entry point.
    pub through: Site,
    /// The request; its times count from the submission.
    pub request: Request,
}

/// Something that is done.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Sites start, for the first time or again.
    Start { start: Many<Site> },
    /// Sites leave in order.
    Stop { stop: Many<Site> },
    /// Sites die without a word.
    Kill { kill: Many<Site> },
    /// The owner of a site starts it again with only its first so many hosts.
    Shrink { shrink: Site, hosts: usize },
    /// Users ask, all at the same moment.
    #[serde(skip)]
    Submit(Vec<Submission>),
    /// A user cancels a request.
    Cancel { cancel: Asked },
    /// A user goes with a request to another site, which becomes its coordinator.
    Repair { repair: Asked, through: Site },
    /// Nothing passes any more between these sites and the others; one way: only what these send is lost.
    Cut { cut: Many<Site>, one_way: Option<bool> },
    /// All links work again.
    Heal { heal: bool },
}

/// The state of a request, as its entry point reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Reserved,
    /// There is no placement.
    Rejected,
    /// It was given up or refused.
    Failed,
    /// Reserved, with hosts that are lost.
    Degraded,
    Cancelled,
}

/// What can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Reserved,
    Rejected,
    Failed,
    Degraded,
    Cancelled,
    /// The ledgers of the sites `at` have confirmed a request on so many hosts.
    Booked,
    /// The ledgers of the sites `at` hold and have confirmed nothing, or nothing of a request.
    NothingBooked,
    /// The sites `at` know `sites`, and the ledgers of these as they are at this moment.
    SitesKnown,
    /// No invariant is broken.
    NoViolation,
}

impl What {
    /// The state that requests are expected to be in, if that is what is expected.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            What::Reserved => Some(Outcome::Reserved),
            What::Rejected => Some(Outcome::Rejected),
            What::Failed => Some(Outcome::Failed),
            What::Degraded => Some(Outcome::Degraded),
            What::Cancelled => Some(Outcome::Cancelled),
            What::Booked | What::NothingBooked | What::SitesKnown | What::NoViolation => None,
        }
    }
}

/// Something that comes true in time. Which of the fields count is up to `what`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub what: What,
    pub within: Duration,
    /// The requests it is about.
    pub asked: Many<Asked>,
    /// How many of these.
    pub count: usize,
    pub hosts: usize,
    pub at: Many<Site>,
    pub sites: Many<Site>,
}

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Something is done.
    Act(Action),
    /// Time passes.
    Wait(Duration),
    /// Something comes true in time.
    Expect(Expectation),
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file.
    pub line: usize,
    pub verb: Verb,
}

/// A whole scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioFile {
    pub grid: GridSettings,
    pub steps: Vec<Step>,
}

impl ScenarioFile {
    /// The sites in the order in which they start first.
    pub fn starting_order(&self) -> Vec<Site> {
        let mut order = Vec::new();
        for step in &self.steps {
            if let Verb::Act(Action::Start { start: Many(sites) }) = &step.verb {
                for site in sites {
                    if !order.contains(site) {
                        order.push(*site);
                    }
                }
            }
        }
        order
    }

    /// Whether links are cut.
    pub fn has_cuts(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.verb, Verb::Act(Action::Cut { .. })))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verb::Act(action) => action.fmt(f),
            Verb::Wait(time) => write!(f, "wait {} ms", time.as_millis()),
            Verb::Expect(expectation) => write!(f, "expect {expectation}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Start { start } => write!(f, "start {start}"),
            Action::Stop { stop } => write!(f, "stop {stop}"),
            Action::Kill { kill } => write!(f, "kill {kill}"),
            Action::Shrink { shrink, hosts } => write!(f, "shrink {shrink} to {hosts} hosts"),
            Action::Submit(all) => {
                let each = all.iter().map(|one| format!("{} through {}", one.asked, one.through));
                write!(f, "submit {}", each.collect::<Vec<_>>().join(", "))
            }
            Action::Cancel { cancel } => write!(f, "cancel {cancel}"),
            Action::Repair { repair, through } => write!(f, "repair {repair} through {through}"),
            Action::Cut { cut, one_way: Some(true) } => write!(f, "cut what {cut} send"),
            Action::Cut { cut, .. } => write!(f, "cut {cut} off"),
            Action::Heal { .. } => f.write_str("heal"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Reserved => "reserved",
            Outcome::Rejected => "rejected",
            Outcome::Failed => "failed",
            Outcome::Degraded => "degraded",
            Outcome::Cancelled => "cancelled",
        })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expectation { what, asked, count, hosts, at, sites, .. } = self;
        match (what, what.outcome()) {
            (_, Some(outcome)) if *count == asked.0.len() => write!(f, "{asked}: {outcome}"),
            (_, Some(outcome)) => write!(f, "{asked}: {count} of them {outcome}"),
            (What::Booked, _) => write!(f, "{asked}: booked on {hosts} hosts of {at}"),
            (What::NothingBooked, _) if asked.0.is_empty() => write!(f, "nothing booked at {at}"),
            (What::NothingBooked, _) => write!(f, "{asked}: nothing booked at {at}"),
            (What::SitesKnown, _) => write!(f, "{sites} known at {at}"),
            _ => f.write_str("no violation"),
        }
    }
}
