//! Commands whose nodes are killed, or silent for half a minute, at moments drawn from a seed.
//!
//! Invariant looked for: each seat has one true result. A command starts once at most, nothing is called a success that is none, what was said
//! arrives whole, and nothing runs past its window. That what became of a command is not known may be said; it is counted.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant, UNIX_EPOCH},
};

use end_to_end::{Node, wait_for};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::run_on_seats::{kolo_run, shared, two_with};

/// Runs that are watched at once; what happens to a node happens to all of them.
const AT_ONCE: usize = 4;
/// In one of so many rounds a node is silent in the place of being killed.
const ROUNDS_PER_CUT: usize = 20;
const CUT: Duration = Duration::from_secs(30);
/// Longer than a run is looked for.
const RUN_MAX: Duration = Duration::from_secs(240);
const LINES: usize = 40;

/// One `kolo run` of two seats, and what it should come to.
struct Watched {
    directory: PathBuf,
    child: Child,
    codes: [i32; 2],
    /// Its command goes on until its window ends.
    is_endless: bool,
}

impl Watched {
    fn start(node: &Node, directory: PathBuf, random: &mut Xoshiro256PlusPlus, is_endless: bool) -> Watched {
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        let codes = [(); 2].map(|()| [0, 0, 3, 7][random.random_range(0..4)]);
        let [first, second] = codes;
        let (at, count) = (directory.display(), if is_endless { 1_000_000 } else { LINES });
        let script = format!(
            "cd {at}; echo $KOLO_REQUEST > request; echo x >> starts.$KOLO_RANK; i=0; \
             while [ $i -lt {count} ]; do echo line $i; : > last.$KOLO_RANK; sleep 0.05; i=$((i + 1)); done; \
             echo x > done.$KOLO_RANK; [ $KOLO_RANK = 1 ] && exit {second}; exit {first}"
        );
        let window = if is_endless { "4s" } else { "60s" };
        let mut command = kolo_run(node, &["-N", "2", "--per-host", "cpu=0.2", "-t", window], &["sh", "-c", &script]);
        let [out, err] = ["out", "err"].map(|name| fs::File::create(directory.join(name)).unwrap());
        let child = command.stdout(out).stderr(err).stdin(Stdio::null()).spawn().unwrap();
        Watched { directory, child, codes, is_endless }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join(name)).unwrap_or_default()
    }

    /// Waits for its end, and looks whether that is true; what it has come to, or what is wrong.
    fn judge(mut self, node: &Node) -> Result<&'static str, String> {
        let begun = Instant::now();
        let code = wait_for_end(&mut self.child, begun)?;
        let starts: Vec<usize> = (0..2).map(|rank| self.read(&format!("starts.{rank}")).lines().count()).collect();
        let wrong = |what: &str| Err(format!("{what}: code {code:?}, starts {starts:?}: {}", self.read("err")));
        if starts.iter().any(|count| *count > 1) {
            return wrong("a seat has run twice");
        }
        if self.is_endless {
            self.check_window(node)?;
        }
        let expected = if self.is_endless { 124 } else { self.codes.into_iter().max().unwrap_or_default() };
        match code {
            // A window may be over before all seats have started.
            Some(124) if self.is_endless => Ok("true"),
            Some(code) if code == expected => {
                if starts != [1, 1] || !(0..2).all(|rank| self.is_whole(rank)) {
                    wrong("an end that is not so")
                } else {
                    Ok("true")
                }
            }
            Some(0) => wrong("a false zero"),
            Some(125) => Ok("unknown"),
            // Nothing was run, and that was said.
            Some(_) if starts == [0, 0] => Ok("not run"),
            _ => wrong("a code that nothing has ended with"),
        }
    }

    fn is_whole(&self, rank: u32) -> bool {
        let (out, head) = (self.read("out"), format!("[{rank}] "));
        let lines = out.lines().filter_map(|line| line.strip_prefix(&head));
        let expected = (0..LINES).map(|number| format!("line {number}"));
        self.directory.join(format!("done.{rank}")).exists() && lines.eq(expected)
    }

    fn check_window(&self, node: &Node) -> Result<(), String> {
        let id = self.read("request");
        if id.is_empty() {
            return Ok(());
        }
        let view = node.get(&format!("/v1/requests/{}", id.trim()));
        let end = view["reservation"]["end"].as_i64().ok_or_else(|| format!("no window: {view}"))?;
        for rank in 0..2 {
            let Ok(found) = fs::metadata(self.directory.join(format!("last.{rank}"))) else { continue };
            let last = found.modified().unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            let past = last - f64::from(i32::try_from(end).unwrap());
            if past > 1.0 {
                return Err(format!("a command ran {past} s past its window"));
            }
        }
        Ok(())
    }
}

fn wait_for_end(child: &mut Child, begun: Instant) -> Result<Option<i32>, String> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status.code());
        }
        if begun.elapsed() > RUN_MAX {
            let _ = child.kill();
            return Err("it hangs".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pause(random: &mut Xoshiro256PlusPlus, ms_max: u64) {
    std::thread::sleep(Duration::from_millis(random.random_range(0..ms_max)));
}

/// So many rounds from this seed; how often runs came to what.
fn rounds(directory: &Path, count: usize, seed: u64) -> BTreeMap<&'static str, usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut first, mut second) = two_with(directory);
    // The user's node comes back where it was, so that the other one and the command line find it.
    let (address, status) = (first.address(), first.get("/v1/status"));
    let listen = status["listen"][0].as_str().unwrap().split("/p2p/").next().unwrap().to_owned();
    first.change("--api", &address);
    first.change("--listen", &listen);
    let mut all = BTreeMap::new();
    for round in 0..count {
        let mut start = |number| {
            let at = directory.join(format!("{round}-{number}"));
            Watched::start(&first, at, &mut random, number == 0)
        };
        let watched: Vec<Watched> = (0..AT_ONCE).map(&mut start).collect();
        pause(&mut random, 4000);
        let victims = match random.random_range(0..5) {
            0 | 1 => [true, false],
            2 | 3 => [false, true],
            _ => [true, true],
        };
        let hit =
            [&mut first, &mut second].into_iter().zip(victims).filter(|(_, is_hit)| *is_hit).map(|(node, _)| node);
        if round % ROUNDS_PER_CUT == 0 {
            let silent: Vec<&mut Node> = hit.collect();
            silent.iter().for_each(|node| node.silence(true));
            std::thread::sleep(CUT);
            silent.iter().for_each(|node| node.silence(false));
        } else {
            let mut dead: Vec<&mut Node> = hit.collect();
            dead.iter_mut().for_each(|node| node.kill());
            pause(&mut random, 1000);
            dead.iter_mut().for_each(|node| node.restart());
        }
        for run in watched {
            let (number, directory) = (run.codes, run.directory.clone());
            let came_to = run.judge(&first).unwrap_or_else(|wrong| {
                panic!("KOLO_SEED={seed}, round {round}, codes {number:?}, {}: {wrong}", directory.display())
            });
            *all.entry(came_to).or_insert(0) += 1;
        }
        wait_for("both nodes to know each other", || {
            let known = [&first, &second].map(|node| node.get("/v1/hosts")["hosts"].as_array().map_or(0, Vec::len));
            if known == [2, 2] { Ok(()) } else { Err(format!("{known:?}")) }
        });
        println!("round {round}: {all:?}");
    }
    all
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn every_seat_has_one_true_result_whatever_is_killed() {
    let directory = shared();
    let came_to = rounds(directory.path(), 5, 1);
    assert!(came_to.get("true").is_some_and(|count| *count >= 10), "most end as they should: {came_to:?}");
}

#[test]
#[ignore = "hours: KOLO_RUNS=1000 KOLO_SEED=1 cargo test -p end-to-end --test grid -- --ignored --nocapture a_thousand_runs"]
fn a_thousand_runs_with_kills() {
    let directory = shared();
    let (runs, seed) = (from_environment("KOLO_RUNS", 1000), from_environment("KOLO_SEED", 1));
    let count = usize::try_from(runs).unwrap().div_ceil(AT_ONCE);
    let came_to = rounds(directory.path(), count, seed);
    println!("{} runs of two seats, seed {seed}: {came_to:?}", count * AT_ONCE);
}
