//! `scripts/side-by-side`, with binaries that report what the test says.
//!
//! Invariant: no node runs here; a fake `kolo-sim` does what the file `behaviour` beside it says, run by run.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use end_to_end::{Ended, run, wait_for, write, write_program};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// Notes the run in `trace` beside the pair, counts it, and does what `behaviour` says.
const KOLO_SIM: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$here") $*" >>"$here/../trace"
echo >>"$here/runs"
run=$(wc -l <"$here/runs")
while [ "$1" != --json ]; do shift; done
report=$2
. "$here/behaviour"
"#;

/// A folder with the pairs `old` and `new`, which behave like this.
fn two_pairs(old: &str, new: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, behaviour) in [("old", old), ("new", new)] {
        let pair = folder.path().join(name);
        fs::create_dir(&pair).unwrap();
        write_program(&pair.join("kolo"), "#!/bin/sh\n");
        write_program(&pair.join("kolo-sim"), KOLO_SIM);
        write(&pair, "behaviour", behaviour);
    }
    folder
}

/// Reports these medians of the latency, a run each.
fn medians(p50: [u32; 3]) -> String {
    let [first, second, third] = p50;
    format!(
        r#"set -- {first} {second} {third}
shift $((run - 1))
cat >"$report" <<END
{{"nodes":5,"conditions":["one, \"two\": {{3}}"],"requests":40,"reserved":38,"latency_ms":{{"p50":$1.0,"p99":150.0}},
"violations":0,"gossip_ms":null,"loads":[{{"requests":10,"reserved":5}},{{"requests":20,"reserved":20}}],"seed":1}}
END
"#
    )
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/side-by-side")
}

fn side_by_side(folder: &TempDir, arguments: &[&str]) -> Ended {
    // What it makes for itself is in the folder as well, so that the test sees what is left of it.
    let mut command = Command::new(script());
    let ended = run(command.args(arguments).current_dir(folder.path()).env("TMPDIR", folder.path()));
    assert!(made_for_itself(folder).is_empty(), "{:?} is left", made_for_itself(folder));
    ended
}

fn made_for_itself(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("kolo-")).collect()
}

/// The cells after the name of a figure.
fn row<'a>(ended: &'a Ended, figure: &str) -> Vec<&'a str> {
    let found = ended.out.lines().find_map(|line| line.strip_prefix(figure).filter(|rest| rest.starts_with(' ')));
    found.unwrap_or_else(|| panic!("no {figure}: {ended:?}")).split_whitespace().collect()
}

#[test]
fn medians_ratios_and_their_range_come_from_runs_in_turn() {
    let folder = two_pairs(&medians([10, 30, 20]), &medians([5, 30, 40]));
    let ended = side_by_side(&folder, &["--pairs", "3", "old", "new", "--", "--nodes", "5"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(row(&ended, "latency_ms.p50"), ["20", "30", "1.50", "0.50", "to", "2.00"]);
    assert_eq!(row(&ended, "latency_ms.p99"), ["150", "150", "1.00", "1.00", "to", "1.00"]);
    assert_eq!(row(&ended, "reserved/requests"), ["0.95", "0.95", "1.00", "1.00", "to", "1.00"]);
    assert_eq!(row(&ended, "loads.1.reserved/requests")[0], "0.5");
    assert_eq!(row(&ended, "loads.2.reserved")[0], "20");
    assert_eq!(row(&ended, "violations"), ["0", "0", "-", "-"]);
    for absent in ["gossip_ms", "seed", "nodes ", "FAILED"] {
        assert!(!ended.out.lines().any(|line| line.starts_with(absent)), "{absent}: {ended:?}");
    }
    let trace = fs::read_to_string(folder.path().join("trace")).unwrap();
    let order: Vec<&str> = trace.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(order, ["old", "new", "new", "old", "old", "new"]);
    for line in trace.lines() {
        let pair = &line[..3];
        assert!(line.starts_with(&format!("{pair} grid --kolo {pair}/kolo --json ")), "{line}");
        assert!(line.ends_with(" --nodes 5"), "{line}");
    }
    let progress: Vec<&str> = ended.err.lines().collect();
    assert_eq!(progress.len(), 6, "{ended:?}");
    assert_eq!(progress[2], "pair 2 of 3, NEW: p50 30.0 ms, p99 150.0 ms, 38 of 40 reserved, 0 violations");
}

#[test]
fn of_an_even_number_of_runs_the_median_is_in_the_middle() {
    let folder = two_pairs(&medians([10, 30, 0]), &medians([5, 30, 0]));
    let ended = side_by_side(&folder, &["--pairs=2", "old", "new", "--"]);
    assert_eq!(row(&ended, "latency_ms.p50"), ["20", "17.5", "0.88", "0.50", "to", "1.00"]);
}

#[test]
fn a_run_that_fails_is_named_and_counts_with_what_it_reported() {
    let fails = "[ $run != 2 ] || { echo 'violation: h1 is granted twice'; exit 1; }\n";
    let folder = two_pairs(&medians([10, 30, 20]), &(medians([5, 30, 40]) + fails));
    let ended = side_by_side(&folder, &["--pairs", "3", "old", "new", "--"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.ends_with("\nFAILED: 1 of 6 runs\nNEW of pair 2 failed: exit code 1\n"), "{ended:?}");
    assert!(ended.err.contains("FAILED with exit code 1\nviolation: h1 is granted twice\n"), "{ended:?}");
    assert_eq!(row(&ended, "latency_ms.p50"), ["20", "30", "1.50", "0.50", "to", "2.00"]);
}

/// A median over other pairs than the other side's would compare what was not run side by side.
#[test]
fn the_pair_of_a_run_without_figures_is_left_out() {
    let folder = two_pairs(&medians([10, 30, 20]), &("[ $run != 2 ] || exit 3\n".to_owned() + &medians([5, 30, 40])));
    let ended = side_by_side(&folder, &["--pairs", "3", "old", "new", "--"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(row(&ended, "latency_ms.p50"), ["*", "15", "22.5", "1.50", "0.50", "to", "2.00"]);
    assert!(ended.out.ends_with("\nNEW of pair 2 failed: exit code 3\n"), "{ended:?}");
}

#[test]
fn a_figure_of_one_build_only_is_shown_without_a_ratio() {
    let more = "sed -i 's/\"violations\"/\"round_trips\":4,\"violations\"/' \"$report\"\n";
    let folder = two_pairs(&medians([10, 30, 20]), &(medians([5, 30, 40]) + more));
    let ended = side_by_side(&folder, &["--pairs", "3", "old", "new", "--"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(row(&ended, "round_trips"), ["*", "-", "4", "-", "-"]);
}

#[test]
fn a_load_that_cannot_run_ends_the_comparison_at_once() {
    for (exit, expected) in [(64, 64), (7, 1)] {
        let folder = two_pairs(&format!("echo 'unexpected argument --x' >&2; exit {exit}"), &medians([1, 1, 1]));
        let ended = side_by_side(&folder, &["old", "new", "--", "--x"]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(expected), ""), "{ended:?}");
        assert!(ended.err.contains("unexpected argument --x\n"), "{ended:?}");
        let advice = "OLD cannot run this load: correct what stands after --, or the binaries in old\n";
        assert!(ended.err.ends_with(advice), "{ended:?}");
        assert_eq!(fs::read_to_string(folder.path().join("trace")).unwrap().lines().count(), 1);
    }
}

#[test]
fn bad_usage_is_refused_before_anything_runs() {
    let folder = two_pairs("", "");
    fs::create_dir(folder.path().join("empty")).unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&[], "two directories and --"),
        (&["old", "new"], "two directories and --"),
        (&["old", "--", "--nodes"], "two directories and --"),
        (&["old", "new", "old", "--"], "two directories and --"),
        (&["--pairs", "0", "old", "new", "--"], "--pairs: expected"),
        (&["--pairs"], "--pairs: expected"),
        (&["--pears", "3", "old", "new", "--"], "unknown option --pears"),
        (&["old", "empty", "--"], "no empty/kolo: build the pair"),
        (&["old", "new", "--", "--json", "file"], "--json is set by this script"),
        (&["old", "new", "--", "--kolo=other"], "--kolo is set by this script"),
    ];
    for (arguments, expected) in cases {
        let ended = side_by_side(&folder, arguments);
        assert_eq!((ended.code, ended.out.as_str()), (Some(64), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("side-by-side: ") && ended.err.contains(expected), "{arguments:?}: {ended:?}");
    }
    assert!(!folder.path().join("trace").exists());
}

/// SIGTERM goes the same way as Ctrl-C, which whoever started the tests may have had ignored.
#[test]
fn a_signal_ends_the_run_and_then_the_script() {
    let folder = two_pairs("echo $$ >\"$here/id\"; exec sleep 300", "");
    let mut command = Command::new(script());
    command.args(["old", "new", "--"]).current_dir(folder.path()).env("TMPDIR", folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = wait_for("the run", || {
        let text = fs::read_to_string(folder.path().join("old/id")).map_err(|error| error.to_string())?;
        text.trim_end().parse::<i32>().map_err(|_| format!("{text:?}"))
    });
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + Signal::SIGTERM as i32), "{output:?}");
    assert!(kill(Pid::from_raw(started), None).is_err(), "the run goes on");
    assert!(made_for_itself(&folder).is_empty());
    assert_eq!(fs::read_to_string(folder.path().join("trace")).unwrap().lines().count(), 1);
}
