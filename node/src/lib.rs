//! The node of a site and the command line of its users.
//!
//! Invariant: what other programs may use is named here: the command line, which is all of `kolo`, what runs a node inside
//! a process that has more to do, and what reads foreign input. No feature changes the code, so that tests run what is
//! shipped. What a run means for the shell is decided in [`cli`].

mod api;
mod cli;
mod config;
mod contact;
mod daemon;
mod entry;
mod net;
mod notices;
mod run;
mod runtime;
mod site;
mod storage;
mod text;
mod trust;

pub use self::{
    cli::run as run_command_line,
    config::{ConfigError, NodeConfig, load_in_process},
    daemon::{DaemonError, run_until, start_log, stop_signal},
    runtime::open_files::raise as raise_open_files,
};

/// The keepers of the seats of a site, for tests with real processes.
pub mod keeping {
    pub use crate::run::{
        Confinement, Keepers, KeptRun, RunError, RunId, RunState, Runner, Task, cgroup::prepare as prepare_cgroups,
    };
}

/// Readers of what people, programs, disks and other sites give a node, for fuzzing. Each reads its input whole, or says
/// what is wrong with it.
pub mod readers {
    /// What a user and the keeper of a seat send each other.
    pub mod run {
        pub use crate::run::{
            RunNumber, RunOrder,
            files::{Manifest, transfer::FileFrame},
            frame::{
                Data, End, FRAME_BYTES_MAX, Frame, FrameReader, FromKeeper, Output, STDIN_BYTES_AHEAD_MAX,
                TerminalSize, ToKeeper, decode, encode,
            },
            opening::{FromUser, Opening, PeerOpening},
        };
    }

    pub use crate::{
        api::{
            challenge::{SignedCall, sign as sign_call},
            requests::{ListQuery, WaitQuery, read_body, read_request, read_signed},
        },
        cli::script::parse as read_script,
        config::{NodeArgs, Surroundings, load as load_config},
        net::membership::{decode as read_credential, decode_revocation as read_revocation},
        storage::{entry, read::GroupReader, sector},
        text::{
            document::Syntax,
            request_file::{Writer, parse as read_request_file},
            time,
        },
        trust::{GridFile, IssuedList, RevocationFile, Token, Wallet},
    };
}
