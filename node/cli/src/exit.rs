//! The exit codes of `kolo`, and which one the end of a request gives.

use std::process::ExitCode;

use kolo_api::request_view::{RequestState, RequestView};

/// The exit codes of `kolo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed.
    Failure,
    /// No placement in the window.
    NoPlacement,
    /// The grid or the node is not reachable.
    Unreachable,
    /// Refused by a policy.
    Refused,
    /// Bad usage.
    Usage,
    /// As the command on its seats, or as `kolo run` says.
    Run(u8),
}

impl Exit {
    /// The number the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failure => 1,
            Exit::NoPlacement => 2,
            Exit::Unreachable => 3,
            Exit::Refused => 4,
            Exit::Usage => 64,
            Exit::Run(code) => code,
        }
    }

    /// The exit code of a command when this is the end of its request.
    pub fn of(view: &RequestView) -> Exit {
        let unreachable = view.reason.as_ref().is_some_and(|reason| reason.code == "unreachable");
        match view.state {
            state if state.was_reserved() => Exit::Done,
            RequestState::Rejected => Exit::NoPlacement,
            RequestState::Refused => Exit::Refused,
            RequestState::Failed if unreachable => Exit::Unreachable,
            _ => Exit::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use kolo_api::samples::view;

    use super::*;

    #[test]
    fn the_end_of_a_request_decides_the_exit_code() {
        for (state, code, expected) in [
            ("confirmed", None, 0),
            ("active", None, 0),
            ("ended", None, 0),
            ("done", None, 0),
            ("rejected", Some("no_window"), 2),
            ("failed", Some("unreachable"), 3),
            ("failed", Some("patience_over"), 1),
            ("refused", Some("refused"), 4),
            ("cancelled", Some("cancelled"), 1),
        ] {
            let view = view(state, code.map(|code| (code, "because")));
            assert_eq!(Exit::of(&view).code(), expected, "{state}");
            assert!(view.state.is_settled());
        }
        assert!(!view("planning", None).state.is_settled());
    }
}
