//! `kolo whoami`: the user's key, and who he is by it.

use std::{fmt::Write as _, path::PathBuf};

use jiff::Timestamp;
use kolo_api::session::SessionState;
use kolo_text::safe::safe;
use kolo_trust::{Named, Wallet, ssh_key};
use serde::Serialize;

use super::Context;
use crate::{
    args::WhoamiArgs,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

/// Who a user is.
#[derive(Debug, Serialize)]
pub struct Who {
    /// The public key.
    key: String,
    /// The same in the form of SSH.
    ssh_key: String,
    /// The file with the private one, or with the name of that of an agent.
    file: PathBuf,
    /// Who he is in grids.
    members: Vec<Named>,
    /// The node that answers, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<AtNode>,
}

/// Who he is to a node.
#[derive(Debug, Serialize)]
struct AtNode {
    site: String,
    grid: String,
    /// What opens it: the scope of a token, or `key`.
    access: String,
}

impl Who {
    /// Whose key is in a wallet; none without one.
    ///
    /// # Errors
    /// [`CliError`] when a file cannot be used.
    pub fn of(wallet: &Wallet) -> Result<Option<Who>, CliError> {
        let Some(key) = wallet.user_key()?.map(|key| key.public()) else { return Ok(None) };
        let line = ssh_key::line(&ssh_key::public(key.as_bytes()));
        Ok(Some(Who {
            key: key.to_string(),
            ssh_key: line.map_err(|error| CliError::failed(error.to_string()))?,
            file: wallet.key_path().to_owned(),
            members: wallet.names()?,
            node: None,
        }))
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError`] when there is no key.
pub fn run(context: &mut Context, args: &WhoamiArgs) -> Result<Exit, CliError> {
    let found = match context.keys(&args.key)?.files().first() {
        Some(file) => Who::of(&Wallet::of_key(file))?,
        None => None,
    };
    let mut who = found.ok_or_else(|| CliError::failed("you have no key").hinted("kolo login makes one"))?;
    who.node = at_node(context, args);
    context.done(&who)
}

/// Who the user is to the node that answers; none when none does, or it knows nobody of him.
fn at_node(context: &Context, args: &WhoamiArgs) -> Option<AtNode> {
    let client = context.connect_as(&args.key).ok()?;
    let node = client.challenge("GET", "/v1/session").ok()?;
    let session: SessionState = client.get("/v1/session").ok()?;
    let access = session.scope.map_or("key", |scope| scope.as_str()).to_owned();
    Some(AtNode { site: node.site.to_string(), grid: node.grid, access })
}

impl Report for Who {
    fn text(&self, _: &Look) -> String {
        let mut text = format!(
            "key    {}\nssh    {}\nfile   {}\n",
            self.key,
            self.ssh_key,
            safe(&self.file.display().to_string())
        );
        for Named { grid, role, name, expires } in &self.members {
            let until = Timestamp::from_second(expires.0).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "grid   {}: {role} {} until {}", safe(grid), safe(name), until.strftime("%Y-%m-%d"));
        }
        if let Some(AtNode { site, grid, access }) = &self.node {
            let _ = writeln!(text, "node   {} of {}, opened by {access}", safe(site), safe(grid));
        }
        text
    }

    fn ids(&self) -> Vec<String> {
        vec![self.key.clone()]
    }
}
