//! What a version of the protocol of direct requests is.

use std::fmt;

use super::{
    encoding::{DecodeError, EncodeError},
    message::{WireAnswer, WireRequest},
};

/// A kind with its body, or why there is none.
pub type Written = Result<(u16, Vec<u8>), EncodeError>;

/// One version: which kinds there are, how large they may be, and how their bodies are written.
pub trait AskVersion: fmt::Debug + Send + Sync + 'static {
    /// Stands at the end of the protocol's name.
    fn number(&self) -> u16;

    /// Whether this node speaks it; else it only tells those who do that their program is too old.
    fn is_spoken(&self) -> bool {
        true
    }

    /// Whether requests of this kind are understood.
    fn knows_request(&self, kind: u16) -> bool;

    /// The largest body of an answer of this kind; `None` when it is not understood.
    fn answer_bytes_max(&self, kind: u16) -> Option<usize>;

    /// The kind and the body of a request.
    ///
    /// # Errors
    /// [`EncodeError`]; never for what a node makes itself.
    fn write_request(&self, request: &WireRequest) -> Written;

    /// A request of a kind that is understood.
    ///
    /// # Errors
    /// [`DecodeError`] when the body is not one of this kind.
    fn read_request(&self, kind: u16, body: &[u8]) -> Result<WireRequest, DecodeError>;

    /// The kind and the body of an answer.
    ///
    /// # Errors
    /// [`EncodeError`]; never for what a node makes itself.
    fn write_answer(&self, answer: &WireAnswer) -> Written;

    /// An answer of a kind that is understood.
    ///
    /// # Errors
    /// [`DecodeError`] when the body is not one of this kind.
    fn read_answer(&self, kind: u16, body: &[u8]) -> Result<WireAnswer, DecodeError>;
}
