//! The commands, one file each.
//!
//! Invariant: a command checks all that was typed before it talks to anybody, and prints its result once.

pub mod attach;
pub mod backup;
pub mod batch;
mod batch_file;
mod batch_submit;
mod batch_waiting;
pub mod cancel;
pub mod completions;
pub mod cp;
pub mod doctor;
mod each_file;
pub mod explain;
pub mod extend;
pub mod gantt;
pub mod grid;
pub mod hosts;
pub mod join;
pub mod keeper;
pub mod list;
pub mod local;
pub mod login;
pub mod man;
pub mod node;
pub mod open;
mod own_queue;
pub mod plan;
mod plan_batch;
mod plan_offline;
pub mod ps;
pub mod receipt;
pub mod repair;
pub mod run;
mod run_orders;
mod seats;
pub mod show;
pub mod sites;
pub mod slots;
pub mod ssh;
pub mod ssh_proxy;
mod stop_all;
pub mod submit;
pub mod token;
pub mod top;
pub mod upkeep;
pub mod usage;
pub mod wait;
mod waiting;
pub mod watch;
pub mod whoami;

use std::path::{self, PathBuf};

use broker::{cost::Cost, request::Request, time::Time};
use jiff::Zoned;
use kolo_api::request_view::{LAST, RequestList};
use kolo_config::Surroundings;
use kolo_text::time::parse_time;
use kolo_trust::Wallet;

use super::{
    args::GlobalArgs,
    client::{Client, request_path},
    connection,
    error::CliError,
    exit::Exit,
    grid_args::KeyArgs,
    keys::Keys,
    output::{Output, Report},
    price, suggest,
};

/// What every command works with.
pub struct Context {
    /// Flags of every command.
    pub global: GlobalArgs,
    /// What is taken from the environment.
    pub surroundings: Surroundings,
    /// The start of the command, in the user's zone.
    pub now: Zoned,
    pub output: Output,
}

impl Context {
    /// Prints the result of a command that has done what was asked.
    fn done(&mut self, report: &impl Report) -> Result<Exit, CliError> {
        self.output.print(report)?;
        Ok(Exit::Done)
    }

    /// A connection to the user's node, with the user's default key when there is no token.
    fn connect(&self) -> Result<Client, CliError> {
        self.connect_as(&KeyArgs::default())
    }

    /// The same, with the key that the user has named when there is no token.
    fn connect_as(&self, key: &KeyArgs) -> Result<Client, CliError> {
        connection::connect(&self.global, &self.surroundings, &self.keys(key)?)
    }

    /// A connection in which the user's key signs all calls, whether or not there is a token.
    fn connect_by_key(&self, key: &KeyArgs) -> Result<Client, CliError> {
        connection::connect_by_key(&self.global, &self.surroundings, &self.keys(key)?)
    }

    /// What a request without a budget may cost, if the user has said so.
    fn usual_budget(&self) -> Result<Option<Cost>, CliError> {
        price::usual_budget(self.surroundings.user_dir())
    }

    /// Where the key may be that signs for the user.
    pub(crate) fn keys(&self, args: &KeyArgs) -> Result<Keys, CliError> {
        match Keys::named(args) {
            Some(keys) => Ok(keys),
            None => Ok(Keys::in_wallets(self.wallets()?)),
        }
    }

    /// The time that the words behind `flag` mean; none when there are no words.
    fn time_of(&self, flag: &str, words: &[String]) -> Result<Option<Time>, CliError> {
        if words.is_empty() {
            return Ok(None);
        }
        parse_time(&words.join(" "), &self.now).map(Some).map_err(|error| CliError::of_flag(flag, error))
    }

    /// The data directory that the user means.
    fn data_dir(&self) -> Result<PathBuf, CliError> {
        match &self.global.data_dir {
            Some(directory) => path::absolute(directory)
                .map_err(|error| CliError::Usage(format!("--data-dir {}: {error}", directory.display()))),
            None => Ok(self.surroundings.default_data_dir()?),
        }
    }

    /// Where a user's key may be, the first place first: the user's own directory, then the data directory.
    pub(crate) fn wallets(&self) -> Result<Vec<Wallet>, CliError> {
        let directories = self.surroundings.user_dir().into_iter().chain([self.data_dir()?]);
        Ok(directories.map(|directory| Wallet::at(&directory)).collect())
    }

    /// The start of the command on the clock of credentials.
    pub(crate) fn time(&self) -> Time {
        Time(self.now.timestamp().as_second())
    }
}

/// The API path of the request that `selector` means; `last` is the newest one.
fn path_of(client: &Client, selector: &str) -> Result<String, CliError> {
    match selector {
        "" => Err(CliError::Usage("expected the id of a request, its beginning, a label, or last".to_owned())),
        LAST => {
            let newest: RequestList = client.get("/v1/requests?limit=1")?;
            newest
                .requests
                .first()
                .map(|view| request_path(view.id.as_str()))
                .ok_or_else(|| CliError::failed("there is no request yet").hinted("kolo submit makes one"))
        }
        _ => Ok(request_path(selector)),
    }
}

/// `error`, with what the request names and no known host has; a node that does not say what there is adds nothing.
fn with_suggestion(client: &Client, request: &Request, error: CliError) -> CliError {
    let is_placement = error.exit() == Exit::NoPlacement;
    let hosts = is_placement.then(|| client.hosts().ok()).flatten();
    match hosts.and_then(|hosts| suggest::unknown_to_all(request, &hosts)) {
        Some(hint) => error.hinted(hint),
        None => error,
    }
}
