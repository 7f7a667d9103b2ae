//! The commands, one file each.
//!
//! Invariant: a command checks all that was typed before it talks to anybody, and prints its result once.

pub mod cancel;
pub mod explain;
pub mod hosts;
pub mod list;
pub mod node;
pub mod plan;
mod plan_offline;
pub mod show;
pub mod sites;
pub mod submit;
mod wait;

use jiff::Zoned;

use super::{
    args::GlobalArgs,
    client::{Client, request_path},
    connection,
    error::CliError,
    output::Output,
    views::RequestList,
};
use crate::config::Surroundings;

/// What every command works with.
pub struct Context {
    /// Flags of every command.
    pub global: GlobalArgs,
    /// What is taken from the environment.
    pub surroundings: Surroundings,
    /// The start of the command, in the user's zone.
    pub now: Zoned,
    /// Where results go.
    pub output: Output,
}

impl Context {
    /// A connection to the user's node.
    fn connect(&self) -> Result<Client, CliError> {
        connection::connect(&self.global, &self.surroundings)
    }
}

/// The API path of the request that `selector` means; `last` is the newest one.
fn path_of(client: &Client, selector: &str) -> Result<String, CliError> {
    if selector != "last" {
        return Ok(request_path(selector));
    }
    let newest: RequestList = client.get("/v1/requests?limit=1")?;
    newest.requests.first().map(|view| request_path(&view.id)).ok_or(CliError::NoLast)
}
