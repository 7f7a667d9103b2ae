//! What can go wrong for a user, what to do about it, and the exit code that says so.
//!
//! Invariant: every error has exactly one documented exit code.

use std::{fmt, io};

use kolo_api::request_view::{RequestState, RequestView};
use kolo_config::{ConfigError, ConfigSource, NodeConfig};
use kolo_storage::data_dir::DataDirError;
use kolo_text::document::DocumentError;
use kolo_trust::{TokenError, TrustFileError};
use ureq::http::StatusCode;

use super::exit::Exit;

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

/// Runs a node with this configuration until it is told to stop, and reads the configuration again from where it came.
pub type RunNode = fn(NodeConfig, ConfigSource) -> Result<(), NodeFailure>;

/// Why a node did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeFailure {
    /// A configured value that only the running node can judge.
    #[error("{0}")]
    Value(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
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
    /// The node says what is wrong.
    #[error("{message}")]
    Problem {
        /// The HTTP status.
        status: StatusCode,
        message: String,
        /// What the user can do about it.
        hint: Option<String>,
    },
    /// A key, a credential or a grid's file is wrong, or does not allow what was asked.
    #[error(transparent)]
    Trust(#[from] TrustFileError),
    /// A join token is wrong.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Node(#[from] NodeFailure),
    /// The request came to an end that is no reservation.
    #[error("{}", outcome_text(.0))]
    Unreserved(Box<RequestView>),
    /// What was asked cannot be done, or has not been.
    #[error("{message}")]
    Failed { message: String, exit: Exit },
    /// An error that something more can be said about.
    #[error("{error}")]
    Hinted {
        error: Box<CliError>,
        /// What else the user can do about it.
        hint: String,
    },
    /// Output or a runtime service failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        source: io::Error,
    },
}

impl CliError {
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Usage(_)
            | CliError::Document(_)
            | CliError::Config(_)
            | CliError::Token(_)
            | CliError::Node(NodeFailure::Value(_)) => Exit::Usage,
            // Expired, too wide, or not of this grid.
            CliError::Trust(TrustFileError::Trust(_)) => Exit::Refused,
            CliError::Problem { status, .. } => match *status {
                StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Exit::Usage,
                StatusCode::FORBIDDEN => Exit::Refused,
                StatusCode::SERVICE_UNAVAILABLE => Exit::Unreachable,
                _ => Exit::Failure,
            },
            CliError::Hinted { error, .. } => error.exit(),
            CliError::Unreserved(view) => Exit::of(view),
            CliError::Failed { exit, .. } => *exit,
            CliError::DataDir(_) | CliError::Node(_) | CliError::Trust(_) | CliError::Io { .. } => Exit::Failure,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            CliError::Problem { hint, .. } => hint.clone(),
            CliError::Hinted { error, hint } => {
                Some(error.hint().map_or_else(|| hint.clone(), |more| format!("{hint}; {more}")))
            }
            CliError::Usage(_) => Some("see kolo --help".to_owned()),
            CliError::Unreserved(view) => Some(format!("kolo explain {} says why", view.id)),
            _ => None,
        }
    }

    /// The same error, with what else the user can do about it.
    pub fn hinted(self, hint: impl Into<String>) -> CliError {
        CliError::Hinted { error: Box::new(self), hint: hint.into() }
    }

    /// What was asked cannot be done, or has not been.
    pub fn failed(message: impl Into<String>) -> CliError {
        CliError::Failed { message: message.into(), exit: Exit::Failure }
    }

    /// `kolo run` could not run its command, or not to its end.
    pub fn of_run(code: u8, message: impl Into<String>) -> CliError {
        CliError::Failed { message: message.into(), exit: Exit::Run(code) }
    }

    /// The same for any error, but of what was typed and of one with such a code already.
    pub fn in_run(code: u8, error: CliError) -> CliError {
        if matches!(error.exit(), Exit::Usage | Exit::Run(_)) {
            return error;
        }
        let hint = error.hint();
        hint.into_iter().fold(CliError::of_run(code, error.to_string()), CliError::hinted)
    }

    /// A plan was asked and there is none.
    pub fn no_placement(why: &str) -> CliError {
        CliError::Failed { message: format!("no placement: {why}"), exit: Exit::NoPlacement }
    }

    /// A reservation was not extended.
    pub fn not_extended(why: impl fmt::Display) -> CliError {
        CliError::failed(format!("not extended: {why}"))
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
