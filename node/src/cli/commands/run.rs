//! `kolo run`: a command on every seat of a reservation.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{self, Write as _},
    path::Path,
    sync::Arc,
};

use broker::time::Time;

use super::{
    Context, each_file, path_of,
    seats::{self, Common},
    waiting,
};
use crate::{
    api::request_view::{RequestView, ReservedHost},
    cli::{
        args::Goal,
        client::{Client, request_path},
        error::CliError,
        exit::Exit,
        output::remark,
        price::with_budget,
        request,
        run::{
            dealt,
            each::{Each, Line},
            files::{Courier, Sent},
            job::{JobEnd, Terms, code},
            seat::nonce,
            terminal,
        },
        run_args::{RunArgs, StdinTo},
        signing,
    },
    run::{
        RunNumber, RunOrder,
        files::order::Patterns,
        opening::Wish,
        peers::order::{PeerPort, PeerSeat, Peers},
    },
    runtime::clock::unix_ms,
    text::safe::safe,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`], with the exit codes 120 to 125 when the command was not run on all seats or not to its end.
pub fn run(context: &mut Context, args: &RunArgs) -> Result<Exit, CliError> {
    let describes_new = args.request.file.is_some() || !args.request.words.is_empty();
    if describes_new && args.within.is_some() {
        return Err(CliError::Usage(
            "--in: the reservation stands; what describes a new one goes without it".to_owned(),
        ));
    }
    let mut environment = environment(&args.env)?;
    if args.pty
        && let Ok(kind) = env::var("TERM")
    {
        environment.entry("TERM".to_owned()).or_insert(kind);
    }
    let many = args.each.as_deref().map(|file| Many::read(file, args)).transpose()?;
    let sent = args.send.as_deref().map(Sent::directory).transpose()?;
    if !args.fetch.is_empty() {
        Patterns::of(&args.fetch).map_err(|error| CliError::of_flag("--fetch", error))?;
    }
    let (client, view) = find(context, args).map_err(|error| CliError::in_run(code::NO_RESERVATION, error))?;
    let is_own = args.within.is_none() && !args.keep;
    let ended = begun(&client, &view)
        .and_then(|view| run_in(context, &client, args, (&environment, many.as_ref(), sent.as_ref()), &view));
    if is_own && !matches!(ended, Ok(JobEnd::Left(_))) {
        give_back(&client, &view);
    }
    Ok(match ended.map_err(|error| CliError::in_run(code::NOT_READY, error))? {
        JobEnd::Over(code) => Exit::Run(code),
        JobEnd::Left(code) => {
            let id = safe(view.id.as_str());
            if args.detach {
                writeln!(io::stdout(), "{id}").map_err(CliError::output)?;
            } else {
                remark(&format!("left running: kolo attach {id} watches it, kolo logs {id} shows its output"));
            }
            Exit::Run(code)
        }
    })
}

/// The reservation to run in, and the node that knows it.
fn find(context: &Context, args: &RunArgs) -> Result<(Client, RequestView), CliError> {
    let client = context.connect_as(&args.key)?;
    let view = match &args.within {
        Some(selector) => client.get(&path_of(&client, selector)?)?,
        None => reserve(context, &client, args)?,
    };
    Ok((client, view))
}

/// A reservation that stands.
fn reserve(context: &Context, client: &Client, args: &RunArgs) -> Result<RequestView, CliError> {
    let request = with_budget(client, request::checked(None, &args.request, &context.now)?, context.usual_budget()?)?;
    let submission = signing::submission(context, client, &args.key, request, None)?;
    let handed_in: RequestView = client.post("/v1/requests", &submission)?;
    let path = request_path(handed_in.id.as_str());
    let waited = waiting::wait(client.clone(), Goal::Settled, args.timeout, move |client| client.get(&path));
    let view = waited.inspect_err(|_| give_back(client, &handed_in))?;
    if view.state.is_reserved() {
        return Ok(view);
    }
    Err(CliError::Unreserved(Box::new(view)))
}

/// The rest of the time, for others. What cannot be given back now ends with its window.
fn give_back(client: &Client, view: &RequestView) {
    let cancelled: Result<RequestView, CliError> = client.delete(&request_path(view.id.as_str()));
    if let Err(error) = cancelled {
        let id = safe(view.id.as_str());
        remark(&format!("the rest of reservation {id} was not given back: {error}; kolo cancel {id} does it"));
    }
}

fn run_in(
    context: &Context,
    client: &Client,
    args: &RunArgs,
    (environment, many, sent): (&BTreeMap<String, String>, Option<&Many>, Option<&Sent>),
    view: &RequestView,
) -> Result<JobEnd, CliError> {
    let hosts = seats::chosen(view, &args.on)?;
    seats::check_streams(client, &hosts)?;
    if args.pty {
        seats::one(&hosts)?;
    }
    let (grid, opener) = signing::opener(context, client, &args.key)?;
    let courier = Courier { client, opener: &opener, grid: &grid, request: &view.id, run: None };
    if let Some(sent) = sent {
        send(&courier, &hosts, sent)?;
    }
    // Others may have begun runs meanwhile.
    let number = RunNumber(unix_ms());
    let courier = Courier { run: Some(number), ..courier };
    let terms = terms(args, sent);
    let each = many.and_then(Many::handed_out);
    let stdin = match each {
        Some(_) => StdinTo::All,
        None if args.detach => StdinTo::None,
        None => args.stdin,
    };
    let directory = args.workdir.as_deref().map(workdir).transpose()?;
    let names = host_names(&hosts);
    let peers = peers(&hosts, &args.port);
    let order = |(rank, host): (u32, &&ReservedHost)| {
        let order = RunOrder {
            grid: grid.clone(),
            site: host.site.clone(),
            request: view.id.clone(),
            seat: host.seat,
            run: number,
            rank,
            hosts: names.clone(),
            peers: peers.clone(),
            command: many.map_or_else(|| args.command.clone(), |many| many.command(rank, hosts.len(), args)),
            image: args.image.clone(),
            ssh_keys: Vec::new(),
            environment: environment.clone(),
            directory: directory.clone(),
            terminal: args.pty.then(terminal::size),
            files: sent.map(|sent| sent.hash),
            keeps_files: !args.fetch.is_empty(),
            has_stdin: match stdin {
                StdinTo::First => rank == 0,
                StdinTo::All => true,
                StdinTo::None => false,
            },
            issued: Time(0),
            expires: Time(0),
            nonce: nonce()?,
        };
        order.check().map_err(|error| CliError::Usage(error.to_string()))?;
        Ok(Wish::Start(Box::new(order)))
    };
    let wishes = (0..).zip(&hosts).map(order).collect::<Result<Vec<Wish>, CliError>>()?;
    let common = Common {
        client,
        opener: &opener,
        terms: &terms,
        stdin,
        each,
        follows: true,
        takes_end: args.fetch.is_empty(),
        printer: None,
    };
    let end = seats::run(&common, &hosts, wishes)?;
    Ok(match end {
        JobEnd::Over(code) if !args.fetch.is_empty() => JobEnd::Over(fetch(&courier, &hosts, args, code)),
        end => end,
    })
}

/// The commands of `--each`.
enum Many {
    /// This very command gives each seat the next one when the one before has ended.
    HandedOut(Arc<Each>),
    /// They are dealt out before the start, as this command goes then.
    Dealt(Vec<Line>),
}

impl Many {
    fn read(file: &Path, args: &RunArgs) -> Result<Many, CliError> {
        let lines = each_file::read(file)?;
        Ok(match args.detach {
            true => Many::Dealt(lines),
            false => Many::HandedOut(Arc::new(Each::of(lines, nonce()?, args.kill_on_failure))),
        })
    }

    fn handed_out(&self) -> Option<&Arc<Each>> {
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

fn terms(args: &RunArgs, sent: Option<&Sent>) -> Terms {
    Terms {
        kills_on_failure: args.kill_on_failure,
        exit_timeout: args.exit_timeout,
        placing: sent.map(Sent::placing).unwrap_or_default(),
        detaches: args.detach,
        has_terminal: args.pty,
        ..Terms::default()
    }
}

/// The reservation when it has begun, and no hook of an owner, which may take long, can change its hosts any more.
fn begun(client: &Client, view: &RequestView) -> Result<RequestView, CliError> {
    let path = request_path(view.id.as_str());
    waiting::wait(client.clone(), Goal::Hosts, None, move |client| client.get(&path))
}

/// Who reaches whom, where anybody does.
fn peers(hosts: &[&ReservedHost], ports: &[PeerPort]) -> Option<Peers> {
    let seat = |host: &&ReservedHost| PeerSeat { site: host.site.clone(), seat: host.seat };
    (!ports.is_empty()).then(|| Peers { seats: hosts.iter().map(seat).collect(), ports: ports.to_vec() })
}

fn workdir(path: &Path) -> Result<String, CliError> {
    path.to_str().map(str::to_owned).ok_or_else(|| CliError::Usage("--workdir: the path is not UTF-8".to_owned()))
}

/// Sends files to each site of these hosts.
fn send(courier: &Courier<'_>, hosts: &[&ReservedHost], sent: &Sent) -> Result<(), CliError> {
    let mut sites = BTreeSet::new();
    seats::block_on(async {
        for host in hosts.iter().filter(|host| sites.insert(&host.site)) {
            courier.send(host, sent, None).await?;
        }
        Ok(())
    })
}

/// Fetches what is wanted of the files of all seats; the exit code of the run that has ended with `code`.
fn fetch(courier: &Courier<'_>, hosts: &[&ReservedHost], args: &RunArgs, code: u8) -> u8 {
    let mut largest = code;
    for (rank, host) in hosts.iter().enumerate() {
        let directory = args.into.join(format!("seat-{rank}"));
        match seats::block_on(courier.fetch(host, (&args.fetch, true), &directory)) {
            Ok(names) if names.is_empty() => remark(&format!("seat {rank}: no file is called like that")),
            Ok(_) => {}
            Err(error) => {
                remark(&error.to_string());
                largest = largest.max(code::UNKNOWN);
            }
        }
    }
    largest
}

/// What the command finds in its environment.
fn environment(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
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
pub(super) fn host_names(hosts: &[&ReservedHost]) -> Vec<String> {
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
    use super::*;
    use crate::api::samples::view;

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
