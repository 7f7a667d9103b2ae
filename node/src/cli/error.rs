//! What can go wrong for a user, what to do about it, and the exit code that says so.
//!
//! Invariant: every error has exactly one documented exit code.

use std::{fmt, io};

use super::{client::ApiError, exit::Exit};
use crate::{
    api::request_view::{RequestState, RequestView},
    config::ConfigError,
    daemon::DaemonError,
    storage::data_dir::DataDirError,
    text::document::DocumentError,
    trust::{TokenError, TrustFileError},
};

/// The end of a request in one sentence.
fn outcome_text(view: &RequestView) -> String {
    let head = match view.state {
        RequestState::Rejected => format!("no placement in the window for request {}", view.id),
        state => format!("request {} is {state}", view.id),
    };
    match &view.reason {
        Some(reason) => format!("{head}: {}", reason.detail),
        None => head,
    }
}

/// Why a command ended without doing what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// What was typed does not make sense.
    #[error("{0}")]
    Usage(String),
    /// A file that was named is unreadable or malformed.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node did not do what was asked of it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A key, a credential or a grid's file is wrong, or does not allow what was asked.
    #[error(transparent)]
    Trust(#[from] TrustFileError),
    /// A join token is wrong.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// What was asked of the grid cannot be done from here.
    #[error("{0}")]
    Membership(String),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The daemon ended.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The request came to an end that is no reservation.
    #[error("{}", outcome_text(.0))]
    Unreserved(Box<RequestView>),
    /// Waiting ended before the request did.
    #[error("request {id} is still {state} after {waited}")]
    StillWaiting {
        /// The request.
        id: String,
        /// What it is doing.
        state: String,
        /// How long was waited.
        waited: String,
    },
    /// The user interrupted the wait; the request goes on.
    #[error("interrupted; request {0} goes on")]
    Interrupted(String),
    /// The user interrupted before the node had answered.
    #[error("interrupted before the node answered")]
    InterruptedEarly,
    /// The cancelled request did not end up cancelled.
    #[error("request {id} is {state}, not cancelled")]
    NotCancelled {
        /// The request.
        id: String,
        /// Its state.
        state: String,
    },
    /// A reservation was not extended.
    #[error("not extended: {why}")]
    NotExtended {
        /// Why.
        why: String,
    },
    /// A plan was asked and there is none.
    #[error("no placement: {0}")]
    NoPlan(String),
    /// Nobody has anything of a request.
    #[error(
        "no request {selector:?} was submitted through this node, and none of the {asked} sites that it knows has a \
         reservation of that name ({silent} did not answer)"
    )]
    NothingReserved {
        /// What was asked for.
        selector: String,
        /// Sites asked.
        asked: usize,
        /// Sites that did not answer.
        silent: usize,
    },
    /// There is no request that `last` could mean.
    #[error("there is no request yet")]
    NoLast,
    /// An error that something more can be said about.
    #[error("{error}")]
    Hinted {
        /// The error.
        error: Box<CliError>,
        /// What else the user can do about it.
        hint: String,
    },
    /// Output or a runtime service failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl CliError {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Usage(_)
            | CliError::Document(_)
            | CliError::Config(_)
            | CliError::Token(_)
            | CliError::Daemon(DaemonError::Value { .. }) => Exit::Usage,
            // Expired, too wide, or not of this grid.
            CliError::Trust(TrustFileError::Trust(_)) => Exit::Refused,
            CliError::Api(error) => error.exit(),
            CliError::Hinted { error, .. } => error.exit(),
            CliError::Unreserved(view) => Exit::of(view),
            CliError::NoPlan(_) => Exit::NoPlacement,
            CliError::Daemon(_)
            | CliError::DataDir(_)
            | CliError::Trust(_)
            | CliError::Membership(_)
            | CliError::StillWaiting { .. }
            | CliError::Interrupted(_)
            | CliError::InterruptedEarly
            | CliError::NotCancelled { .. }
            | CliError::NotExtended { .. }
            | CliError::NothingReserved { .. }
            | CliError::NoLast
            | CliError::Io { .. } => Exit::Failure,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            CliError::Api(error) => error.hint(),
            CliError::Hinted { error, hint } => {
                Some(error.hint().map_or_else(|| hint.clone(), |more| format!("{hint}; {more}")))
            }
            CliError::Usage(_) => Some("see kolo --help".to_owned()),
            CliError::Unreserved(view) => Some(format!("kolo explain {} says why", view.id)),
            CliError::StillWaiting { id, .. } | CliError::Interrupted(id) => {
                Some(format!("kolo show {id} says how it goes; kolo cancel {id} ends it"))
            }
            CliError::InterruptedEarly => Some("kolo list says whether the node has the request".to_owned()),
            CliError::NotCancelled { id, .. } => Some(format!("kolo show {id} says more")),
            CliError::NoLast => Some("kolo submit makes one".to_owned()),
            CliError::NothingReserved { .. } => Some("give the whole id, as kolo submit printed it".to_owned()),
            CliError::Document(_)
            | CliError::Config(_)
            | CliError::Trust(_)
            | CliError::Token(_)
            | CliError::Membership(_)
            | CliError::Daemon(_)
            | CliError::DataDir(_)
            | CliError::NoPlan(_)
            | CliError::NotExtended { .. }
            | CliError::Io { .. } => None,
        }
    }

    /// Whether the reader of standard output has gone, which is no failure (`kolo list | head`).
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, CliError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// What is wrong with the value of `flag`.
    pub fn of_flag(flag: &str, error: impl fmt::Display) -> CliError {
        CliError::Usage(format!("{flag}: {error}"))
    }

    /// An error of the output.
    pub fn output(source: io::Error) -> CliError {
        CliError::Io { doing: "writing to standard output", source }
    }
}
