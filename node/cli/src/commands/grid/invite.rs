//! `kolo grid invite`: one token that makes somebody a member.

use broker::{
    time::Time,
    trust::{Limits, Role},
};
use kolo_api::grid::Status;
use kolo_text::{safe::safe, time::format_time};
use kolo_trust::{ADDRESSES_MAX, GridFile, IssuedList, Issuer, Terms, Token};
use serde::Serialize;

use super::closed_grid;
use crate::{
    commands::Context,
    error::CliError,
    exit::Exit,
    grid_args::{InviteArgs, RoleArg},
    output::{Look, Report},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; the root's or an admin's key must be at hand.
pub fn run(context: &mut Context, args: &InviteArgs) -> Result<Exit, CliError> {
    let data_dir = context.data_dir()?;
    let (grid, root) = closed_grid(&data_dir)?;
    let issuer = issuer(context, &grid)?;
    let now = context.time();
    let with_user = args.role == RoleArg::Site && !args.no_user;
    let roles = [Some(Role::from(args.role)), with_user.then_some(Role::User)];
    let limits = args.limits.iter().fold(Limits::default(), |all, limit| all.or(*limit));
    let name = args.name.clone().unwrap_or_default();
    let (asked, most) = (now + args.expires, issuer.counts_until(&grid, now)?);
    let (expires, is_cut) = (asked.min(most), asked > most);
    let mut list = IssuedList::load(&data_dir)?;
    let (mut invitations, mut issued) = (Vec::new(), Vec::new());
    for role in roles.into_iter().flatten() {
        // Limits are those of users; a site reserves nothing.
        let limits = if role == Role::Site { Limits::default() } else { limits };
        let invited = issuer.invite(&grid, &Terms { role, name: name.clone(), limits, expires }, now)?;
        invitations.push(invited.invitation);
        issued.push(invited.issued);
    }
    let bootstrap = addresses(context, &grid, args)?;
    let is_local = bootstrap.iter().all(|address| is_loopback(address));
    let token = Token { grid: grid.id.clone(), root, bootstrap, invitations }.to_text()?;
    // What is not on the list could not be revoked by name.
    list.add(issued, now)?;
    let role = Role::from(args.role).as_str();
    context.done(&Invitation { grid: grid.id, role, name, with_user, expires, is_cut, is_local, token })
}

/// Who invites or revokes here.
pub(super) fn issuer(context: &Context, grid: &GridFile) -> Result<Issuer, CliError> {
    Issuer::find(grid, &context.data_dir()?, &context.wallets()?)?.ok_or_else(|| {
        CliError::failed(format!(
            "neither the root key of grid {} nor the key of one of its admins is here: only they invite and revoke",
            grid.id
        ))
    })
}

/// Addresses for the token: those that were given, else those of the node that runs here, else those it joined with.
fn addresses(context: &Context, grid: &GridFile, args: &InviteArgs) -> Result<Vec<String>, CliError> {
    for text in &args.bootstrap {
        text.parse::<discovery::Multiaddr>()
            .map_err(|error| CliError::Usage(format!("--bootstrap {text:?} is no multiaddr: {error}")))?;
    }
    if !args.bootstrap.is_empty() {
        return Ok(args.bootstrap.iter().take(ADDRESSES_MAX).cloned().collect());
    }
    let running = context.connect().and_then(|client| client.get::<Status>("/v1/status"));
    match running {
        Ok(status) if status.grid == grid.id => Ok(status.listen.into_iter().take(ADDRESSES_MAX).collect()),
        _ if !grid.bootstrap.is_empty() => Ok(grid.bootstrap.clone()),
        _ => Err(CliError::failed(
            "nobody would find the grid with this token: start the node here first (kolo node), or name an address of one \
             with --bootstrap"
                .to_owned(),
        )),
    }
}

fn is_loopback(address: &str) -> bool {
    address.starts_with("/ip4/127.") || address.starts_with("/ip6/::1/")
}

/// An invitation that was made.
#[derive(Serialize)]
struct Invitation {
    grid: String,
    role: &'static str,
    name: String,
    with_user: bool,
    expires: Time,
    /// Whether it was to count for longer than its maker does.
    #[serde(skip)]
    is_cut: bool,
    #[serde(skip)]
    is_local: bool,
    token: String,
}

impl Report for Invitation {
    fn text(&self, look: &Look) -> String {
        let who = if self.name.is_empty() { String::new() } else { format!(" {}", safe(&self.name)) };
        let owner = if self.with_user { " and its owner as a user" } else { "" };
        let expires = format_time(self.expires, &look.zone);
        let mut text = format!("invites {}{who}{owner} to grid {}, until {expires}:\n\n", self.role, self.grid);
        text.push_str(&format!("{}\n\n", self.token));
        text.push_str("next: whoever you give it to puts it into a file of mode 600, and runs kolo join FILE. Whoever has the token can use it.\n");
        if self.is_cut {
            text.push_str("note: it counts no longer than your own credential as an admin does\n");
        }
        if self.is_local {
            text.push_str(
                "note: its addresses work on this machine only; let a node listen on others (--listen /ip4/0.0.0.0/tcp/4001), \
                 or name them with --bootstrap\n",
            );
        }
        text
    }
    fn ids(&self) -> Vec<String> {
        vec![self.token.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn the_token_stands_alone_when_that_is_asked() {
        let invitation = Invitation {
            grid: "lab-aaaa".to_owned(),
            role: "site",
            name: "ljubljana".to_owned(),
            with_user: true,
            expires: Time(1_763_712_000),
            is_cut: false,
            is_local: false,
            token: "kolo1-abc".to_owned(),
        };
        assert_eq!(printed(&invitation, OutputFormat::Quiet), "kolo1-abc\n");
        assert_eq!(
            printed(&invitation, OutputFormat::Table),
            "invites site ljubljana and its owner as a user to grid lab-aaaa, until 2025-11-21 08:00:00+00:00:\n\n\
             kolo1-abc\n\nnext: whoever you give it to puts it into a file of mode 600, and runs kolo join FILE. Whoever has the token can use it.\n"
        );
        let cut = printed(&Invitation { is_cut: true, ..invitation }, OutputFormat::Table);
        assert!(cut.ends_with("note: it counts no longer than your own credential as an admin does\n"), "{cut}");
    }
}
