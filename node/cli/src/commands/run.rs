//! `kolo run`: a command on every seat of a reservation.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{self, Write as _},
};

use broker::{
    needs::{ImageName, Need},
    request::{Request, RequestDocument},
};
use kolo_api::request_view::{RequestView, ReservedHost};
use kolo_seat::{RunNumber, files::order::Patterns, opening::Wish, peers::order::PeerSeat};
use kolo_text::safe::safe;

use super::{
    Context, path_of,
    run_orders::{Many, Orders, check_before, environment, host_names, stdin},
    seats::{self, Common},
    waiting::{self, Awaited},
};
use crate::{
    args::Goal,
    client::{Client, request_path},
    error::CliError,
    exit::Exit,
    foreign,
    output::remark,
    price::with_budget,
    request,
    run::{
        files::{Courier, Sent},
        job::{JobEnd, Terms, code},
    },
    run_args::RunArgs,
    signing,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`], with the exit codes 120 to 125 when the command was not run on all seats or not to its end.
pub fn run(context: &mut Context, args: &RunArgs) -> Result<Exit, CliError> {
    if args.describes_new() && args.within.is_some() {
        return Err(CliError::Usage(
            "--in: the reservation stands; what describes a new one goes without it".to_owned(),
        ));
    }
    if let Some(wrong) = args.command.first().and_then(|word| foreign::no_command(word)) {
        return Err(CliError::Usage(wrong));
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
    let request = args.within.is_none().then(|| request::checked(None, &args.request, &context.now)).transpose()?;
    let request = request.map(|request| with_needs(request, args)).transpose()?;
    if let Some(request) = &request {
        check_before(args, (&environment, many.as_ref()), request)?;
    }
    let (client, view) = find(context, args, request).map_err(|error| CliError::in_run(code::NO_RESERVATION, error))?;
    let is_own = args.within.is_none() && !args.keep;
    let ended = begun(&client, &view, &args.on)
        .and_then(|view| run_in(context, &client, args, (&environment, many.as_ref(), sent.as_ref()), &view));
    if is_own && ended.is_err() && !view.request.demand().slack().is_zero() {
        // Its site may have let it begin later, and its node not have heard so yet.
        let id = safe(view.id.as_str());
        remark(&format!(
            "the reservation is kept, since it may begin later: kolo show {id} says when, then kolo run --in {id}"
        ));
    } else if is_own && !matches!(ended, Ok(JobEnd::Left(_) | JobEnd::Unknown(_))) {
        let exit_code = ended.as_ref().ok().map(|end| match end {
            JobEnd::Over(code) | JobEnd::Unknown(code) | JobEnd::Left(code) => *code,
        });
        give_back(&client, &view, exit_code);
    }
    Ok(match ended.map_err(|error| CliError::in_run(code::NOT_READY, error))? {
        JobEnd::Over(code) => Exit::Run(code),
        JobEnd::Unknown(code) => {
            let id = safe(view.id.as_str());
            remark(&format!(
                "it may go on: kolo attach {id} shows it once its site is reached, kolo cancel {id} ends it and gives back what is left"
            ));
            Exit::Run(code)
        }
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

/// The request, which also asks of its sites what the command needs.
fn with_needs(request: Request, args: &RunArgs) -> Result<Request, CliError> {
    let mut document = RequestDocument::from(request);
    document.needs.insert(Need::Run);
    if !args.port.is_empty() {
        document.needs.insert(Need::Network);
    }
    Request::try_from(document).map_err(|error| CliError::Usage(error.to_string()))
}

/// The reservation to run in, and the node that knows it.
fn find(context: &Context, args: &RunArgs, request: Option<Request>) -> Result<(Client, RequestView), CliError> {
    let client = context.connect_as(&args.key)?;
    let view = match (request, &args.within) {
        (Some(request), _) => reserve(context, &client, args, request)?,
        (None, selector) => client.get(&path_of(&client, selector.as_deref().unwrap_or_default())?)?,
    };
    Ok((client, view))
}

/// A reservation that stands.
fn reserve(context: &Context, client: &Client, args: &RunArgs, request: Request) -> Result<RequestView, CliError> {
    let request = with_budget(client, request, context.usual_budget()?)?;
    let submission = signing::submission(context, client, &args.key, request, None)?;
    let handed_in: RequestView = client.post("/v1/requests", &submission)?;
    let path = request_path(handed_in.id.as_str());
    let waited = waiting::wait(client.clone(), &Goal::Settled.into(), args.timeout, move |client| client.get(&path));
    let view = waited.inspect_err(|_| give_back(client, &handed_in, None))?;
    if view.state.is_reserved() {
        return Ok(view);
    }
    Err(CliError::Unreserved(Box::new(view)))
}

/// The rest of the time, for others, with the exit code of what was run. What cannot be given back now ends with its window.
fn give_back(client: &Client, view: &RequestView, exit_code: Option<u8>) {
    let ended = exit_code.map_or_else(String::new, |code| format!("?exit_code={code}"));
    let cancelled: Result<RequestView, CliError> = client.delete(&(request_path(view.id.as_str()) + &ended));
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
    let number = RunNumber::now();
    let courier = Courier { run: Some(number), ..courier };
    let terms = terms(args, sent);
    let each = many.and_then(Many::handed_out);
    let stdin = stdin(args, many);
    let seats: Vec<PeerSeat> = hosts.iter().map(|host| PeerSeat { site: host.site.clone(), seat: host.seat }).collect();
    let named = args.image().map(|image| ImageName::try_from(image.to_owned()));
    let named = named.transpose().map_err(|error| CliError::of_flag("--image", error))?;
    let orders = Orders {
        args,
        environment,
        many,
        files: sent.map(|sent| sent.hash),
        image: named.as_ref().or(view.request.demand().needs().image.as_ref()),
        stdin,
        grid: &grid,
        request: &view.id,
        run: number,
        names: host_names(&hosts),
        seats: &seats,
    };
    let wishes = orders.all()?.into_iter().map(|order| Wish::Start(Box::new(order))).collect();
    let common = Common {
        client,
        opener: &opener,
        terms: &terms,
        stdin,
        each,
        follows: true,
        // A command may end before its user has left it, who comes for its end later.
        takes_end: args.fetch.is_empty() && !args.detach,
        printer: None,
    };
    let end = seats::run(&common, &hosts, wishes)?;
    Ok(match end {
        JobEnd::Over(code) if !args.fetch.is_empty() => JobEnd::Over(fetch(&courier, &hosts, args, code)),
        JobEnd::Unknown(code) if !args.fetch.is_empty() => JobEnd::Unknown(fetch(&courier, &hosts, args, code)),
        end => end,
    })
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

/// The reservation when it has begun, and no hook of an owner, which may take long, can change the hosts of the seats `on` any more; of all
/// when none are named.
fn begun(client: &Client, view: &RequestView, on: &[u32]) -> Result<RequestView, CliError> {
    let path = request_path(view.id.as_str());
    waiting::wait(client.clone(), &Awaited::hosts(on), None, move |client| client.get(&path))
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
    let fetched = seats::block_on(async {
        for (rank, host) in hosts.iter().enumerate() {
            let directory = args.into.join(format!("seat-{rank}"));
            match courier.fetch(host, (&args.fetch, true), &directory).await {
                Ok(names) if names.is_empty() => remark(&format!("seat {rank}: no file is called like that")),
                Ok(_) => {}
                Err(error) => {
                    remark(&error.to_string());
                    largest = largest.max(code::UNKNOWN);
                }
            }
        }
        Ok(())
    });
    if let Err(error) = fetched {
        remark(&format!("not all files were fetched: {error}"));
        largest = largest.max(code::UNKNOWN);
    }
    largest
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn the_request_of_a_command_asks_for_what_the_command_needs() {
        let asked = |line: &str| {
            let words = shlex::split(&format!("kolo -N 1 -t 1h {line} -- true")).unwrap();
            let Run { args } = Run::try_parse_from(words).unwrap();
            let now = "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap();
            let request = with_needs(request::checked(None, &args.request, &now).unwrap(), &args).unwrap();
            let written = serde_json::to_value(&request).unwrap();
            (written["needs"].to_string(), written.get("image").cloned().unwrap_or_default())
        };
        assert_eq!(asked(""), (r#"["run"]"#.to_owned(), Value::Null));
        assert_eq!(asked("--port 4000"), (r#"["run","network"]"#.to_owned(), Value::Null));
        assert_eq!(asked("--needs network --image a:1"), (r#"["run","network"]"#.to_owned(), "a:1".into()));
    }

    #[test]
    fn an_image_may_be_named_for_a_reservation_that_stands_and_nothing_else_of_a_request() {
        let new = |line: &str| {
            let words = shlex::split(&format!("kolo --in last {line} -- true")).unwrap();
            let Run { args } = Run::try_parse_from(words).unwrap();
            (args.describes_new(), args.image().map(str::to_owned))
        };
        assert_eq!(new("--image a:1"), (false, Some("a:1".to_owned())));
        assert_eq!(new("--needs run"), (true, None));
    }
}
