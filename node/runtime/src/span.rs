//! What ties the lines of the log together that are about one thing.

use std::fmt::Display;

use tracing::{Span, debug_span, error_span};

/// All lines inside it bear the name of the request, on every node that takes part in it. No filter for levels leaves it out.
pub fn of_request(id: &impl Display) -> Span {
    error_span!("request", %id)
}

/// The same for lines that only show at the level debug: it costs nothing otherwise.
pub fn of_message(id: &impl Display) -> Span {
    debug_span!("request", %id)
}
