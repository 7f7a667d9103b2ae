//! The scenarios that are shipped, on real processes; and the errors of one that is wrong. In the simulator they are
//! played by the tests of the harness.

use std::{fs, path::Path};

use end_to_end::{Ended, has_namespaces, kolo_sim, write};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

fn play(file: &Path, more: &[&str]) -> Ended {
    kolo_sim(&[&["scenario", file.to_str().unwrap()], more].concat())
}

fn comes_true(name: &str) {
    let file = Path::new(FOLDER).join(name);
    if fs::read_to_string(&file).unwrap().contains("\ncut = ") && !has_namespaces() {
        return;
    }
    let ended = play(&file, &["--on", "processes", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let document = ended.json();
    assert_eq!(
        (&document["held"], document["played"].as_array().unwrap().len()),
        (&true.into(), usize::try_from(document["steps"].as_u64().unwrap()).unwrap()),
        "{document}"
    );
}

/// A test for each of the files, and one that none is forgotten.
macro_rules! scenarios {
    ($($test:ident: $file:literal,)*) => {
        $(#[test]
        fn $test() {
            comes_true($file);
        })*

        #[test]
        fn none_is_forgotten() {
            let mut files: Vec<String> =
                fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            assert_eq!(files, [$($file),*]);
        }
    };
}

scenarios! {
    cancelling_frees_everything: "cancel.toml",
    from_any_site_a_request_becomes_a_reservation: "every-site-reserves.toml",
    each_half_of_a_cut_grid_goes_on: "halves.toml",
    what_was_acknowledged_survives_a_crash: "kill-and-restart.toml",
    another_site_becomes_coordinator_for_a_dead_entry_point: "lost-entry-point.toml",
    two_entry_points_race_and_one_wins: "race.toml",
    a_host_that_its_owner_takes_away_is_replaced: "shrink.toml",
    of_two_successors_one_stays_coordinator: "two-successors.toml",
}

#[test]
fn what_is_wrong_is_reported_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let head = "[grid]\nsites = 1\n[[step]]\nstart = \"a\"\n";
    let file = write(folder.path(), "wrong.toml", &format!("{head}[[step]]\nexplode = \"a\"\n"));
    let Ended { code, err, .. } = play(&file, &[]);
    assert_eq!(code, Some(64), "{err}");
    assert!(err.contains("wrong.toml:5: expected exactly one of start"), "{err}");

    let submit = "[[step]]\nsubmit = \"job\"\nthrough = \"a\"\nhosts = 2\nduration = \"1h\"\n";
    let expect = "[[step]]\nexpect = \"reserved\"\nrequest = \"job\"\nwithin = \"1s\"\n";
    let file = write(folder.path(), "vain.toml", &format!("{head}{submit}{expect}"));
    for on in ["simulator", "processes"] {
        let Ended { code, err, .. } = play(&file, &["--on", on]);
        assert_eq!(code, Some(1), "{on}: {err}");
        assert!(
            err.contains("vain.toml:10: expect = \"reserved\", request = \"job\", within = \"1s\": not within 1000 ms; seen: job rejected"),
            "{on}: {err}"
        );
        let kept = err.lines().find_map(|line| line.strip_prefix("what happened is in ")).unwrap();
        assert!(Path::new(kept).is_dir(), "{on}: {err}");
        fs::remove_dir_all(kept).unwrap();
    }
}
