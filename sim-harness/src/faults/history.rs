//! What happened in a run, for people. Kept only when a seed is replayed: writing it costs more than the run itself.
//!
//! Invariant: entries are in the order in which things happened; the same seed gives the same entries.

use std::fmt::{self, Write};

use broker::ids::RequestId;

use crate::engine::Moment;

struct Entry {
    at: Moment,
    request: Option<RequestId>,
    text: String,
}

/// See the module's documentation.
#[derive(Default)]
pub struct History {
    is_kept: bool,
    entries: Vec<Entry>,
}

impl History {
    /// An empty history that keeps what is noted, or not.
    pub fn new(is_kept: bool) -> History {
        History { is_kept, entries: Vec::new() }
    }

    /// Notes what happened to a request, or (without one) to the grid.
    pub fn note(&mut self, at: Moment, request: Option<&RequestId>, text: fmt::Arguments<'_>) {
        if self.is_kept {
            self.entries.push(Entry { at, request: request.cloned(), text: text.to_string() });
        }
    }

    /// The entries about one request and about the grid as a whole, or all of them.
    pub fn of(&self, request: Option<&RequestId>) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            if request.is_none() || entry.request.is_none() || entry.request.as_ref() == request {
                let name = entry.request.as_ref().map_or("", RequestId::as_str);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{:>9.3} s  {name:<4} {}", entry.at.ms() as f64 / 1000.0, entry.text);
            }
        }
        text
    }
}
