//! Reads a scenario file and checks that it makes sense.
//!
//! Invariant: nothing is guessed. Unknown keys and verbs, sites that do not run when they are needed and requests that
//! nobody has submitted are refused with their line, before anything is played.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use broker::{
    amount::parse_amount,
    ids::RequestId,
    request::{Request, RequestDocument},
    resources::{Amounts, Attributes, ResourceName},
    time::Time,
};
use toml::de::{DeTable, DeValue};

use super::{
    step::{Action, Asked, Expectation, GridSettings, Outcome, SITES_MAX, ScenarioFile, Site, Step, Submission, Verb},
    table::{Entry, Table, Wrong, line_of},
};

/// Most steps.
const STEPS_MAX: usize = 1_000;
/// Most requests.
const REQUESTS_MAX: usize = 200;
/// Longest wait, and longest time for anything to come true.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Longest reservation, and farthest start.
const REACH_MAX: Duration = Duration::from_secs(24 * 3600);
/// How soon something has to come true when not given.
const WITHIN: Duration = Duration::from_secs(30);
/// How far after the earliest start the latest one is when not given.
const WINDOW: Duration = Duration::from_secs(3600);
/// Accepted numbers of hosts of a site, and of a request.
const HOSTS: RangeInclusive<u64> = 1..=50;
/// Accepted numbers of cores of a host.
const CORES: RangeInclusive<u64> = 1..=1024;

/// What a step can be; each is a key.
const VERBS: [&str; 11] =
    ["start", "stop", "kill", "shrink", "submit", "cancel", "repair", "cut", "heal", "wait", "expect"];

/// Reads a scenario. `seed` replaces the file's.
///
/// # Errors
/// [`Wrong`] with the line.
pub fn read(text: &str, seed: Option<u64>) -> Result<ScenarioFile, Wrong> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        Wrong::at(line, "the file", "TOML", error.message().replace('\n', ", "))
    })?;
    let mut file = Table::new(text, "the file", 0, table.get_ref());
    let written = file.need("grid", "a table [grid]")?;
    let DeValue::Table(keys) = written.value() else { return Err(written.wrong("a table [grid]")) };
    let grid = grid(Table::new(text, "grid", written.start(), keys), seed)?;
    let mut state = State { sites: grid.sites, hosts: vec![grid.hosts_per_site; grid.sites], ..State::default() };
    let steps = file.need("step", "tables [[step]]")?;
    let DeValue::Array(list) = steps.value() else { return Err(steps.wrong("tables [[step]]")) };
    if list.len() > STEPS_MAX {
        return Err(Wrong::at(steps.line, "step", format!("at most {STEPS_MAX} steps"), list.len().to_string()));
    }
    let mut read = Vec::new();
    for one in list.iter() {
        let DeValue::Table(keys) = one.get_ref() else { return Err(steps.wrong("tables [[step]]")) };
        read.push(state.step(Table::new(text, "step", one.span().start, keys))?);
    }
    file.end()?;
    Ok(ScenarioFile { grid, steps: read })
}

fn grid(mut table: Table<'_>, seed: Option<u64>) -> Result<GridSettings, Wrong> {
    let sites = table.need("sites", "the number of sites")?.number(&(1..=SITES_MAX))?;
    let hosts = table.get("hosts_per_site").map_or(Ok(1), |entry| entry.number(&HOSTS))?;
    let cores = table.get("cpu").map_or(Ok(4), |entry| entry.number(&CORES))?;
    let memory = table.get("memory");
    let memory_text = memory.as_ref().map_or(Ok("8GiB"), Entry::text)?;
    let of_file = table.get("seed").map_or(Ok(1), |entry| entry.number(&(0..=u64::MAX)))?;
    let mut duration = |key, default_s| {
        let entry = table.get(key);
        entry.map_or(Ok(Duration::from_secs(default_s)), |entry| entry.duration(WAIT_MAX))
    };
    let (check, lost_after) = (duration("check", 3)?, duration("lost_after", 1)?);
    let mut capacity = Amounts::new();
    for (name, text) in [("cpu", cores.to_string().as_str()), ("memory", memory_text)] {
        let wrong =
            |why: String| Wrong::at(memory.as_ref().map_or(table.line(), |entry| entry.line), name, "an amount", why);
        let resource = ResourceName::new(name).map_err(|error| wrong(error.to_string()))?;
        let amount = parse_amount(&resource, text).map_err(|error| wrong(error.to_string()))?;
        capacity.insert(resource, amount);
    }
    table.end()?;
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (sites, hosts_per_site) = (count(sites), count(hosts));
    Ok(GridSettings { sites, hosts_per_site, capacity, seed: seed.unwrap_or(of_file), check, lost_after })
}

/// How things stand when a step comes, as far as the file alone tells it.
#[derive(Default)]
struct State {
    sites: usize,
    /// Hosts of each.
    hosts: Vec<usize>,
    running: BTreeSet<Site>,
    /// The requests, with the site that each is with.
    requests: BTreeMap<String, (Asked, Site)>,
}

impl State {
    fn step(&mut self, mut table: Table<'_>) -> Result<Step, Wrong> {
        let line = table.line();
        let [verb] = table.present(&VERBS)[..] else {
            let found = match &table.present(&VERBS)[..] {
                [] => table.names(),
                several => several.join(" and "),
            };
            return Err(Wrong::at(line, "step", format!("exactly one of {}", VERBS.join(", ")), found));
        };
        let verb = match verb {
            "wait" => Verb::Wait(table.need("wait", "a duration")?.duration(WAIT_MAX)?),
            "expect" => {
                let what = self.expectation(&mut table)?;
                let within = table.get("within").map_or(Ok(WITHIN), |entry| entry.duration(WAIT_MAX))?;
                Verb::Expect { what, within }
            }
            action => Verb::Act(self.action(action, &mut table)?),
        };
        table.end()?;
        Ok(Step { line, verb })
    }

    fn action(&mut self, verb: &'static str, table: &mut Table<'_>) -> Result<Action, Wrong> {
        Ok(match verb {
            "start" => {
                let written = table.need(verb, "sites")?;
                let sites = self.sites(&written)?;
                if let Some(site) = sites.iter().find(|site| !self.running.insert(**site)) {
                    return Err(written.wrong(format!("sites that do not run, unlike {site}")));
                }
                Action::Start(sites)
            }
            "stop" | "kill" => {
                let sites = self.running_sites(&table.need(verb, "sites")?)?;
                self.running.retain(|site| !sites.contains(site));
                if verb == "stop" { Action::Stop(sites) } else { Action::Kill(sites) }
            }
            "shrink" => {
                let site = self.one_running(&table.need(verb, "a site")?)?;
                let fewest = table.need("hosts", "how many hosts are left")?;
                let most = self.hosts[site.0].saturating_sub(1) as u64;
                let hosts = usize::try_from(fewest.number(&(1..=most))?).unwrap_or(usize::MAX);
                self.hosts[site.0] = hosts;
                Action::Shrink { site, hosts }
            }
            "submit" => Action::Submit(self.submissions(table)?),
            "cancel" => {
                let written = table.need(verb, "a request")?;
                let (asked, with) = self.request(&written, written.text()?)?;
                if !self.running.contains(&with) {
                    return Err(written.wrong(format!("a request whose entry point runs, which {with} does not")));
                }
                Action::Cancel(asked)
            }
            "repair" => {
                let written = table.need(verb, "a request")?;
                let (asked, _) = self.request(&written, written.text()?)?;
                let through = self.one_running(&table.need("through", "the site to go to")?)?;
                self.requests.insert(asked.name.clone(), (asked.clone(), through));
                Action::Repair { asked, through }
            }
            "cut" => {
                let part = self.sites(&table.need(verb, "sites")?)?;
                let one_way = table.get("one_way").map(|entry| entry.yes()).transpose()?.is_some();
                Action::Cut { part, one_way }
            }
            _ => {
                table.need(verb, "true")?.yes()?;
                Action::Heal
            }
        })
    }

    fn submissions(&mut self, table: &mut Table<'_>) -> Result<Vec<Submission>, Wrong> {
        let written = table.need("submit", "a name")?;
        let entry_points = table.need("through", "the site that is asked")?;
        let through = self.running_sites(&entry_points)?;
        let names = written.texts()?;
        if names.len() != through.len() {
            return Err(entry_points.wrong(format!("as many sites as requests, {}", names.len())));
        }
        let request = request(table)?;
        let mut submissions = Vec::new();
        for (name, through) in names.into_iter().zip(through) {
            let id = RequestId::new(name).map_err(|error| written.wrong(error.to_string()))?;
            let asked = Asked { number: self.requests.len(), name: name.to_owned() };
            if asked.number >= REQUESTS_MAX {
                return Err(written.wrong(format!("at most {REQUESTS_MAX} requests")));
            }
            if self.requests.insert(name.to_owned(), (asked.clone(), through)).is_some() {
                return Err(written.wrong("a name that no other request has"));
            }
            submissions.push(Submission { asked, through, request: request.clone().with_id(id) });
        }
        Ok(submissions)
    }

    fn expectation(&self, table: &mut Table<'_>) -> Result<Expectation, Wrong> {
        let written = table.need("expect", "what is expected")?;
        let word = written.text()?;
        if let Some(outcome) = Outcome::ALL.into_iter().find(|outcome| outcome.name() == word) {
            let names = table.need("request", "the request or requests meant")?;
            let asked = names.texts()?.into_iter().map(|name| self.request(&names, name).map(|(asked, _)| asked));
            let asked = asked.collect::<Result<Vec<_>, _>>()?;
            let all = asked.len() as u64;
            let count = table.get("count").map_or(Ok(all), |entry| entry.number(&(0..=all)))?;
            return Ok(Expectation::Outcome { asked, outcome, count: usize::try_from(count).unwrap_or(usize::MAX) });
        }
        let all: Vec<Site> = self.running.iter().copied().collect();
        let sites =
            |table: &mut Table<'_>, key| table.get(key).map_or(Ok(all.clone()), |entry| self.running_sites(&entry));
        let named = |table: &mut Table<'_>| {
            let entry = table.get("request");
            entry.map(|entry| self.request(&entry, entry.text()?).map(|(asked, _)| asked)).transpose()
        };
        Ok(match word {
            "booked" => {
                let missing = || written.wrong("a request, under the key request, for booked");
                let asked = named(table)?.ok_or_else(missing)?;
                let hosts = table.need("hosts", "on how many hosts")?.number(&(0..=*HOSTS.end()))?;
                let hosts = usize::try_from(hosts).unwrap_or(usize::MAX);
                Expectation::Booked { asked, hosts, at: sites(table, "at")? }
            }
            "nothing_booked" => Expectation::NothingBooked { asked: named(table)?, at: sites(table, "at")? },
            "sites_known" => Expectation::SitesKnown { at: sites(table, "at")?, sites: sites(table, "sites")? },
            "no_violation" => Expectation::NoViolation,
            _ => {
                let outcomes = Outcome::ALL.map(Outcome::name).join(", ");
                let expected = format!("one of {outcomes}, booked, nothing_booked, sites_known, no_violation");
                return Err(written.wrong(expected));
            }
        })
    }

    fn request(&self, entry: &Entry<'_>, name: &str) -> Result<(Asked, Site), Wrong> {
        self.requests.get(name).cloned().ok_or_else(|| entry.wrong("a request that was submitted before"))
    }

    fn sites(&self, entry: &Entry<'_>) -> Result<Vec<Site>, Wrong> {
        let last = Site(self.sites.saturating_sub(1));
        let all = entry.texts()?.into_iter().map(|name| {
            let site = Site::named(name).filter(|site| *site <= last);
            site.ok_or_else(|| entry.wrong(format!("sites, which are called a to {last}")))
        });
        all.collect()
    }

    fn running_sites(&self, entry: &Entry<'_>) -> Result<Vec<Site>, Wrong> {
        let sites = self.sites(entry)?;
        match sites.iter().find(|site| !self.running.contains(site)) {
            Some(site) => Err(entry.wrong(format!("sites that run, unlike {site}"))),
            None => Ok(sites),
        }
    }

    fn one_running(&self, entry: &Entry<'_>) -> Result<Site, Wrong> {
        let [site] = self.running_sites(entry)?[..] else { return Err(entry.wrong("one site")) };
        Ok(site)
    }
}

/// What is asked; its times count from the submission.
fn request(table: &mut Table<'_>) -> Result<Request, Wrong> {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    let hosts = table.need("hosts", "the number of hosts")?.number(&HOSTS)?;
    let duration = table.need("duration", "how long")?.duration(REACH_MAX)?;
    let mut offset = |key| table.get(key).map(|entry| entry.duration(REACH_MAX)).transpose();
    let (earliest, latest) = (offset("earliest")?, offset("latest")?);
    let latest = latest.unwrap_or_else(|| earliest.unwrap_or_default() + WINDOW);
    let mut amounts = |key| table.get(key).map_or(Ok(Amounts::new()), |entry| entry.amounts());
    let (per_host, total) = (amounts("per_host")?, amounts("total")?);
    let move_on_loss = table.get("move_on_loss").map(|entry| entry.yes()).transpose()?.is_some();
    let document = RequestDocument {
        id: None,
        hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
        duration: seconds(duration),
        earliest: earliest.map(|earliest| Time(seconds(earliest))),
        latest: Some(Time(seconds(latest))),
        per_host,
        total,
        attributes: Attributes::new(),
        candidates: None,
        effort: None,
        move_on_loss,
    };
    Request::try_from(document).map_err(|error| Wrong::at(table.line(), "submit", "a request", error.to_string()))
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
        let words: Vec<String> = file.steps.iter().map(|step| step.verb.to_string()).collect();
        let expected =
            ["start a, b", "submit x through a, y through b", "expect x, y: 1 of them reserved", "cut what a send"];
        assert_eq!(words, expected);
        let Verb::Act(Action::Submit(all)) = &file.steps[1].verb else { panic!("{:?}", file.steps[1]) };
        assert_eq!(all[0].request.asked_starts(), (Some(Time(7_200)), Some(Time(10_800))));
        assert_eq!(file.starting_order(), [Site(0), Site(1)]);
        assert!(file.has_cuts());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_line_and_key() {
        let submit = "[[step]]\nsubmit = \"x\"\nthrough = \"a\"\nhosts = 1\nduration = \"1h\"\n";
        for (steps, expected) in [
            (
                "[[step]]\nexplode = \"a\"\n",
                "6: step: expected exactly one of start, stop, kill, shrink, submit, cancel, repair, cut, heal, wait, \
                 expect, got explode",
            ),
            ("[[step]]\nheal = true\nkill = \"a\"\n", "6: step: expected exactly one of start"),
            ("[[step]]\nkill = \"c\"\n", "7: kill: expected sites that run, unlike c, got \"c\""),
            ("[[step]]\nkill = \"d\"\n", "7: kill: expected sites, which are called a to c"),
            ("[[step]]\nstart = [\"c\", \"a\"]\n", "7: start: expected sites that do not run, unlike a"),
            ("[[step]]\nkill = []\n", "7: kill: expected a text or a list of texts"),
            ("[[step]]\nwait = 5\n", "7: wait: expected a text such as"),
            ("[[step]]\nwait = \"601s\"\n", "7: wait: expected a text such as"),
            ("[[step]]\nshrink = \"a\"\nhosts = 2\n", "8: hosts: expected a whole number from 1 to 1, got 2"),
            ("[[step]]\nheal = false\n", "7: heal: expected true, got false"),
            ("[[step]]\nheal = true\nnow = 1\n", "8: step: expected one of heal, got \"now\""),
            ("[[step]]\nexpect = \"reserved\"\nrequest = \"x\"\n", "8: request: expected a request that was submitted"),
            ("[[step]]\nexpect = \"happy\"\n", "7: expect: expected one of reserved,"),
            ("[[step]]\nsubmit = \"x\"\nthrough = \"a\"\n", "6: hosts: expected the number of hosts, got nothing"),
            (
                &format!("{submit}[[step]]\nkill = \"a\"\n[[step]]\ncancel = \"x\"\n"),
                "14: cancel: expected a request whose entry point runs",
            ),
            (&format!("{submit}{submit}"), "12: submit: expected a name that no other request has"),
            (&format!("{submit}total = {{ cpu = \"4x\" }}\n"), "11: total.cpu: expected an amount"),
            (&format!("{submit}total = {{ memory = 4 }}\n"), "11: total.memory: expected an amount"),
            (&format!("{submit}within = \"5s\"\n"), "11: step: expected one of submit, through"),
            ("[[step]\n", "6: the file: expected TOML"),
            ("[more]\n", "6: the file: expected one of grid, step, got \"more\""),
        ] {
            let told = wrong(steps);
            assert!(told.starts_with(expected), "{steps}: {told}");
        }
        assert_eq!(read("", None).unwrap_err().to_string(), "1: grid: expected a table [grid], got nothing");
        let sites = read("[grid]\nsites = 27\n", None).unwrap_err().to_string();
        assert_eq!(sites, "2: sites: expected a whole number from 1 to 26, got 27");
        let memory = read("[grid]\nsites = 2\nmemory = \"4\"\n", None).unwrap_err().to_string();
        assert!(memory.starts_with("3: memory: expected an amount"), "{memory}");
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
