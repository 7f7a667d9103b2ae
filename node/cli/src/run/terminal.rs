//! The user's own terminal, while a command on a seat has one too.
//!
//! Invariant: what was changed about it is put back when the run is over or left, also when it ends by a panic.

use std::io::{self, IsTerminal as _, Stdin};

use kolo_seat::frame::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What a terminal is taken for that does not say how large it is, or where there is none.
const USUAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };
/// What a line begins with that is for this command and not for the seat, as with ssh.
const ESCAPE: u8 = b'~';
/// What leaves the run behind it.
const LEAVE: u8 = b'.';

/// How large the user's terminal is.
pub fn size() -> TerminalSize {
    let found = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok();
    let size = found.map(|found| TerminalSize { rows: found.ws_row, columns: found.ws_col });
    size.filter(|size| size.rows > 0 && size.columns > 0).unwrap_or(USUAL)
}

/// The user's terminal, whose keys all go to the seat, until this is dropped.
pub struct Raw {
    stdin: Stdin,
    before: Termios,
}

impl Raw {
    /// Lets all keys through; none where the input is no terminal.
    ///
    /// # Errors
    /// When the terminal does not let itself be set.
    pub fn enter() -> io::Result<Option<Raw>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Raw { stdin, before }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// Finds `~.` at the beginning of a line among what is typed; `~~` is one `~` for the seat.
#[derive(Debug)]
pub struct Keys {
    is_line_begun: bool,
    is_escaped: bool,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys { is_line_begun: true, is_escaped: false }
    }
}

impl Keys {
    /// What of these keys is for the seat; none when the user leaves.
    pub fn take(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            if std::mem::take(&mut self.is_escaped) {
                match key {
                    LEAVE => return None,
                    ESCAPE => {}
                    _ => passed.push(ESCAPE),
                }
            } else if self.is_line_begun && key == ESCAPE {
                (self.is_escaped, self.is_line_begun) = (true, false);
                continue;
            }
            self.is_line_begun = matches!(key, b'\r' | b'\n');
            passed.push(key);
        }
        Some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escape_at_the_beginning_of_a_line_is_for_this_command() {
        let typed = |pieces: &[&[u8]]| {
            let mut keys = Keys::default();
            pieces.iter().map(|piece| keys.take(piece)).collect::<Option<Vec<_>>>().map(|all| all.concat())
        };
        assert_eq!(typed(&[b"ls ~.\r", b"a~.", b"\x03"]), Some(b"ls ~.\ra~.\x03".to_vec()));
        assert_eq!(typed(&[b"~~.\r~a"]), Some(b"~.\r~a".to_vec()));
        assert_eq!(typed(&[b"~\r~"]), Some(b"~\r".to_vec()), "the last one waits for what follows");
        for left in [&[&b"~."[..]][..], &[b"ls\r~", b"."], &[b"\n", b"~", b"."]] {
            assert_eq!(typed(left), None);
        }
    }
}
