//! `kolo attach` and `kolo logs`: back to what runs, or ran, on the seats of a reservation.

use kolo_api::request_view::RequestView;
use kolo_seat::opening::Wish;
use kolo_text::safe::safe;

use super::{
    Context, path_of,
    seats::{self, Common},
};
use crate::{
    error::CliError,
    exit::Exit,
    output::remark,
    run::job::{JobEnd, Terms, code},
    run_args::{AttachArgs, LogsArgs, SeatsArgs, StdinTo},
    signing,
};

/// Runs `kolo attach`: the exit code is that of `kolo run`.
///
/// # Errors
/// [`CliError`].
pub fn attach(context: &mut Context, args: &AttachArgs) -> Result<Exit, CliError> {
    let stdin = if args.pty { StdinTo::First } else { args.stdin };
    watch(context, &args.seats, (stdin, true), (true, args.pty)).map_err(|error| CliError::in_run(code::UNKNOWN, error))
}

/// Runs `kolo logs`.
///
/// # Errors
/// [`CliError`].
pub fn logs(context: &mut Context, args: &LogsArgs) -> Result<Exit, CliError> {
    watch(context, &args.seats, (StdinTo::None, args.follow), (false, false))
}

fn watch(
    context: &Context,
    args: &SeatsArgs,
    (stdin, follows): (StdinTo, bool),
    (takes_end, has_terminal): (bool, bool),
) -> Result<Exit, CliError> {
    let client = context.connect_as(&args.key)?;
    let view: RequestView = client.get(&path_of(&client, &args.selector)?)?;
    let hosts = seats::chosen(&view, &args.on)?;
    seats::check_streams(&client, &hosts)?;
    if has_terminal {
        seats::one(&hosts)?;
    }
    let (grid, opener) = signing::opener(context, &client, &args.key)?;
    let terms = Terms { is_attached: true, is_watched: !takes_end, has_terminal, ..Terms::default() };
    let wishes: Result<Vec<Wish>, CliError> = hosts.iter().map(|host| seats::attach(&grid, &view.id, host)).collect();
    let common = Common {
        client: &client,
        opener: &opener,
        terms: &terms,
        stdin,
        each: None,
        follows,
        takes_end,
        printer: None,
    };
    Ok(match seats::run(&common, &hosts, wishes?)? {
        JobEnd::Over(code) | JobEnd::Unknown(code) => Exit::Run(code),
        JobEnd::Left(code) => {
            remark(&format!("left running: kolo attach {} watches it again", safe(view.id.as_str())));
            Exit::Run(code)
        }
    })
}
