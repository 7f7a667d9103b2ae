//! `kolo ssh-proxy`: SSH to a seat on the standard input and output, for `ssh`, which calls it as its ProxyCommand.
//!
//! It is a run whose command is the site's own SSH server. Invariant: `ssh` sees nothing of the server before the key that the server has named
//! is in the file of known hosts.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use broker::time::Time;
use kolo_api::request_view::{RequestView, ReservedHost};
use kolo_seat::{RunNumber, RunOrder, opening::Wish, ssh::host_key};

use super::{
    Context, path_of, run_orders,
    seats::{self, Common},
    ssh::{self, Seat},
};
use crate::{
    error::CliError,
    exit::Exit,
    output::remark,
    run::{
        job::{JobEnd, Terms},
        printer::Printer,
        seat::nonce,
    },
    run_args::{SshProxyArgs, StdinTo},
    signing,
};

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &SshProxyArgs) -> Result<Exit, CliError> {
    let seat = Seat::read(&args.seat)?;
    let identity = ssh::identity(context, &args.keys)?;
    let client = context.connect_as(&args.keys.key)?;
    let view: RequestView = client.get(&path_of(&client, &seat.selector)?)?;
    let host = seat.of(&view)?;
    let (grid, opener) = signing::opener(context, &client, &args.keys.key)?;
    let known_hosts = ssh::known_hosts(context)?;
    let terms = Terms { ends_with_user: true, ..Terms::default() };
    let common = Common {
        client: &client,
        opener: &opener,
        terms: &terms,
        stdin: StdinTo::First,
        each: None,
        follows: true,
        takes_end: true,
        printer: Some(printer(known_hosts, ssh::alias(&view, host))?),
    };
    let order = order(&grid, &view, host, &identity.public)?;
    let end = seats::run(&common, &[host], vec![Wish::Start(Box::new(order))])?;
    Ok(end_of(end))
}

fn end_of(end: JobEnd) -> Exit {
    match end {
        JobEnd::Over(code) | JobEnd::Left(code) | JobEnd::Unknown(code) => Exit::Run(code),
    }
}

fn order(grid: &str, view: &RequestView, host: &ReservedHost, key: &str) -> Result<RunOrder, CliError> {
    let order = RunOrder {
        grid: grid.to_owned(),
        site: host.site.clone(),
        request: view.id.clone(),
        seat: host.seat,
        run: RunNumber::now(),
        rank: 0,
        hosts: run_orders::host_names(&[host]),
        peers: None,
        command: Vec::new(),
        ssh_keys: vec![key.to_owned()],
        environment: BTreeMap::new(),
        directory: None,
        terminal: None,
        has_stdin: true,
        files: None,
        image: None,
        keeps_files: false,
        issued: Time(0),
        expires: Time(0),
        nonce: nonce()?,
    };
    order.check().map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(order)
}

/// Passes everything on, once the server's key is known.
fn printer(known_hosts: PathBuf, alias: String) -> Result<Arc<Printer>, CliError> {
    let note = move |line: &[u8]| {
        let key = host_key::announced(line).ok_or_else(|| io::Error::other("the seat does not answer with SSH"));
        let kept = key.and_then(|key| ssh::keep_known(&known_hosts, &format!("{alias} {key}")));
        kept.inspect_err(|error| remark(&format!("the key of the seat's server: {error}")))
    };
    let printer = Printer::after_first_line(Box::new(note));
    printer.map(Arc::new).map_err(|source| CliError::Io { doing: "passing SSH on", source })
}
