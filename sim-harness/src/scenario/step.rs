//! What a scenario says: a grid, and steps one after another. Files are read into these types.
//!
//! Invariant: a [`ScenarioFile`] makes sense: what a step names is there when the step comes, and every time in it is
//! bounded. Nothing in it depends on the world in which it is going to be played.

use std::{fmt, time::Duration};

use broker::{
    host::{Host, Speed},
    ids::{HostId, SiteId},
    request::Request,
    resources::{Amounts, Attributes},
};
use serde::{Deserialize, Deserializer};

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

/// Reads one thing or a list of them.
pub fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a name or a list of names; sites are called a to z")]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
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
                speed: Speed::REFERENCE,
                tariff: Default::default(),
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
    Start {
        #[serde(deserialize_with = "one_or_many")]
        start: Vec<Site>,
    },
    /// Sites leave in order.
    Stop {
        #[serde(deserialize_with = "one_or_many")]
        stop: Vec<Site>,
    },
    /// Sites die without a word.
    Kill {
        #[serde(deserialize_with = "one_or_many")]
        kill: Vec<Site>,
    },
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
    Cut {
        #[serde(deserialize_with = "one_or_many")]
        cut: Vec<Site>,
        one_way: Option<bool>,
    },
    /// All links work again.
    Heal { heal: bool },
}

/// What can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Reserved,
    /// There is no placement.
    Rejected,
    /// It was given up or refused.
    Failed,
    /// Reserved, with hosts that are lost.
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
    /// Whether it is a state of a request, as its entry point reports it.
    pub fn is_outcome(self) -> bool {
        matches!(self, What::Reserved | What::Rejected | What::Failed | What::Degraded | What::Cancelled)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// Something that comes true in time. Which of the fields count is up to `what`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub what: What,
    pub within: Duration,
    /// The requests it is about.
    pub asked: Vec<Asked>,
    /// How many of these.
    pub count: usize,
    pub hosts: usize,
    pub at: Vec<Site>,
    pub sites: Vec<Site>,
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
    /// Its keys as they are written.
    pub text: String,
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
            let Verb::Act(Action::Start { start }) = &step.verb else { continue };
            let new: Vec<Site> = start.iter().copied().filter(|site| !order.contains(site)).collect();
            order.extend(new);
        }
        order
    }

    /// Whether links are cut.
    pub fn has_cuts(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.verb, Verb::Act(Action::Cut { .. })))
    }
}
