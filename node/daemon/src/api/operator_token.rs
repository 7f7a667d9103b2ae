//! The operator's token while the node runs, which another one may replace.
//!
//! Invariant: the token in force is in the file. What somebody has begun with an older one ends when it is replaced: streams, sessions and
//! links, and calls that only look.

use std::{path::PathBuf, sync::Mutex};

use kolo_runtime::lock::locked;
use kolo_trust::{Secret, TokenKey, TrustFileError};
use tokio::sync::watch;

pub struct OperatorToken {
    file: PathBuf,
    current: watch::Sender<Secret>,
    /// Held while the file is written, so that an older token never replaces a newer one.
    writing: Mutex<()>,
}

impl OperatorToken {
    /// The token that is in `file`.
    pub fn new(file: PathBuf, token: Secret) -> OperatorToken {
        OperatorToken { file, current: watch::Sender::new(token), writing: Mutex::new(()) }
    }

    /// Whether `shown` is the token.
    pub fn is(&self, shown: &str) -> bool {
        self.current.borrow().is(shown)
    }

    pub fn key(&self) -> TokenKey {
        TokenKey::of(self.current.borrow().as_str())
    }

    /// The time from now on for which the present token counts.
    pub fn term(&self) -> TokenTerm {
        TokenTerm { token: self.current.subscribe(), is_bound: false }
    }

    /// Makes another token, which is on disk and in force when the call returns; may block.
    ///
    /// # Errors
    /// [`TrustFileError`] when it cannot be written down; then the old one still counts.
    pub fn replace(&self) -> Result<Secret, TrustFileError> {
        let _writing = locked(&self.writing);
        let token = Secret::random()?;
        token.replace(&self.file)?;
        self.current.send_replace(token.clone());
        Ok(token)
    }

    /// Ends calls that came by a session of an older token while that was replaced.
    pub fn end_terms(&self) {
        self.current.send_modify(|_| ());
    }
}

/// For how long the token counts that was in force when a call came.
#[derive(Debug, Clone)]
pub struct TokenTerm {
    token: watch::Receiver<Secret>,
    is_bound: bool,
}

impl TokenTerm {
    /// The term for a call that ends with the token (`is_bound`), or goes on without it, as its caller came by it.
    #[must_use]
    pub fn binding(self, is_bound: bool) -> TokenTerm {
        TokenTerm { is_bound, ..self }
    }

    /// Whether the token has been replaced since.
    pub fn is_over(&self) -> bool {
        self.token.has_changed().unwrap_or(true)
    }

    /// Waits until what the call has begun must end.
    pub async fn until_over(mut self) {
        if !self.is_bound {
            std::future::pending::<()>().await;
        }
        // An error means that the node stops.
        let _ = self.token.changed().await;
    }
}
