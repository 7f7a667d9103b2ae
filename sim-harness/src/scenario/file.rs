//! Reads a scenario file and checks that it makes sense.
//!
//! Invariant: nothing is guessed. Unknown keys and verbs, sites that do not run when a step needs them, and requests that no
//! step has submitted are refused with their line, before anything is played.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeInclusive},
    time::Duration,
};

use broker::{
    amount::parse_amount,
    ids::RequestId,
    request::{Request, RequestDocument},
    resources::{Amounts, ResourceName},
    time::Time,
};
use serde::{Deserialize, de::DeserializeOwned};
use sim_kit::duration;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::step::{
    Action, Asked, Expectation, GridSettings, ScenarioFile, Site, Step, Submission, Verb, What, one_or_many,
};

/// Most sites: they are called by letters.
const SITES_MAX: u64 = 26;
/// Most steps.
const STEPS_MAX: usize = 1_000;
/// Most requests.
const REQUESTS_MAX: usize = 200;
/// Longest wait, and longest time for anything to come true, in seconds.
const WAIT_MAX_S: u64 = 600;
/// Longest reservation, and farthest start, in seconds.
const REACH_MAX_S: u64 = 24 * 3600;
/// How soon something has to come true when not given.
const WITHIN: Duration = Duration::from_secs(30);
/// How far after the earliest start the latest one is when not given.
const WINDOW: Duration = Duration::from_secs(3600);
/// Most hosts of a site, and of a request.
const HOSTS_MAX: u64 = 50;
/// Most cores of a host.
const CORES_MAX: u64 = 1024;

/// What a step can be; each is a key.
const VERBS: [&str; 11] =
    ["start", "stop", "kill", "shrink", "submit", "cancel", "repair", "cut", "heal", "wait", "expect"];

/// What is wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {what}, in `{written}`")]
pub struct Wrong {
    /// Line, from 1.
    pub line: usize,
    what: String,
    /// The line as it is written.
    written: String,
}

/// The text of a file.
#[derive(Clone, Copy)]
struct Source<'a>(&'a str);

impl<'a> Source<'a> {
    /// Line, from 1, of a place.
    fn line(self, place: usize) -> usize {
        1 + self.0.bytes().take(place).filter(|byte| *byte == b'\n').count()
    }

    fn wrong(self, place: Range<usize>, what: impl Into<String>) -> Wrong {
        let line = self.line(place.start);
        let written = self.0.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
        Wrong { line, what: what.into(), written }
    }

    /// The keys of the step whose head is in `line`.
    fn step(self, line: usize) -> String {
        let lines = self.0.lines().skip(line).map(str::trim).take_while(|text| !text.starts_with('['));
        lines.filter(|text| !text.is_empty() && !text.starts_with('#')).collect::<Vec<_>>().join(", ")
    }

    /// A value that its type describes; `place` is where it is written.
    fn read<T: DeserializeOwned>(self, value: Spanned<DeValue<'a>>) -> Result<T, Wrong> {
        let place = value.span();
        T::deserialize(ValueDeserializer::from(value))
            .map_err(|error| self.wrong(error.span().unwrap_or(place), error.message().replace('\n', ", ")))
    }
}

/// Reads a scenario. `seed` replaces the file's.
///
/// # Errors
/// [`Wrong`] with the line.
pub fn read(text: &str, seed: Option<u64>) -> Result<ScenarioFile, Wrong> {
    let source = Source(text);
    let table = DeTable::parse(text)
        .map_err(|error| source.wrong(error.span().unwrap_or_default(), error.message().replace('\n', ", ")))?;
    let (place, mut table) = (table.span(), table.into_inner());
    let steps = match table.remove("step").map(|steps| (steps.span(), steps.into_inner())) {
        Some((place, DeValue::Array(steps))) if steps.len() > STEPS_MAX => {
            return Err(source.wrong(place, format!("expected at most {STEPS_MAX} steps, got {}", steps.len())));
        }
        Some((_, DeValue::Array(steps))) => steps,
        Some((place, _)) => return Err(source.wrong(place, "expected tables [[step]]")),
        None => return Err(source.wrong(place, "expected tables [[step]], got none")),
    };
    let FileText { grid } = source.read(Spanned::new(place, DeValue::Table(table)))?;
    let grid = grid.settings(seed).map_err(|error| source.wrong(0..0, error))?;
    let hosts = vec![grid.hosts_per_site; grid.sites];
    let mut state = State { source, hosts, running: BTreeSet::new(), requests: BTreeMap::new() };
    let steps = steps.into_iter().map(|step| state.step(step)).collect::<Result<_, _>>()?;
    Ok(ScenarioFile { grid, steps })
}

/// A whole number in a range.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u64")]
struct Count<const MIN: u64, const MAX: u64>(usize);

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for Count<MIN, MAX> {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        let count = usize::try_from(number).ok().filter(|_| (MIN..=MAX).contains(&number));
        count.map(Count).ok_or_else(|| format!("expected a whole number from {MIN} to {MAX}, got {number}"))
    }
}

/// A duration of at most so many seconds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Length<const MAX_S: u64>(Duration);

impl<const MAX_S: u64> TryFrom<String> for Length<MAX_S> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        duration::within(Duration::from_millis(1)..=Duration::from_secs(MAX_S))(&text).map(Length)
    }
}

/// Amounts with units, such as `{ cpu = "2.5", memory = "4GiB" }`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "BTreeMap<ResourceName, String>")]
struct AmountTexts(Amounts);

impl TryFrom<BTreeMap<ResourceName, String>> for AmountTexts {
    type Error = String;

    fn try_from(texts: BTreeMap<ResourceName, String>) -> Result<Self, String> {
        let read = |(name, text): (ResourceName, String)| {
            let amount = parse_amount(&name, &text).map_err(|error| format!("{name}: {error}"))?;
            Ok((name, amount))
        };
        texts.into_iter().map(read).collect::<Result<_, String>>().map(AmountTexts)
    }
}

/// Memory of a host.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
struct Memory(AmountTexts);

impl TryFrom<String> for Memory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = ResourceName::new("memory").map_err(|error| error.to_string())?;
        AmountTexts::try_from(BTreeMap::from([(name, text)])).map(Memory)
    }
}

/// The file, without its steps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    grid: GridText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridText {
    sites: Count<1, SITES_MAX>,
    hosts_per_site: Option<Count<1, HOSTS_MAX>>,
    cpu: Option<Count<1, CORES_MAX>>,
    memory: Option<Memory>,
    seed: Option<u64>,
    check: Option<Length<WAIT_MAX_S>>,
    lost_after: Option<Length<WAIT_MAX_S>>,
}

impl GridText {
    fn settings(self, seed: Option<u64>) -> Result<GridSettings, String> {
        let cores = self.cpu.map_or(4, |cores| cores.0).to_string();
        let cpu = ResourceName::new("cpu").map_err(|error| error.to_string())?;
        let AmountTexts(mut capacity) = AmountTexts::try_from(BTreeMap::from([(cpu, cores)]))?;
        let Memory(AmountTexts(memory)) = self.memory.map_or_else(|| Memory::try_from("8GiB".to_owned()), Ok)?;
        capacity.extend(memory);
        Ok(GridSettings {
            sites: self.sites.0,
            hosts_per_site: self.hosts_per_site.map_or(1, |hosts| hosts.0),
            capacity,
            seed: seed.or(self.seed).unwrap_or(1),
            check: self.check.map_or(Duration::from_secs(3), |check| check.0),
            lost_after: self.lost_after.map_or(Duration::from_secs(1), |lost| lost.0),
        })
    }
}

/// A step that waits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitText {
    wait: Length<WAIT_MAX_S>,
}

/// A step that submits requests; times count from then.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubmitText {
    #[serde(deserialize_with = "one_or_many")]
    submit: Vec<Asked>,
    #[serde(deserialize_with = "one_or_many")]
    through: Vec<Site>,
    hosts: Count<1, HOSTS_MAX>,
    duration: Length<REACH_MAX_S>,
    earliest: Option<Length<REACH_MAX_S>>,
    latest: Option<Length<REACH_MAX_S>>,
    #[serde(default)]
    per_host: AmountTexts,
    #[serde(default)]
    total: AmountTexts,
    #[serde(default)]
    move_on_loss: bool,
}

/// A step that expects something.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectText {
    expect: What,
    within: Option<Length<WAIT_MAX_S>>,
    #[serde(default, deserialize_with = "one_or_many")]
    request: Vec<Asked>,
    count: Option<usize>,
    hosts: Option<usize>,
    #[serde(default, deserialize_with = "one_or_many")]
    at: Vec<Site>,
    #[serde(default, deserialize_with = "one_or_many")]
    sites: Vec<Site>,
}

impl SubmitText {
    fn request(&self) -> Result<Request, String> {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let earliest = self.earliest.map(|earliest| earliest.0);
        let latest = self.latest.map_or_else(|| earliest.unwrap_or_default() + WINDOW, |latest| latest.0);
        let document = RequestDocument {
            hosts: u32::try_from(self.hosts.0).unwrap_or(u32::MAX),
            duration: Some(seconds(self.duration.0)),
            earliest: earliest.map(|earliest| Time(seconds(earliest))),
            latest: Some(Time(seconds(latest))),
            per_host: self.per_host.0.clone(),
            total: self.total.0.clone(),
            move_on_loss: self.move_on_loss,
            ..RequestDocument::default()
        };
        Request::try_from(document).map_err(|error| error.to_string())
    }
}

/// The state of the grid when a step comes, as far as the file alone says it.
struct State<'a> {
    source: Source<'a>,
    /// Hosts of each site.
    hosts: Vec<usize>,
    running: BTreeSet<Site>,
    /// The requests, with the site that each is with.
    requests: BTreeMap<String, (Asked, Site)>,
}

impl<'a> State<'a> {
    fn step(&mut self, step: Spanned<DeValue<'a>>) -> Result<Step, Wrong> {
        let (source, place) = (self.source, step.span());
        let wrong = |what: String| source.wrong(place.clone(), what);
        let DeValue::Table(keys) = step.get_ref() else { return Err(wrong("expected tables [[step]]".to_owned())) };
        let verbs: Vec<&str> = VERBS.into_iter().filter(|verb| keys.contains_key(*verb)).collect();
        let [verb] = verbs[..] else {
            let found = match &verbs[..] {
                [] => keys.keys().map(|key| key.get_ref().as_ref()).collect::<Vec<_>>().join(", "),
                several => several.join(" and "),
            };
            return Err(wrong(format!("expected exactly one of {}, got {found}", VERBS.join(", "))));
        };
        let verb = match verb {
            "wait" => Verb::Wait(source.read::<WaitText>(step)?.wait.0),
            "expect" => Verb::Expect(self.expectation(source.read(step)?).map_err(wrong)?),
            "submit" => Verb::Act(Action::Submit(self.submissions(&source.read(step)?).map_err(wrong)?)),
            verb => {
                let named = DeTable::from_iter([(Spanned::new(place.clone(), verb.into()), step)]);
                let mut action = source.read(Spanned::new(place.clone(), DeValue::Table(named)))?;
                self.check(&mut action).map_err(wrong)?;
                Verb::Act(action)
            }
        };
        let line = source.line(place.start);
        Ok(Step { line, text: source.step(line), verb })
    }

    /// Checks an action, and notes what it changes.
    fn check(&mut self, action: &mut Action) -> Result<(), String> {
        match action {
            Action::Start { start } => {
                self.exist(start)?;
                match start.iter().find(|site| !self.running.insert(**site)) {
                    Some(site) => Err(format!("{site} runs already")),
                    None => Ok(()),
                }
            }
            Action::Stop { stop: sites } | Action::Kill { kill: sites } => {
                self.run(sites)?;
                self.running.retain(|site| !sites.contains(site));
                Ok(())
            }
            Action::Shrink { shrink: site, hosts } => {
                self.run(&[*site])?;
                in_range("hosts", *hosts, 1..=self.hosts[site.0].saturating_sub(1))?;
                self.hosts[site.0] = *hosts;
                Ok(())
            }
            Action::Cancel { cancel } => match self.resolve(cancel)? {
                with if self.running.contains(&with) => Ok(()),
                with => Err(format!("the entry point of {cancel}, {with}, does not run")),
            },
            Action::Repair { repair, through } => {
                self.resolve(repair)?;
                self.run(&[*through])?;
                self.requests.insert(repair.name.clone(), (repair.clone(), *through));
                Ok(())
            }
            Action::Cut { cut, .. } => self.exist(cut),
            Action::Heal { heal: false } => Err("heal: expected true".to_owned()),
            Action::Heal { .. } | Action::Submit(_) => Ok(()),
        }
    }

    fn submissions(&mut self, text: &SubmitText) -> Result<Vec<Submission>, String> {
        self.run(&text.through)?;
        let (names, sites) = (&text.submit, &text.through);
        if names.len() != sites.len() {
            return Err(format!("expected as many sites as requests: {} and {}", sites.len(), names.len()));
        }
        let request = text.request()?;
        let mut submissions = Vec::new();
        for (Asked { name, .. }, through) in names.iter().zip(sites) {
            let id = RequestId::new(name).map_err(|error| error.to_string())?;
            let asked = Asked { number: self.requests.len(), name: name.clone() };
            if asked.number >= REQUESTS_MAX {
                return Err(format!("expected at most {REQUESTS_MAX} requests"));
            }
            if self.requests.insert(name.clone(), (asked.clone(), *through)).is_some() {
                return Err(format!("{name}: expected a name that no other request has"));
            }
            submissions.push(Submission { asked, through: *through, request: request.clone().with_id(id) });
        }
        Ok(submissions)
    }

    fn expectation(&self, text: ExpectText) -> Result<Expectation, String> {
        let ExpectText { expect: what, within, request, count, hosts, at, sites } = text;
        let given = [
            ("request", !request.is_empty()),
            ("count", count.is_some()),
            ("hosts", hosts.is_some()),
            ("at", !at.is_empty()),
            ("sites", !sites.is_empty()),
        ];
        let (needed, optional): (&[&str], &[&str]) = match what {
            _ if what.is_outcome() => (&["request"], &["count"]),
            What::Booked => (&["request", "hosts"], &["at"]),
            What::NothingBooked => (&[], &["request", "at"]),
            What::SitesKnown => (&[], &["sites", "at"]),
            _ => (&[], &[]),
        };
        for (key, is_given) in given {
            if needed.contains(&key) && !is_given {
                return Err(format!("this expectation needs the key {key}"));
            }
            if is_given && !needed.contains(&key) && !optional.contains(&key) {
                return Err(format!("this expectation has no key {key}"));
            }
        }
        let mut asked = request;
        asked.iter_mut().try_for_each(|asked| self.resolve(asked).map(|_| ()))?;
        if !what.is_outcome() && asked.len() > 1 {
            return Err("expected one request".to_owned());
        }
        let count = count.unwrap_or(asked.len());
        in_range("count", count, 0..=asked.len())?;
        let or_all = |named: Vec<Site>| if named.is_empty() { self.running.iter().copied().collect() } else { named };
        let (at, sites) = (or_all(at), or_all(sites));
        self.run(&at)?;
        self.run(&sites)?;
        let within = within.map_or(WITHIN, |within| within.0);
        Ok(Expectation { what, within, asked, count, hosts: hosts.unwrap_or_default(), at, sites })
    }

    /// Completes the name of a request that was submitted before; the site that it is with.
    fn resolve(&self, asked: &mut Asked) -> Result<Site, String> {
        let missing = || format!("{asked}: expected a request that was submitted before");
        let (known, with) = self.requests.get(&asked.name).ok_or_else(missing)?;
        asked.number = known.number;
        Ok(*with)
    }

    fn exist(&self, sites: &[Site]) -> Result<(), String> {
        let last = Site(self.hosts.len() - 1);
        match sites.iter().find(|site| **site > last) {
            Some(site) => Err(format!("expected sites, which are called a to {last}, got {site}")),
            None if sites.is_empty() => Err("expected at least one site".to_owned()),
            None => Ok(()),
        }
    }

    fn run(&self, sites: &[Site]) -> Result<(), String> {
        self.exist(sites)?;
        let idle = sites.iter().find(|site| !self.running.contains(site));
        idle.map_or(Ok(()), |site| Err(format!("{site} does not run then")))
    }
}

fn in_range(key: &str, number: usize, range: RangeInclusive<usize>) -> Result<(), String> {
    let (min, max) = (range.start(), range.end());
    if range.contains(&number) { Ok(()) } else { Err(format!("{key}: expected {min} to {max}, got {number}")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &str = "[grid]\nsites = 3\nhosts_per_site = 2\n[[step]]\nstart = [\"a\", \"b\"]\n";

    fn wrong(steps: &str) -> String {
        read(&format!("{HEAD}{steps}"), None).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_step_by_step() {
        let text = format!(
            "{HEAD}[[step]]\nsubmit = [\"x\", \"y\"]\nthrough = [\"a\", \"b\"]\nhosts = 2\nduration = \"1h\"\n\
             earliest = \"2h\"\ntotal = {{ cpu = \"2.5\", memory = \"4GiB\" }}\n\n[[step]]\nexpect = \"reserved\"\n\
             request = [\"x\", \"y\"]\ncount = 1\nwithin = \"5s\"\n[[step]]\ncut = \"a\"\none_way = true\n"
        );
        let file = read(&text, Some(7)).unwrap();
        assert_eq!((file.grid.sites, file.grid.hosts_per_site, file.grid.seed), (3, 2, 7));
        assert_eq!(file.steps.iter().map(|step| step.line).collect::<Vec<_>>(), [4, 6, 14, 19]);
        assert_eq!(file.steps[2].text, r#"expect = "reserved", request = ["x", "y"], count = 1, within = "5s""#);
        let Verb::Act(Action::Submit(all)) = &file.steps[1].verb else { panic!("{:?}", file.steps[1]) };
        assert_eq!(all[0].request.window().earliest, Some(Time(7_200)));
        assert_eq!(all[0].request.window().latest, Some(Time(10_800)));
        assert_eq!(file.starting_order(), [Site(0), Site(1)]);
        assert!(file.has_cuts());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_line_and_key() {
        let submit = "[[step]]\nsubmit = \"x\"\nthrough = \"a\"\nhosts = 1\nduration = \"1h\"\n";
        for (steps, expected) in [
            (
                "[[step]]\nexplode = \"a\"\n",
                "6: expected exactly one of start, stop, kill, shrink, submit, cancel, repair, cut, heal, wait, expect, got \
                 explode",
            ),
            ("[[step]]\nheal = true\nkill = \"a\"\n", "6: expected exactly one of start"),
            ("[[step]]\nkill = \"c\"\n", "6: c does not run then"),
            ("[[step]]\nkill = \"d\"\n", "6: expected sites, which are called a to c, got d"),
            ("[[step]]\nstart = [\"c\", \"a\"]\n", "6: a runs already"),
            ("[[step]]\nkill = []\n", "6: expected at least one site"),
            ("[[step]]\nkill = 5\n", "7: expected a name or a list of names; sites are called a to z, in `kill = 5`"),
            ("[[step]]\nwait = 5\n", "7: invalid type: integer `5`, expected a string, in `wait = 5`"),
            ("[[step]]\nwait = \"5\"\n", "7: expected a duration with its unit"),
            ("[[step]]\nwait = \"601s\"\n", "7: expected a duration from 1ms to 600s"),
            ("[[step]]\nshrink = \"a\"\nhosts = 2\n", "6: hosts: expected 1 to 1, got 2"),
            ("[[step]]\nheal = false\n", "6: heal: expected true"),
            ("[[step]]\nheal = true\nnow = 1\n", "8: unexpected keys in table: now, available keys: heal"),
            (
                "[[step]]\nexpect = \"reserved\"\nrequest = \"x\"\n",
                "6: x: expected a request that was submitted before",
            ),
            ("[[step]]\nexpect = \"reserved\"\nat = \"a\"\n", "6: this expectation needs the key request"),
            ("[[step]]\nexpect = \"no_violation\"\nhosts = 1\n", "6: this expectation has no key hosts"),
            ("[[step]]\nexpect = \"happy\"\n", "7: unknown variant `happy`, expected one of `reserved`,"),
            ("[[step]]\nsubmit = \"x\"\nthrough = \"a\"\n", "6: missing field `hosts`"),
            (
                &format!("{submit}[[step]]\nkill = \"a\"\n[[step]]\ncancel = \"x\"\n"),
                "13: the entry point of x, a, does not run",
            ),
            (&format!("{submit}{submit}"), "11: x: expected a name that no other request has"),
            (&format!("{submit}total = {{ cpu = \"4x\" }}\n"), "11: cpu: "),
            (&format!("{submit}total = {{ memory = 4 }}\n"), "11: invalid type: integer `4`, expected a string"),
            (&format!("{submit}within = \"5s\"\n"), "11: unknown field `within`, expected one of `submit`, `through`"),
            ("[[step]\n", "6: "),
            ("[more]\n", "6: unknown field `more`, expected `grid`"),
        ] {
            let refused = wrong(steps);
            assert!(refused.starts_with(expected), "{steps}: {refused}");
        }
        let refused = |text: &str| read(&format!("step = []\n{text}"), None).unwrap_err().to_string();
        assert_eq!(refused(""), "1: missing field `grid`, in `step = []`");
        assert_eq!(refused("[grid]\nsites = 27\n"), "3: expected a whole number from 1 to 26, got 27, in `sites = 27`");
        assert!(refused("[grid]\nsites = 2\nmemory = \"4\"\n").starts_with("4: memory: "));
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_or_refused(
            steps in prop::collection::vec((0..VERBS.len(), 0..14_usize, 0..14_usize), 0..6),
            cut in 0..400_usize,
        ) {
            let words = ["\"a\"", "\"b\"", "\"c\"", "\"z\"", "[\"a\", \"b\"]", "[]", "true", "-1", "0", "99999999999999999999",
                "\"1h\"", "\"reserved\"", "\"sites_known\"", "{ cpu = \"x\" }"];
            let mut text = HEAD.to_owned();
            for (verb, value, more) in steps {
                let rest = "through = \"a\"\nhosts = 1\nduration = \"1h\"\n";
                let rest = if VERBS[verb] == "submit" { rest } else { "" };
                text += &format!("[[step]]\n{} = {}\n{rest}within = {}\n", VERBS[verb], words[value], words[more]);
            }
            let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= text.len().saturating_sub(cut));
            for text in [&text[..], &text[..end.unwrap_or(text.len())]] {
                match read(text, None) {
                    Ok(file) => prop_assert!(file.steps.len() <= 7 && file.grid.sites == 3),
                    Err(wrong) => prop_assert!(wrong.line >= 1 && wrong.line <= text.lines().count() + 1, "{wrong}"),
                }
            }
        }
    }
}
