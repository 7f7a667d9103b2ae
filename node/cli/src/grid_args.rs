//! The raw arguments of `kolo grid` and `kolo join`.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use std::path::PathBuf;

use broker::{
    time::Span,
    trust::{Limits, Role},
};
use clap::{Args, Subcommand, ValueEnum};
use kolo_text::time::parse_span;

/// `kolo grid`
#[derive(Debug, Args)]
pub struct GridArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: GridCommand,
}

/// The commands of `kolo grid`.
#[derive(Debug, Subcommand)]
pub enum GridCommand {
    /// Make a grid of your own in the data directory, with this machine's node as its first site
    Init(InitArgs),
    /// Make a token with which somebody joins the grid
    Invite(InviteArgs),
    /// Take a member's rights away, everywhere
    Revoke(RevokeArgs),
    /// Show the grid, its members and revocations, as this node knows them
    Show,
    /// List the invitations and who came by each, as far as this node knows
    Invitations,
    /// Let a new root key follow the one of the grid
    RotateRoot(RotateRootArgs),
}

/// `kolo grid init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Name of the grid (a-z 0-9 -); its id adds what makes it unique
    #[arg(long, value_name = "NAME", default_value = "grid")]
    pub name: String,
    /// Anybody may join and use the grid; nobody is invited or revoked
    #[arg(long)]
    pub open: bool,
    /// Name of this site [default: the host name]
    #[arg(long, value_name = "NAME", conflicts_with = "open")]
    pub site: Option<String>,
    /// Your own name in the grid
    #[arg(long, value_name = "NAME", default_value = "founder", conflicts_with = "open")]
    pub user: String,
}

/// A role, as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// Offers hosts and takes requests
    Site,
    /// Asks for reservations
    User,
    /// Invites and revokes, and may do what a user may
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Role {
        match role {
            RoleArg::Site => Role::Site,
            RoleArg::User => Role::User,
            RoleArg::Admin => Role::Admin,
        }
    }
}

/// `kolo grid invite`
#[derive(Debug, Args)]
pub struct InviteArgs {
    /// What the invited may do
    #[arg(long, value_name = "ROLE")]
    pub role: RoleArg,
    /// Name of the member [default: left to them]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The user's limit at every site: holds=8, reservations=50, host-hours=500 or reach=7d; may be repeated
    #[arg(long = "limit", value_name = "LIMIT=VALUE", value_parser = parse_limit)]
    pub limits: Vec<Limits>,
    /// For how long the token, and every credential made with it, is good; at most as long as yours, for an admin
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = parse_life)]
    pub expires: Span,
    /// Multiaddr of a node of the grid; may be repeated [default: those of the node that runs here]
    #[arg(long, value_name = "MULTIADDR")]
    pub bootstrap: Vec<String>,
    /// With --role site: do not invite its owner as a user as well
    #[arg(long)]
    pub no_user: bool,
}

/// `kolo grid revoke`
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Name of the member, key (64 digits), site id, or the fingerprint of an invitation, which stands behind the @ of a name
    #[arg(value_name = "NAME|KEY|SITE|FINGERPRINT")]
    pub who: String,
    /// Only the member of this role, when a name has several
    #[arg(long, value_name = "ROLE")]
    pub role: Option<RoleArg>,
    /// Also when it takes rights away from this site or from you
    #[arg(long)]
    pub myself: bool,
    /// Take the hosts back that the revoked account has reserved, at every site
    #[arg(long)]
    pub take_back: bool,
}

/// `kolo grid rotate-root`
#[derive(Debug, Args)]
pub struct RotateRootArgs {
    /// For how long what leads to the old root key goes on counting, at most 366d; 1s when somebody else has the old key
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = parse_life)]
    pub overlap: Span,
    /// File with the old root key [default: where the last rotation, or kolo grid init, has left it in the data directory]
    #[arg(long, value_name = "FILE")]
    pub root_key: Option<PathBuf>,
    /// Make no new key: end at once for how long what leads to the root keys before this one counts
    #[arg(long, conflicts_with = "overlap")]
    pub end_overlap: bool,
}

/// `kolo join`
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// File with the token, which only you can read; - reads it from standard input
    #[arg(value_name = "FILE")]
    pub file: String,
    /// Your name in the grid, or the site's [default: as the invitation says, else the host name for a site]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// The key that signs a user's requests.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyArgs {
    /// Key that signs the request; its credentials lie beside it [default: KOLO_KEY, else user.key in
    /// $XDG_CONFIG_HOME/kolo or the data directory; without a key the node signs for its operator]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Reads `holds=8`.
fn parse_limit(text: &str) -> Result<Limits, String> {
    let expected = || "expected holds=8, reservations=50, host-hours=500, credits=100 or reach=7d".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(expected)?;
    let count = || value.parse::<u32>().ok().filter(|count| *count > 0).ok_or_else(expected);
    let none = Limits::default();
    match name {
        "holds" => Ok(Limits { max_holds: Some(count()?), ..none }),
        "reservations" => Ok(Limits { max_reservations: Some(count()?), ..none }),
        "host-hours" => Ok(Limits { max_host_hours: Some(count()?.into()), ..none }),
        "credits" => Ok(Limits { max_credits: Some(count()?), ..none }),
        "reach" => Ok(Limits { max_reach_s: Some(parse_span(value).map_err(|error| error.to_string())?), ..none }),
        _ => Err(expected()),
    }
}

/// Reads how long a credential, or an old root key, is good.
fn parse_life(text: &str) -> Result<Span, String> {
    parse_span(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        grid: GridArgs,
    }

    fn invite(line: &[&str]) -> Result<InviteArgs, String> {
        let words = ["grid", "invite"].iter().chain(line);
        match Line::try_parse_from(words).map_err(|error| error.to_string())?.grid.command {
            GridCommand::Invite(args) => Ok(args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn limits_and_life_are_read() {
        let args =
            invite(&["--role", "user", "--limit", "holds=8", "--limit", "reach=7d", "--expires", "30d"]).unwrap();
        let limits = args.limits.iter().fold(Limits::default(), |all, limit| all.or(*limit));
        assert_eq!((limits.max_holds, limits.max_reach_s), (Some(8), Some(Span(7 * 86_400))));
        assert_eq!(args.expires, Span(30 * 86_400));
        for (line, expected) in [
            (&["--role", "king"][..], "possible values: site, user, admin"),
            (&["--role", "user", "--limit", "holds=0"], "expected holds=8"),
            (&["--role", "user", "--limit", "gold=1"], "expected holds=8"),
            (&["--role", "user", "--limit", "reach=7"], "has no unit"),
            (&["--role", "user", "--expires", "30"], "has no unit"),
            (&[], "--role"),
        ] {
            let error = invite(line).unwrap_err();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }
}
