//! What a user is told when a call of the node's API has failed.

use std::{fmt::Display, io, path::Path, time::Duration};

use kolo_api::problem::Problem;
use ureq::{
    Timeout,
    http::{Method, StatusCode},
};

use crate::{error::CliError, exit::Exit};

/// The rule by which a node refuses what may mean several things.
const AMBIGUOUS: &str = "ambiguous";

/// The error for a problem that the node has reported; `list` is the command that lists things of the kind asked for.
pub(super) fn refusal(status: StatusCode, problem: &Problem, list: Option<&'static str>) -> CliError {
    let what = [problem.detail.as_str(), problem.title.as_str()].into_iter().find(|text| !text.is_empty());
    let what = what.map_or_else(|| format!("the node answers {status}"), str::to_owned);
    let message = match &problem.key {
        // The texts of the broker name the key already.
        Some(key) if !what.contains(key.as_str()) => format!("{key}: {what}"),
        _ => what,
    };
    let hint = match list {
        _ if status == StatusCode::UNAUTHORIZED => Some(
            "with a key you submit, and see and change what is yours; for the rest the node's operator makes a token (kolo token), which \
             you name with --token-file"
                .to_owned(),
        ),
        Some(list) if status == StatusCode::NOT_FOUND => Some(format!("{list} shows what there is")),
        Some(list) if problem.rule.as_deref() == Some(AMBIGUOUS) => {
            Some(format!("write more of the id; {list} shows what there is"))
        }
        _ => None,
    };
    CliError::Problem { status, message, hint }
}

/// The command that lists what is of the kind of the thing at `path`.
pub(super) fn list_of(path: &str) -> Option<&'static str> {
    match path.split('/').nth(2) {
        Some("local") => Some("kolo local list"),
        Some("requests" | "reservations") => Some("kolo list"),
        Some("batches") => Some("kolo batch list"),
        Some("tokens") => Some("kolo token list"),
        _ => None,
    }
}

/// The node that was called, as its user knows it.
pub(super) struct Called<'c> {
    /// Scheme, address and port of the API.
    pub base: &'c str,
    /// The path of the socket where the call went by one; otherwise the same as `base`.
    pub place: String,
    /// Whether the node had to show a certificate.
    pub is_tls: bool,
}

impl Called<'_> {
    /// The error when the program at the address does not know the token in `file`.
    pub(super) fn not_the_node(&self, file: &Path, why: &str) -> CliError {
        let message = format!(
            "what listens at {} is not the node whose token is in {}: it does not know the token{why}; nothing was sent",
            self.base,
            file.display()
        );
        let hint = "see which program listens there; name the token of the node there with --token-file or --data-dir: a token may also have \
                    been revoked, and a tunnel must begin at the address and port at which the node listens";
        CliError::failed(message).hinted(hint)
    }

    /// Why there is no whole answer, for which `waited` was the limit.
    pub(super) fn unanswered(&self, error: &ureq::Error, method: &Method, waited: Duration) -> CliError {
        match error {
            ureq::Error::Timeout(waited_for) if !matches!(waited_for, Timeout::Resolve | Timeout::Connect) => {
                let waited = waited.as_secs();
                let hint = match *method {
                    Method::GET => "it is busy, or has been stopped; try again",
                    _ => "it may still do what was asked; kolo list shows what it has",
                };
                let message = format!("the node at {} has not answered within {waited} s", self.place);
                CliError::Failed { message, exit: Exit::Unreachable }.hinted(hint)
            }
            error => self.transport_error(error),
        }
    }

    /// The error when the answer is not that of a Kolo API.
    pub(super) fn no_node(&self, how: impl Display) -> CliError {
        let hint = "name the address of a node's API with --api or KOLO_API; kolo node says it when it starts";
        CliError::failed(format!("what answers at {} is no Kolo node: {how}", self.place)).hinted(hint)
    }

    /// The error when the answer has fields that this version does not read.
    pub(super) fn not_understood(&self, why: impl Display) -> CliError {
        let hint = "it is no Kolo node, or one of another version";
        CliError::failed(format!("the answer of {} is not understood: {why}", self.place)).hinted(hint)
    }

    /// Nobody who is trusted has signed the certificate, or it is of another name.
    fn untrusted(&self, why: impl Display) -> CliError {
        CliError::failed(format!("the node at {} is not trusted: {why}", self.base)).hinted(
            "name the certificate of who has signed that of the node with --ca-file, and the node as its certificate \
             does with --api; a node's own certificate must be none of an authority (CaUsedAsEndEntity: make it with \
             -addext basicConstraints=CA:FALSE)",
        )
    }

    pub(super) fn transport_error(&self, error: &ureq::Error) -> CliError {
        match error {
            // So says rustls when a certificate or a handshake is not as it should be.
            ureq::Error::Io(error) if self.is_tls && error.kind() == io::ErrorKind::InvalidData => {
                self.untrusted(error)
            }
            ureq::Error::Rustls(error) => self.untrusted(error),
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed => {
                let place = &self.place;
                let message = format!("no node answers at {place}: {error}");
                let address = place.trim_start_matches("http://").trim_start_matches("https://");
                let hint = format!("is `kolo node` running at {address}? Start it, or name another address with --api");
                CliError::Failed { message, exit: Exit::Unreachable }.hinted(hint)
            }
            other => self.not_understood(other),
        }
    }
}
