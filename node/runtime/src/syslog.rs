//! Lines for the machine's syslog, which may hand them to another machine: datagrams as syslog(3) makes them. What listens there (journald,
//! rsyslog) takes apart this form and no other.
//!
//! Invariant: the node waits for nothing. A line that the syslog does not take at once is lost there, and counted.

use std::{
    io,
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use jiff::{Timestamp, tz::TimeZone};
use tracing::warn;

use super::{lock::locked, rare::Rare};

/// Sockets of the machine's syslog, of which the first that somebody listens at gets the lines: a service may have a `/dev` of its own.
const SOCKETS: [&str; 2] = ["/dev/log", "/run/systemd/journal/dev-log"];
/// Facility 10 (security and authorisation), severity 5 (notice).
const PRIORITY: u8 = 10 * 8 + 5;

/// The way to the machine's syslog.
#[derive(Debug)]
pub struct Syslog {
    socket: UnixDatagram,
    places: Vec<PathBuf>,
    lost: AtomicU64,
    told: Mutex<Rare>,
}

impl Syslog {
    /// The way to the syslog of this machine, whether or not one is there yet.
    ///
    /// # Errors
    /// Those of the system, which has no socket left.
    pub fn of_machine() -> io::Result<Syslog> {
        Syslog::at(SOCKETS.map(PathBuf::from).to_vec())
    }

    /// The way to who listens at the first of these places.
    pub(super) fn at(places: Vec<PathBuf>) -> io::Result<Syslog> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Syslog { socket, places, lost: AtomicU64::default(), told: Mutex::default() })
    }

    /// Hands a line over, of this kind, that was written at a time (Unix milliseconds).
    pub fn send(&self, kind: &str, at_ms: u64, line: &str) {
        let (process, time) = (process::id(), timestamp(at_ms, &TimeZone::system()));
        let message = format!("<{PRIORITY}>{time} kolo[{process}]: {kind} {line}");
        let Err(error) = self.hand_over(message.as_bytes()) else { return };
        self.lost.fetch_add(1, Ordering::Relaxed);
        if let Some(times) = locked(&self.told).add(Instant::now()) {
            warn!(times, %error, "the machine's syslog has not taken lines that it was to have");
        }
    }

    /// Lines that were not taken.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn hand_over(&self, message: &[u8]) -> io::Result<()> {
        let mut sent = Err(io::ErrorKind::NotFound.into());
        for place in &self.places {
            sent = self.socket.send_to(message, place).map(|_| ());
            let is_nobody_there =
                |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
            if !sent.as_ref().is_err_and(is_nobody_there) {
                break;
            }
        }
        sent
    }
}

/// A time (Unix milliseconds) as syslog(3) writes it, in local time and without a year; that of 1970 where the calendar has none.
fn timestamp(at_ms: u64, zone: &TimeZone) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok()).unwrap_or_default();
    at.to_zoned(zone.clone()).strftime("%b %e %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_comes_as_syslog_3_writes_it_where_somebody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let [missing, left, there] = ["missing", "left", "there"].map(|name| directory.path().join(name));
        drop(UnixDatagram::bind(&left).unwrap());
        let listener = UnixDatagram::bind(&there).unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let syslog = Syslog::at(vec![missing, left, there]).unwrap();
        syslog.send("audit", 951_782_399_007, "{\"who\":\"token ci\"}");
        let mut bytes = [0; 4096];
        let count = listener.recv(&mut bytes).unwrap();
        let message = std::str::from_utf8(&bytes[..count]).unwrap();
        let (time, rest) = message.strip_prefix("<85>").unwrap().split_at(15);
        assert!(time.starts_with("Feb ") && time.ends_with(":59"), "{message}");
        assert_eq!(rest, format!(" kolo[{}]: audit {{\"who\":\"token ci\"}}", process::id()));
        assert_eq!(syslog.lost(), 0);
    }

    #[test]
    fn a_time_has_the_width_that_syslog_3_gives_it() {
        assert_eq!(timestamp(951_782_399_007, &TimeZone::UTC), "Feb 28 23:59:59");
        assert_eq!(timestamp(0, &TimeZone::UTC), "Jan  1 00:00:00");
        assert_eq!(timestamp(u64::MAX, &TimeZone::UTC), "Jan  1 00:00:00");
    }

    #[test]
    fn nobody_is_waited_for_and_what_is_lost_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("log");
        let syslog = Syslog::at(vec![place.clone()]).unwrap();
        syslog.send("audit", 0, "nobody is there");
        assert_eq!(syslog.lost(), 1);
        let listener = UnixDatagram::bind(&place).unwrap();
        // Whoever listens takes nothing, and the system keeps some for it.
        let sent = (0..100_000).take_while(|_| {
            syslog.send("audit", 0, "nobody reads");
            syslog.lost() == 1
        });
        let kept = sent.count();
        assert!((1..100_000).contains(&kept) && syslog.lost() == 2, "{kept}");
        listener.recv(&mut [0; 4096]).unwrap();
        syslog.send("audit", 0, "there is room again");
        assert_eq!(syslog.lost(), 2);
    }
}
