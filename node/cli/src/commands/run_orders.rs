//! The orders of a run, one a seat, and what is wrong with them before anything is reserved.
//!
//! Invariant: what is wrong with a command line, whatever hosts it gets, is said before the node is asked for any.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    sync::Arc,
};

use broker::{
    demand::Demand,
    ids::{RequestId, SeatNumber, SiteId},
    needs::ImageName,
    request::Request,
    time::Time,
};
use kolo_api::request_view::ReservedHost;
use kolo_seat::{
    RunNumber, RunOrder,
    files::manifest::ChunkHash,
    peers::order::{PeerSeat, Peers},
};

use super::{each_file, seats};
use crate::{
    error::CliError,
    run::{
        dealt,
        each::{Each, Line},
        seat::nonce,
        terminal,
    },
    run_args::{RunArgs, StdinTo},
};

/// The commands of `--each`.
pub enum Many {
    /// This very command gives each seat the next one when the one before has ended.
    HandedOut(Arc<Each>),
    /// They are dealt out before the start, as this command goes then.
    Dealt(Vec<Line>),
}

impl Many {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(file: &Path, args: &RunArgs) -> Result<Many, CliError> {
        let lines = each_file::read(file)?;
        Ok(match args.detach {
            true => Many::Dealt(lines),
            false => Many::HandedOut(Arc::new(Each::of(lines, nonce()?, args.kill_on_failure))),
        })
    }

    /// What this command hands out itself.
    pub fn handed_out(&self) -> Option<&Arc<Each>> {
        match self {
            Many::HandedOut(each) => Some(each),
            Many::Dealt(_) => None,
        }
    }

    /// The command of the seat of this rank, one of so many.
    fn command(&self, rank: u32, seats: usize, args: &RunArgs) -> Vec<String> {
        match self {
            Many::HandedOut(each) => each.command(),
            Many::Dealt(lines) => {
                dealt::command(lines, (usize::try_from(rank).unwrap_or(usize::MAX), seats), args.kill_on_failure)
            }
        }
    }
}

/// What makes the orders of a run.
pub struct Orders<'a> {
    pub args: &'a RunArgs,
    pub environment: &'a BTreeMap<String, String>,
    pub many: Option<&'a Many>,
    pub files: Option<ChunkHash>,
    /// What the command runs in; none where that is the system of the host.
    pub image: Option<&'a ImageName>,
    pub stdin: StdinTo,
    pub grid: &'a str,
    pub request: &'a RequestId,
    pub run: RunNumber,
    /// The names by which the seats reach each other, by rank.
    pub names: Vec<String>,
    /// The seats, by rank.
    pub seats: &'a [PeerSeat],
}

impl Orders<'_> {
    /// The orders of all seats, by rank.
    ///
    /// # Errors
    /// [`CliError::Usage`] when no site could run one of them.
    pub fn all(&self) -> Result<Vec<RunOrder>, CliError> {
        (0..).zip(self.seats).map(|(rank, seat)| self.order(rank, seat)).collect()
    }

    fn order(&self, rank: u32, seat: &PeerSeat) -> Result<RunOrder, CliError> {
        let args = self.args;
        let own = || args.command.clone();
        let order = RunOrder {
            grid: self.grid.to_owned(),
            site: seat.site.clone(),
            request: self.request.clone(),
            seat: seat.seat,
            run: self.run,
            rank,
            hosts: self.names.clone(),
            peers: (!args.port.is_empty()).then(|| Peers { seats: self.seats.to_vec(), ports: args.port.clone() }),
            command: self.many.map_or_else(own, |many| many.command(rank, self.seats.len(), args)),
            image: self.image.map(|image| image.as_str().to_owned()),
            ssh_keys: Vec::new(),
            environment: self.environment.clone(),
            directory: args.workdir.as_deref().map(workdir).transpose()?,
            terminal: args.pty.then(terminal::size),
            files: self.files,
            keeps_files: !args.fetch.is_empty(),
            has_stdin: match self.stdin {
                StdinTo::First => rank == 0,
                StdinTo::All => true,
                StdinTo::None => false,
            },
            issued: Time(0),
            expires: Time(0),
            nonce: nonce()?,
        };
        order.check().map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(order)
    }
}

/// Which seats get the standard input.
pub fn stdin(args: &RunArgs, many: Option<&Many>) -> StdinTo {
    match many.and_then(Many::handed_out) {
        Some(_) => StdinTo::All,
        None if args.detach => StdinTo::None,
        None => args.stdin,
    }
}

/// Whether the run could be ordered on whichever shape of the request is reserved, as far as that does not depend on the hosts.
///
/// # Errors
/// [`CliError::Usage`].
pub fn check_before(
    args: &RunArgs,
    (environment, many): (&BTreeMap<String, String>, Option<&Many>),
    request: &Request,
) -> Result<(), CliError> {
    let wrong = |error: String| CliError::Usage(error);
    // Nothing of these is sent.
    let site = SiteId::new("site").map_err(|error| wrong(error.to_string()))?;
    let id = RequestId::new("request").map_err(|error| wrong(error.to_string()))?;
    for count in request.shapes().map(Demand::seats).collect::<BTreeSet<usize>>() {
        let seats: Vec<SeatNumber> = (0..).take(count).map(SeatNumber).collect();
        let seats = seats::numbered(seats, &args.on, |seat| *seat)?;
        if args.pty {
            seats::check_one(seats.len())?;
        }
        let seats: Vec<PeerSeat> = seats.into_iter().map(|seat| PeerSeat { site: site.clone(), seat }).collect();
        let orders = Orders {
            args,
            environment,
            many,
            files: None,
            image: request.demand().needs().image.as_ref(),
            stdin: stdin(args, many),
            grid: "grid",
            request: &id,
            run: RunNumber(0),
            names: (0..seats.len()).map(|rank| format!("seat-{rank}")).collect(),
            seats: &seats,
        };
        orders.all()?;
    }
    Ok(())
}

fn workdir(path: &Path) -> Result<String, CliError> {
    path.to_str().map(str::to_owned).ok_or_else(|| CliError::Usage("--workdir: the path is not UTF-8".to_owned()))
}

/// What the command finds in its environment.
///
/// # Errors
/// When a variable of here is not there.
pub fn environment(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let variable = |word: &String| match word.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match env::var(word) {
            Ok(value) => Ok((word.clone(), value)),
            Err(error) => Err(CliError::Usage(format!("--env {word}: {error}"))),
        },
    };
    words.iter().map(variable).collect()
}

/// Names by which the seats may call each other, each once: that of the host, with its rank where several have the same.
pub fn host_names(hosts: &[&ReservedHost]) -> Vec<String> {
    let plain = |host: &&ReservedHost| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let name: String = host.host.as_str().chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        name.trim_start_matches('-').to_owned()
    };
    let names: Vec<String> = hosts.iter().map(plain).collect();
    let mut seen = BTreeSet::new();
    let many: BTreeSet<&String> = names.iter().filter(|name| !seen.insert(*name)).collect();
    let own = |(rank, name): (usize, &String)| match name.as_str() {
        "" => format!("seat-{rank}"),
        name if many.contains(&name.to_owned()) => format!("{name}-{rank}"),
        name => name.to_owned(),
    };
    names.iter().enumerate().map(own).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kolo_api::samples::view;

    use super::*;
    use crate::request;

    #[derive(Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn what_is_wrong_whatever_the_hosts_is_told_before_anything_is_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lines");
        // 1,200 KiB: too much for one seat, and not for two.
        std::fs::write(&file, format!("echo {}\n", "x".repeat(12_000)).repeat(100)).unwrap();
        let file = file.to_str().unwrap();
        let checked = |line: &[&str]| {
            let words = [&["kolo", "-t", "1h", "--per-host", "cpu=1"], line].concat();
            let Run { args } = Run::try_parse_from(words).map_err(|error| error.to_string())?;
            let now = "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap();
            let request = request::checked(None, &args.request, &now).map_err(|error| error.to_string())?;
            let many = args.each.as_deref().map(|file| Many::read(file, &args)).transpose().unwrap();
            let variables = environment(&args.env).unwrap();
            check_before(&args, (&variables, many.as_ref()), &request).map_err(|error| error.to_string())
        };
        assert_eq!(checked(&["-N", "2", "--each", file, "--detach"]), Ok(()));
        assert_eq!(checked(&["-N", "1", "--each", file]), Ok(()));
        assert_eq!(checked(&["-N", "3", "--on", "0,2", "--port", "1:4000", "--image", "a:1", "--", "true"]), Ok(()));
        for (line, expected) in [
            (&["-N", "1", "--each", file, "--detach"][..], "put the rest into a file"),
            (&["-N", "2", "--or", "hosts=1,duration=2h", "--each", file, "--detach"], "put the rest into a file"),
            (&["-N", "2", "--on", "1", "--each", file, "--detach"], "put the rest into a file"),
            (&["-N", "1", "--image", "a b", "--", "true"], "cannot name an image"),
            (&["-N", "1", "--env", "KOLO_RANK=1", "--", "true"], "is set by the site"),
            (&["-N", "2", "--on", "2", "--", "true"], "the reservation has the seats 0 to 1"),
            (&["-N", "2", "--pty", "--", "true"], "a terminal is for one seat"),
            (&["-N", "2", "--port", "2:4000", "--", "true"], "no seat of this rank"),
        ] {
            let error = checked(line).unwrap_err();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }

    #[test]
    fn hosts_have_names_of_their_own() {
        let mut view = view("active", None);
        let hosts = &mut view.reservation.as_mut().unwrap().hosts;
        for (host, id) in hosts.iter_mut().zip(["node 1", "-x", "-x"]) {
            host.host = broker::ids::HostId::new(id).unwrap();
        }
        let names = host_names(&hosts.iter().collect::<Vec<_>>());
        assert_eq!(names, ["node-1", "x-1", "x-2"]);
    }

    #[test]
    fn variables_have_a_value_or_that_of_here() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        let read = environment(&words(&["A=b=c", "E="])).unwrap();
        assert_eq!(read, BTreeMap::from([("A".to_owned(), "b=c".to_owned()), ("E".to_owned(), String::new())]));
        assert!(environment(&words(&["KOLO_NO_SUCH_VARIABLE"])).unwrap_err().to_string().starts_with("--env KOLO_NO"));
    }
}
