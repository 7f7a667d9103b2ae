//! The environment of a command: nothing of the node's.
//!
//! Invariant: what the site sets, an order cannot: it holds no such names.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    path::Path,
};

use crate::{directory::Task, files::manifest::HOSTFILE};

/// Where programs are looked for, unless the order says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The name and value of the variable that no other run has: what its processes are known by.
pub fn mark(scratch: &Path) -> (&'static str, String) {
    ("KOLO_HOSTFILE", scratch.join(HOSTFILE).to_string_lossy().into_owned())
}

/// Writes the list of hosts, one a line, as `mpirun` and `parallel` read it.
pub fn write_hostfile(task: &Task, scratch: &Path) -> io::Result<File> {
    let mut file = File::options().write(true).create_new(true).open(scratch.join(HOSTFILE))?;
    let lines: String = task.hosts().iter().flat_map(|host| [host, "\n"]).collect();
    file.write_all(lines.as_bytes())?;
    Ok(file)
}

/// All variables: plain defaults, those of the order, and those that the site sets.
pub fn of(task: &Task, scratch: &Path) -> BTreeMap<String, String> {
    let order = &task.order;
    let scratch_text = scratch.to_string_lossy().into_owned();
    let home =
        task.home.as_ref().map_or_else(|| scratch_text.clone(), |home| home.directory.to_string_lossy().into_owned());
    let defaults =
        [("PATH", PATH.to_owned()), ("HOME", home), ("TMPDIR", scratch_text), ("LANG", "C.UTF-8".to_owned())];
    let own = [
        ("KOLO_RANK", order.rank.to_string()),
        ("KOLO_SIZE", order.hosts.len().to_string()),
        ("KOLO_REQUEST", order.request.as_str().to_owned()),
        ("KOLO_HOSTS", task.hosts().join(",")),
        mark(scratch),
    ];
    let mut all: BTreeMap<String, String> = defaults.map(|(name, value)| (name.to_owned(), value)).into();
    if order.image.is_some() {
        // The image knows where its programs are.
        all.remove("PATH");
    }
    if let Some(name) = task.confinement.user.as_ref().filter(|_| task.confinement.uids.is_some()) {
        // The id of a seat has no name; what looks for one looks here first.
        all.extend(["LOGNAME", "USER"].map(|variable| (variable.to_owned(), name.clone())));
    }
    all.extend(order.environment.clone());
    if let Some(run) = task.home.as_ref().and_then(|home| home.run.as_ref()) {
        all.insert("KOLO_RUN_DIRECTORY".to_owned(), run.to_string_lossy().into_owned());
    }
    all.extend(own.map(|(name, value)| (name.to_owned(), value)));
    all
}
