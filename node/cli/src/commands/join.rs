//! `kolo join`: makes keys and credentials of one's own with a join token.
//!
//! Invariant: keys come first and `grid.json` last, so an interrupted command can be given again; a directory that belongs
//! to another grid is left alone.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use broker::trust::{Holder, Role, Subject, credential::is_name};
use kolo_storage::data_dir::DataDir;
use kolo_text::safe::safe;
use kolo_trust::{GridFile, Invitation, Token, Wallet, files};
use serde::Serialize;

use super::{Context, grid::site_name};
use crate::{
    error::CliError,
    exit::Exit,
    grid_args::JoinArgs,
    output::{Look, Report},
};

/// No token is longer.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// Runs the command.
///
/// # Errors
/// [`CliError`] when the token is no good (any more), or the directory belongs to another grid.
pub fn run(context: &mut Context, args: &JoinArgs) -> Result<Exit, CliError> {
    let token = Token::from_text(&text_of(&args.file)?)?;
    let grid = GridFile::new(token.grid.clone(), Some(token.root), token.bootstrap.clone());
    let now = context.time();
    let invited = |invitation: &Invitation| {
        let holder = invitation.chain.verify_invitation(&token.grid, &token.root, now);
        holder.map(|holder| (holder, invitation.clone())).map_err(kolo_trust::TrustFileError::from)
    };
    let invitations = token.invitations.iter().map(invited).collect::<Result<Vec<_>, _>>()?;
    let has_site = invitations.iter().any(|(holder, _)| holder.role == Role::Site);
    let directory = if has_site { context.data_dir()? } else { user_directory(context)? };
    let mut joined = Joined { grid: grid.id.clone(), directory: directory.clone(), members: Vec::new() };
    if has_site {
        check_grid(&directory, &grid)?;
    }
    for (holder, invitation) in &invitations {
        let name = name_of(context, args, holder, has_site)?;
        joined.members.push(accept(&directory, &grid, holder.role, invitation, &name, context)?);
    }
    if has_site && GridFile::load(&directory)?.is_none() {
        grid.create(&directory)?;
    }
    context.done(&joined)
}

fn text_of(file: &str) -> Result<String, CliError> {
    if Token::is_meant_by(file) {
        return Err(CliError::Usage(
            "a token on the command line can be read in the list of processes and in the history of the shell, and it is good until it \
             expires: put it into a file of mode 600 and type kolo join FILE, or type kolo join - and hand it to standard input. If others \
             use this machine, ask for another token, and have this one revoked"
                .to_owned(),
        ));
    }
    if file != "-" {
        let none = || CliError::Usage(format!("{file}: there is no such file; expected one with the token, or -"));
        return files::read_private(Path::new(file), TOKEN_BYTES_MAX)?.ok_or_else(none);
    }
    let mut text = String::new();
    let read = io::stdin().lock().take(TOKEN_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|source| CliError::Io { doing: "reading the token from standard input", source })?;
    Ok(text)
}

/// Where a user's key goes: the directory that was named, else the user's own.
pub(super) fn user_directory(context: &Context) -> Result<PathBuf, CliError> {
    let own = || context.surroundings.user_dir();
    context.global.data_dir.clone().or_else(own).ok_or_else(|| {
        CliError::failed(
            "no place for your key: neither XDG_CONFIG_HOME nor HOME is set; name a directory with --data-dir"
                .to_owned(),
        )
    })
}

fn check_grid(data_dir: &Path, grid: &GridFile) -> Result<(), CliError> {
    match GridFile::load(data_dir)? {
        Some(kept) if kept.id != grid.id => Err(CliError::failed(format!(
            "{} belongs to grid {} already; join grid {} with another --data-dir",
            data_dir.display(),
            kept.id,
            grid.id
        ))),
        _ => Ok(()),
    }
}

fn name_of(context: &Context, args: &JoinArgs, holder: &Holder, has_site: bool) -> Result<String, CliError> {
    if !holder.name.is_empty() {
        return Ok(holder.name.clone());
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None if has_site => site_name(context, None),
        None => return Err(CliError::Usage("the invitation names nobody: say who you are with --name".to_owned())),
    };
    if is_name(&name) {
        return Ok(name);
    }
    let expected = "expected 1 to 64 bytes, no control characters, and nothing that looks like a key";
    Err(CliError::Usage(format!("--name {name:?}: {expected}")))
}

fn accept(
    directory: &Path,
    grid: &GridFile,
    role: Role,
    invitation: &Invitation,
    name: &str,
    context: &Context,
) -> Result<Member, CliError> {
    let wallet = Wallet::at(directory);
    let (subject, who) = if role == Role::Site {
        let site = DataDir::open(directory)?.identity()?.site_id().clone();
        (Subject::Site(site.clone()), site.to_string())
    } else {
        let key = wallet.user_key_or_new()?.public();
        (Subject::Key(key), key.fingerprint())
    };
    let now = context.time();
    let chain = kolo_trust::accept(grid, invitation, subject, name, now)?;
    wallet.keep(grid, role, &chain, now)?;
    Ok(Member { role, name: name.to_owned(), who })
}

#[derive(Serialize)]
struct Member {
    role: Role,
    name: String,
    who: String,
}

/// What was joined as whom.
#[derive(Serialize)]
struct Joined {
    grid: String,
    directory: PathBuf,
    members: Vec<Member>,
}

impl Report for Joined {
    fn text(&self, _: &Look) -> String {
        let directory = safe(&self.directory.display().to_string());
        let mut text = format!("joined grid {}; keys and credentials are in {directory}\n", self.grid);
        for member in &self.members {
            text.push_str(&format!("  {} {} ({})\n", member.role, safe(&member.name), member.who));
        }
        let has_site = self.members.iter().any(|member| member.role == Role::Site);
        text.push_str(&if has_site {
            format!("next: kolo node --data-dir {directory}\n")
        } else {
            "next: kolo submit, through a node of the grid (--api and --token-file say which)\n".to_owned()
        });
        text
    }
    fn ids(&self) -> Vec<String> {
        self.members.iter().map(|member| member.who.clone()).collect()
    }
}
