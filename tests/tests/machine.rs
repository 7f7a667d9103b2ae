//! What the tests do on a machine that lacks a tool: they skip themselves, by name.

#![allow(clippy::unwrap_used, reason = "a test fails loudly when something is missing")]

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use end_to_end::skip::missing;

#[test]
fn a_tool_is_missing_only_where_it_is() {
    assert_eq!(missing(&["sh", "no-such-tool-of-kolo", "cargo"]), ["no-such-tool-of-kolo"]);
}

/// One tool of many that is there must not make the test of Slurm run.
#[test]
fn a_machine_with_jq_and_without_slurm_skips_the_test_of_slurm_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for tool in ["bash", "dirname", "realpath", "id", "env"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|path| path.join(tool))
            .find(|file| file.is_file());
        symlink(found.unwrap(), folder.path().join(tool)).unwrap();
    }
    symlink("/bin/true", folder.path().join("jq")).unwrap();
    let list = folder.path().join("skipped");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("scripts/test-slurm");
    let output = Command::new(script)
        .args(["--as-is", "/bin/true"])
        .env("PATH", folder.path())
        .env("KOLO_SKIPPED", &list)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let listed = fs::read_to_string(list).unwrap();
    let user = Command::new("id").arg("-u").output().unwrap();
    if user.stdout == b"0\n" {
        assert!(listed.starts_with("test-slurm: not installed: slurmctld slurmd squeue munged"), "{listed}");
        assert!(!listed.contains(" jq"), "{listed}");
    } else {
        assert!(listed.starts_with("test-slurm: "), "{listed}");
    }
}
