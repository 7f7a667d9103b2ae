//! The word of the node to a keeper, on the same socket as users: they cannot say it, since the node writes the first byte of a connection.

use std::io;

use broker::time::Time;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use super::state::{Keeper, Stop};
use crate::{directory::Task, frame::reason};

/// Longest word, in bytes.
const WORD_BYTES_MAX: u64 = 16 * 1024;
/// The answer.
pub const HEARD: u8 = b'h';

/// What the node says, as one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerWord {
    /// The run ends now, for this reason.
    End(String),
    /// It ends now, for this reason, with hardly any grace.
    Deny(String),
    /// The window ends at another time.
    Deadline(Time),
}

/// Hears one word and answers it.
pub async fn serve(keeper: &Keeper, stream: UnixStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(WORD_BYTES_MAX).read_line(&mut line).await?;
    match serde_json::from_str(&line)? {
        OwnerWord::End(why) => keeper.change(|state| {
            state.stop.get_or_insert_with(|| Stop::Owner(reason(&why)));
        }),
        // Also of a run that was told to end before, and has the grace of that.
        OwnerWord::Deny(why) => keeper.change(|state| state.stop = Some(Stop::Denied(reason(&why)))),
        OwnerWord::Deadline(deadline) => {
            // On disk first: the next node takes it from there.
            let task = keeper.directory.task().map_err(io::Error::other)?;
            keeper.directory.write_task(&Task { deadline, ..task }).map_err(io::Error::other)?;
            keeper.change(|state| state.deadline = deadline);
        }
    }
    stream.get_mut().write_all(&[HEARD]).await
}
