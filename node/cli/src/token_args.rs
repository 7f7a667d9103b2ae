//! The raw arguments of `kolo token`.
//!
//! Invariant: as in `args`, nothing is said here about what they do.

use clap::{Args, Subcommand};
use kolo_trust::Scope;

/// `kolo token`
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// The commands of `kolo token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, once
    Create(TokenCreateArgs),
    /// List the tokens; what they are is kept nowhere
    List,
    /// Take a token back, at once
    Revoke(TokenRevokeArgs),
    /// Make another token for the operator, in place of api.token; the old one is refused at once
    Rotate,
}

/// `kolo token create`
#[derive(Debug, Args)]
pub struct TokenCreateArgs {
    /// What the token may do
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub scope: Scope,
    /// With --scope submit: whose requests it makes, sees and cancels
    #[arg(long, value_name = "NAME", required_if_eq("scope", "submit"))]
    pub user: Option<String>,
    /// What the token is called [default: the user, else the scope]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `kolo token revoke`
#[derive(Debug, Args)]
pub struct TokenRevokeArgs {
    /// What the token is called
    #[arg(value_name = "NAME")]
    pub name: String,
}
