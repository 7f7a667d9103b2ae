//! An oracle that reads all ledgers and all rules: `plan`, `slots` and `submit` give the earliest start that it finds, or say no with a
//! reason that is true, on random grids with random rules and load.
//!
//! `KOLO_ORACLE_SEED` repeats a run; `cargo test -p end-to-end --test grid -- --ignored oracle` asks 500 requests.

#[path = "oracle/books.rs"]
mod books;
#[path = "oracle/rules.rs"]
mod rules;

use std::{
    env, fs,
    time::{Duration, Instant},
};

use end_to_end::{Node, seconds_from_now, wait_until, write};
use serde_json::{Value, json};

use self::{
    books::{Asked, Books},
    rules::{Asker, Rules},
};

const HOUR: i64 = 3_600;
/// What a node may take to hear of a change.
const HEARD_IN: Duration = Duration::from_secs(10);
const GRID_MAX: usize = 8;

/// Numbers that look random.
pub struct Drawn(u64);

impl Drawn {
    fn next(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn index(&mut self, count: usize) -> usize {
        self.next(count as u64) as usize
    }

    fn between(&mut self, least: i64, most: i64) -> i64 {
        least + self.next((most - least + 1).unsigned_abs()).cast_signed()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next(100) < percent
    }

    fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }
}

fn now() -> i64 {
    seconds_from_now(0).cast_signed()
}

/// A node with the rules of its owner.
struct Site {
    node: Node,
    id: String,
    /// The configuration without rules.
    config: String,
    /// Of its operator as a user.
    key: String,
    rules: Rules,
}

/// Hosts as TOML tables.
fn hosts(site: usize, count: i64, drawn: &mut Drawn) -> String {
    let host = |number: i64| {
        let (cpu, memory, arch) = (drawn.between(2, 8), drawn.between(4, 16), *drawn.one_of(&["x86_64", "aarch64"]));
        format!(
            "[[hosts]]\nid = \"s{site}-{number}\"\nresources = {{ cpu = \"{cpu}\", memory = \"{memory}GiB\" }}\n\
             attributes = {{ arch = \"{arch}\" }}\n"
        )
    };
    (1..=count).map(host).collect()
}

fn asked_as_json(asked: &Asked) -> Value {
    let amounts = |amounts: [u64; 2]| {
        let named = ["cpu", "memory"].into_iter().zip(amounts).filter(|(_, amount)| *amount > 0);
        named.map(|(name, amount)| (name.to_owned(), json!(amount))).collect::<serde_json::Map<_, _>>()
    };
    let arch = asked.arch.map(|arch| json!({"arch": arch})).unwrap_or_else(|| json!({}));
    json!({"hosts": asked.seats, "duration": asked.length, "earliest": asked.earliest, "latest": asked.latest,
        "per_host": amounts(asked.per_host), "total": amounts(asked.total), "attributes": arch,
        "exclusive": asked.exclusive})
}

/// A grid, and what is drawn for it.
struct Grid {
    sites: Vec<Site>,
    drawn: Drawn,
    hosts: usize,
    changed: Instant,
    /// How long it took at most until all was heard of a change.
    slowest: Duration,
}

/// What three ways of asking answered.
#[derive(Debug)]
struct Answers {
    plan: Value,
    slots: Value,
}

impl Answers {
    fn starts(&self) -> [Option<i64>; 2] {
        let plan = (self.plan["outcome"] == "allocated").then(|| self.plan["start"].as_i64().unwrap());
        let slots = (self.slots["is_possible"] == true).then(|| self.slots["start"].as_i64().unwrap());
        [plan, slots]
    }

    fn are(&self, expected: Option<i64>) -> bool {
        let are_proven = self.plan["start_proven"] == true && self.slots["is_proven"] == true;
        self.starts() == [expected; 2] && (expected.is_none() || are_proven)
    }
}

impl Grid {
    fn drawn(seed: u64) -> Grid {
        let mut drawn = Drawn(seed);
        drawn.next(1);
        let count = 1 + drawn.index(GRID_MAX);
        let mut sites: Vec<Site> = Vec::new();
        let mut known = 0;
        for number in 0..count {
            let hosts_here = drawn.between(1, if count < 3 { 6 } else { 3 });
            known += hosts_here as usize;
            let text = hosts(number, hosts_here, &mut drawn);
            let rules = Rules::default();
            let node = Node::ruled(
                &format!("s{number}"),
                &format!("{text}{}", rules.written()),
                sites.first().map(|first| &first.node),
            );
            let config = fs::read_to_string(node.config()).unwrap().split("\n[policy]\n").next().unwrap().to_owned();
            let id = node.get("/v1/status")["site"].as_str().unwrap().to_owned();
            sites.push(Site { node, id, config, key: String::new(), rules });
        }
        sites.iter().for_each(|site| site.node.wait_until_it_knows(known));
        let mut grid = Grid { sites, drawn, hosts: known, changed: Instant::now(), slowest: Duration::ZERO };
        (0..count).for_each(|at| grid.learn_key(at));
        let keys = grid.keys();
        for at in 0..count {
            let rules = Rules::drawn(&mut grid.drawn, &keys);
            grid.put_into_force(at, rules);
        }
        grid
    }

    fn keys(&self) -> Vec<String> {
        self.sites.iter().map(|site| site.key.clone()).collect()
    }

    /// The key with which a node signs for its operator: what is booked for its requests has it.
    fn learn_key(&mut self, at: usize) {
        let begin = now() + HOUR;
        let asked =
            json!({"hosts": 1, "duration": 60, "earliest": begin, "latest": begin + HOUR, "per_host": {"cpu": 1}});
        let view = self.submit(at, &asked);
        assert!(view["reservation"].is_object(), "{view}");
        let bookings = self.sites.iter().flat_map(|site| site.node.bookings()).collect::<Vec<_>>();
        let booked = bookings.iter().find(|booking| booking["request"] == view["id"]).unwrap();
        self.sites[at].key = booked["user_key"].as_str().unwrap().to_owned();
        self.give_back(at, &view);
    }

    fn put_into_force(&mut self, at: usize, rules: Rules) {
        let site = &mut self.sites[at];
        fs::write(site.node.config(), format!("{}{}", site.config, rules.written())).unwrap();
        let (status, said) = site.node.post("/v1/reload", "null");
        assert_eq!(status, 200, "{said}\n{}", rules.written());
        let (status, said) = site.node.post("/v1/drain", &json!({"is_draining": rules.drains}).to_string());
        assert_eq!(status, 200, "{said}");
        site.rules = rules;
        self.changed = Instant::now();
    }

    fn books(&self) -> Vec<Books> {
        let read = |site: &Site| Books::read(&site.node.get("/v1/ledger"), &site.key, &site.rules);
        self.sites.iter().map(read).collect()
    }

    fn asker(&self, at: usize) -> Asker<'_> {
        Asker { key: &self.sites[at].key, entry_point: &self.sites[at].id }
    }

    /// Hands a request in and waits until it is settled.
    fn submit(&self, at: usize, asked: &Value) -> Value {
        let node = &self.sites[at].node;
        let (status, view) = node.post("/v1/requests", &asked.to_string());
        assert_eq!(status, 201, "{view}");
        node.get(&format!("/v1/requests/{}?until=settled&wait_ms=60000", view["id"].as_str().unwrap()))
    }

    fn give_back(&mut self, at: usize, view: &Value) {
        let said = self.sites[at].node.delete(&format!("/v1/requests/{}", view["id"].as_str().unwrap()));
        let is_over = |view: &Value| view["state"] == "cancelled";
        let path = format!("/v1/requests/{}", view["id"].as_str().unwrap());
        let _ = wait_until("the seats to be given back", || self.sites[at].node.get(&path), is_over);
        assert!(said["id"] == view["id"], "{said}");
        self.changed = Instant::now();
    }

    /// Own work, or another owner's mind.
    fn change_something(&mut self) {
        if self.drawn.chance(40) {
            let at = self.drawn.index(self.sites.len());
            let ledger = self.sites[at].node.get("/v1/ledger");
            let hosts = ledger["hosts"].as_array().unwrap();
            let host = self.drawn.one_of(hosts);
            let cores = host["resources"]["cpu"].as_u64().unwrap();
            let (start, cpu) = (now() + self.drawn.between(60, 40 * HOUR), self.drawn.next(cores) + 1);
            let entry = json!({"host": host["id"], "start": start, "end": start + self.drawn.between(600, 12 * HOUR),
                "amounts": {"cpu": cpu, "memory": 1 + self.drawn.next(4_000)}});
            // It may be promised already.
            let (status, said) = self.sites[at].node.post("/v1/local", &entry.to_string());
            assert!(status == 201 || status == 409, "{said}");
            self.changed = Instant::now();
        }
        if self.drawn.chance(15) {
            let (at, keys) = (self.drawn.index(self.sites.len()), self.keys());
            let rules = Rules::drawn(&mut self.drawn, &keys);
            self.put_into_force(at, rules);
        }
    }

    fn draw_request(&mut self) -> Asked {
        let drawn = &mut self.drawn;
        let seats = 1 + drawn.index(self.hosts.min(4));
        let earliest = now() + drawn.between(300, 48 * HOUR);
        let per_host = [100 * drawn.between(5, 40).unsigned_abs(), 512 * drawn.next(12)];
        // With a share of a site amounts could be spread over its seats in many ways.
        let has_shares = self.sites.iter().any(|site| site.rules.has_share());
        let total = if drawn.chance(30) && !has_shares {
            per_host.map(|each| each * seats as u64 * drawn.between(50, 250).unsigned_abs() / 100)
        } else {
            [0, 0]
        };
        Asked {
            seats,
            length: 60 * drawn.between(10, 480),
            earliest,
            latest: earliest + drawn.between(0, 48 * HOUR),
            per_host: if total[0] > 0 && drawn.chance(30) { [0, 0] } else { per_host },
            total,
            arch: drawn.chance(25).then(|| *drawn.one_of(&["x86_64", "aarch64"])),
            // What a seat counts against a share of a site depends on its host then.
            exclusive: drawn.chance(20) && !has_shares,
        }
    }

    /// Asks until what all nodes have heard is what the ledgers say; what the oracle says then.
    fn agree(&mut self, at: usize, (asked, as_json): (&Asked, &Value), by_hand: bool) -> (Option<i64>, Answers) {
        loop {
            let expected = asked.earliest_start(&self.books(), (self.asker(at), now()));
            let answers = self.answers(at, as_json, by_hand);
            let waited = self.changed.elapsed();
            if answers.are(expected) && asked.earliest_start(&self.books(), (self.asker(at), now())) == expected {
                self.slowest = self.slowest.max(waited);
                return (expected, answers);
            }
            let said = answers.starts();
            assert!(
                waited < HEARD_IN,
                "{said:?} in the place of {expected:?}\n{as_json}\n{answers:?}\n{}",
                self.words(at)
            );
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    fn answers(&self, at: usize, asked: &Value, by_hand: bool) -> Answers {
        let node = &self.sites[at].node;
        if by_hand {
            let directory = tempfile::tempdir().unwrap();
            let file = write(directory.path(), "request.json", &asked.to_string());
            let said = |command: &str| {
                let arguments = [command, "--request", file.to_str().unwrap(), "--output", "json"];
                node.kolo(&arguments).json()
            };
            return Answers { plan: said("plan"), slots: said("slots") };
        }
        let (status, plan) = node.post("/v1/plan", &asked.to_string());
        assert_eq!(status, 200, "{plan}");
        let (status, slots) = node.post("/v1/slots", &json!({"mode": "earliest", "request": asked}).to_string());
        assert_eq!(status, 200, "{slots}");
        Answers { plan, slots }
    }

    /// One request, in all ways; whether it is possible.
    fn ask(&mut self) -> bool {
        self.change_something();
        let (at, by_hand) = (self.drawn.index(self.sites.len()), self.drawn.chance(10));
        let asked = self.draw_request();
        let as_json = asked_as_json(&asked);
        let (expected, answers) = self.agree(at, (&asked, &as_json), by_hand);
        let view = self.submit(at, &as_json);
        let start = view["reservation"]["start"].as_i64();
        let node = &self.sites[at].node;
        let explain = || node.get(&format!("/v1/requests/{}/explain", view["id"].as_str().unwrap()));
        assert_eq!(start, expected, "{as_json}\n{view}\n{}\n{answers:?}\n{}", explain(), self.words(at));
        let attempts = u64::from(expected.is_some());
        assert_eq!(view["attempts"].as_u64(), Some(attempts), "{as_json}\n{view}\n{}\n{}", explain(), self.words(at));
        if expected.is_none() {
            let reasons = [&answers.plan["reason"], &answers.slots["reason"], &view["reason"]];
            reasons.iter().for_each(|reason| self.check_reason(at, &asked, reason));
        } else if self.drawn.chance(50) {
            self.give_back(at, &view);
        } else {
            self.changed = Instant::now();
        }
        expected.is_some()
    }

    /// Whether a reason is true.
    fn check_reason(&self, at: usize, asked: &Asked, reason: &Value) {
        let detail = reason["detail"].as_str().unwrap_or_else(|| panic!("{reason}"));
        let books = self.books();
        let words = || format!("{detail}\n{asked:?}\n{}", self.words(at));
        let ruled: Vec<&str> = self.sites.iter().flat_map(|site| site.rules.names(self.asker(at))).collect();
        for name in rules::NAMES.iter().filter(|name| detail.contains(&format!("`{name}`"))) {
            assert!(ruled.contains(name), "no site has {name}: {}", words());
        }
        let free: Vec<Books> = books.iter().map(Books::without_rules).collect();
        let is_by_rule = asked.earliest_start(&free, (self.asker(at), now())).is_some();
        let names_rule = rules::NAMES.iter().any(|name| detail.contains(&format!("`{name}`")));
        assert!(names_rule || !is_by_rule, "a rule is against it, and none is named: {}", words());
    }

    fn words(&self, at: usize) -> String {
        let site = |site: &Site| {
            let ledger = site.node.get("/v1/ledger");
            format!("{} key {}\n{:?}\n{ledger}", site.id, site.key, site.rules)
        };
        let sites: Vec<String> = self.sites.iter().map(site).collect();
        format!("asked at {at}, {}\n{}", now(), sites.join("\n"))
    }
}

/// Asks so many requests, on a new grid after each `each`.
fn ask(requests: usize, each: usize) {
    let seed = env::var("KOLO_ORACLE_SEED").ok().map_or_else(|| now().unsigned_abs(), |seed| seed.parse().unwrap());
    let (mut asked, mut possible, mut slowest) = (0, 0, Duration::ZERO);
    for number in 0.. {
        println!("KOLO_ORACLE_SEED={seed}: grid {number}, {asked} requests asked");
        let mut grid = Grid::drawn(seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        println!("{} sites, {} hosts", grid.sites.len(), grid.hosts);
        for _ in 0..each.min(requests - asked) {
            possible += usize::from(grid.ask());
            asked += 1;
        }
        slowest = slowest.max(grid.slowest);
        if asked == requests {
            break;
        }
    }
    println!("{asked} requests, {possible} possible; heard after {slowest:?} at the latest");
    assert!(possible * 5 > requests && possible < requests, "{possible} of {requests} possible: nothing was tried");
}

#[test]
fn plan_slots_and_submit_are_as_an_oracle_over_all_ledgers_and_rules_says() {
    ask(60, 15);
}

#[test]
#[ignore = "some minutes: cargo test -p end-to-end --test grid -- --ignored --nocapture the_oracle_at_length"]
fn the_oracle_at_length() {
    ask(500, 25);
}
