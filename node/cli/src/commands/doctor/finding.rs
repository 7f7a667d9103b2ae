//! What the doctor has found, and what can be done about it.

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Good,
    Note,
    Problem,
}

impl Level {
    /// The level as people are shown it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Good => "good",
            Level::Note => "note",
            Level::Problem => "PROBLEM",
        }
    }
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_do: Option<String>,
    /// Lines of plain characters that show it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub picture: Vec<String>,
}

impl Finding {
    /// All is well, or there is nothing to say about it.
    pub fn new(check: &'static str, level: Level, what: impl Into<String>) -> Finding {
        Finding { check, level, what: what.into(), to_do: None, picture: Vec::new() }
    }

    pub fn good(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Level::Good, what)
    }

    /// Something that the owner may want to change.
    pub fn note(check: &'static str, what: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { to_do: Some(to_do.into()), ..Finding::new(check, Level::Note, what) }
    }

    /// Something that the owner has to change.
    pub fn problem(check: &'static str, what: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { to_do: Some(to_do.into()), ..Finding::new(check, Level::Problem, what) }
    }
}
