//! What a scenario says: a grid, and steps one after another.
//!
//! Invariant: a [`ScenarioFile`] makes sense: what a step names is there when the step comes, and every time in it is
//! bounded. Nothing in it knows in which world it is going to be played.

use std::{fmt, time::Duration};

use broker::{
    host::{Host, REFERENCE_SPEED},
    ids::{HostId, SiteId},
    request::Request,
    resources::{Amounts, Attributes},
};

/// Most sites: they are called by letters.
pub const SITES_MAX: u64 = 26;

/// A site, called by a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site(pub usize);

impl Site {
    /// The site with this name.
    pub fn named(name: &str) -> Option<Site> {
        match name.as_bytes() {
            [letter @ b'a'..=b'z'] => Some(Site(usize::from(letter - b'a'))),
            _ => None,
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Its place among all requests of the scenario.
    pub number: usize,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The grid of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridSettings {
    /// Its sites.
    pub sites: usize,
    /// Hosts of each.
    pub hosts_per_site: usize,
    /// What each host has.
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
                speed: REFERENCE_SPEED,
                price: 0,
            })
            .collect()
    }
}

/// A request and the site that it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The request's name.
    pub asked: Asked,
    /// The entry point.
    pub through: Site,
    /// What is asked; its times count from the submission.
    pub request: Request,
}

/// Something that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Sites start, for the first time or again.
    Start(Vec<Site>),
    /// Sites leave in order.
    Stop(Vec<Site>),
    /// Sites die without a word.
    Kill(Vec<Site>),
    /// The owner of a site starts it again with fewer hosts.
    Shrink {
        /// The site.
        site: Site,
        /// How many of its hosts are left, the first ones.
        hosts: usize,
    },
    /// Users ask, all at the same moment.
    Submit(Vec<Submission>),
    /// A user takes a request back.
    Cancel(Asked),
    /// A user goes with a request to another site.
    Repair {
        /// The request.
        asked: Asked,
        /// The site that is to act for it from now on.
        through: Site,
    },
    /// Nothing passes any more between these sites and the others.
    Cut {
        /// The sites.
        part: Vec<Site>,
        /// Only what these sites send is lost.
        one_way: bool,
    },
    /// All links work again.
    Heal,
}

/// What has become of a request, as its entry point tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It stands.
    Reserved,
    /// There is no placement.
    Rejected,
    /// It was given up or refused.
    Failed,
    /// It stands, with hosts that are lost.
    Degraded,
    /// Its user has taken it back.
    Cancelled,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 5] =
        [Outcome::Reserved, Outcome::Rejected, Outcome::Failed, Outcome::Degraded, Outcome::Cancelled];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Reserved => "reserved",
            Outcome::Rejected => "rejected",
            Outcome::Failed => "failed",
            Outcome::Degraded => "degraded",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// What is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// So many of these have become this, and the others something else.
    Outcome {
        /// The requests.
        asked: Vec<Asked>,
        /// What.
        outcome: Outcome,
        /// How many.
        count: usize,
    },
    /// The ledgers of these sites have confirmed a request on so many hosts.
    Booked {
        /// The request.
        asked: Asked,
        /// How many.
        hosts: usize,
        /// The sites.
        at: Vec<Site>,
    },
    /// The ledgers of these sites hold and have confirmed nothing.
    NothingBooked {
        /// Of this request only.
        asked: Option<Asked>,
        /// The sites.
        at: Vec<Site>,
    },
    /// Sites know others, and the ledgers of these as they are at this moment.
    SitesKnown {
        /// Who knows.
        at: Vec<Site>,
        /// Who is known.
        sites: Vec<Site>,
    },
    /// No invariant is broken.
    NoViolation,
}

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Something is done.
    Act(Action),
    /// Time passes.
    Wait(Duration),
    /// Something comes true in time.
    Expect {
        /// What.
        what: Expectation,
        /// How soon.
        within: Duration,
    },
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where it is written.
    pub line: usize,
    /// What it is about.
    pub verb: Verb,
}

/// A whole scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioFile {
    /// The grid.
    pub grid: GridSettings,
    /// The steps.
    pub steps: Vec<Step>,
}

impl ScenarioFile {
    /// The sites in the order in which they start first.
    pub fn starting_order(&self) -> Vec<Site> {
        let mut order = Vec::new();
        for step in &self.steps {
            if let Verb::Act(Action::Start(sites)) = &step.verb {
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

fn list<T: fmt::Display>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verb::Act(action) => action.fmt(f),
            Verb::Wait(time) => write!(f, "wait {} ms", time.as_millis()),
            Verb::Expect { what, .. } => write!(f, "expect {what}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Start(sites) => write!(f, "start {}", list(sites)),
            Action::Stop(sites) => write!(f, "stop {}", list(sites)),
            Action::Kill(sites) => write!(f, "kill {}", list(sites)),
            Action::Shrink { site, hosts } => write!(f, "shrink {site} to {hosts} hosts"),
            Action::Submit(all) => {
                let each = all.iter().map(|one| format!("{} through {}", one.asked, one.through));
                write!(f, "submit {}", each.collect::<Vec<_>>().join(", "))
            }
            Action::Cancel(asked) => write!(f, "cancel {asked}"),
            Action::Repair { asked, through } => write!(f, "repair {asked} through {through}"),
            Action::Cut { part, one_way: false } => write!(f, "cut {} off", list(part)),
            Action::Cut { part, one_way: true } => write!(f, "cut what {} send", list(part)),
            Action::Heal => f.write_str("heal"),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expectation::Outcome { asked, outcome, count } if *count == asked.len() => {
                write!(f, "{}: {}", list(asked), outcome.name())
            }
            Expectation::Outcome { asked, outcome, count } => {
                write!(f, "{}: {count} of them {}", list(asked), outcome.name())
            }
            Expectation::Booked { asked, hosts, at } => write!(f, "{asked}: booked on {hosts} hosts of {}", list(at)),
            Expectation::NothingBooked { asked: Some(asked), at } => {
                write!(f, "{asked}: nothing booked at {}", list(at))
            }
            Expectation::NothingBooked { asked: None, at } => write!(f, "nothing booked at {}", list(at)),
            Expectation::SitesKnown { at, sites } => write!(f, "{} known at {}", list(sites), list(at)),
            Expectation::NoViolation => f.write_str("no violation"),
        }
    }
}
