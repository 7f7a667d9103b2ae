//! All seats of a run: none starts before all are ready, signals go to all, and one exit code tells how it went.
//!
//! Invariant: the code is the largest of the seats', and "unknown" counts above every code of a command below 126.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kolo_seat::frame::End;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{self, Instant},
};

use super::{
    printer::Printer,
    seat::{News, Seat, Tell},
    terminal::{self, Raw},
};
use crate::error::CliError;

/// How long all seats may take until they are ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// What is not over so long after it was asked to end is killed.
const KILL_AFTER: Duration = Duration::from_secs(10);
/// How long seats may take to leave.
const FAREWELL_MAX: Duration = Duration::from_secs(3);
/// Signals and sizes that wait for one seat.
pub const TOLD_QUEUE: usize = 32;
/// What seats tell, and nobody has heard yet.
pub const NEWS_QUEUE: usize = 64;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
pub(super) const SIGKILL: i32 = 9;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGPIPE: i32 = 13;
pub(super) const SIGTERM: i32 = 15;
const SIGWINCH: i32 = 28;

/// The exit codes of Kolo itself, when it runs a command.
pub mod code {
    /// There is no reservation to run in.
    pub const NO_RESERVATION: u8 = 120;
    /// Not all seats could be made ready, so nothing was run.
    pub const NOT_READY: u8 = 121;
    /// A seat could not start the command.
    pub const NOT_STARTED: u8 = 122;
    /// The owner of a machine has ended the run.
    pub const OWNER: u8 = 123;
    /// The time of the reservation was over.
    pub const TIME_OVER: u8 = 124;
    /// What became of a seat's run is not known.
    pub const UNKNOWN: u8 = 125;
}

/// What is wanted of a run beside its command.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// The first seat that fails ends all.
    pub kills_on_failure: bool,
    /// So long after the first seat has ended, the others are ended.
    pub exit_timeout: Option<Duration>,
    /// How much longer than otherwise the seats may take until they are ready: they have files to put in place.
    pub placing: Duration,
    /// Leave it running once all seats have started.
    pub detaches: bool,
    /// The command has a terminal, and the user's is to be like it.
    pub has_terminal: bool,
    /// It ends when the user leaves, or his terminal goes.
    pub ends_with_user: bool,
    /// It runs already: there is nothing to be released.
    pub is_attached: bool,
    /// Its output is looked at, and no signal is passed on.
    pub is_watched: bool,
}

/// How a run has ended for its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// All seats have told how they ended, or are given up.
    Over(u8),
    /// It goes on, and the user has left, with this exit code.
    Left(u8),
    /// What became of a seat is not known: its command may go on.
    Unknown(u8),
}

/// A seat as it is shown: its rank and where it is.
#[derive(Debug, Clone)]
pub struct Shown {
    pub host: String,
    pub site: String,
}

/// All seats of a run.
pub struct Job<'a> {
    shown: &'a BTreeMap<u32, Shown>,
    printer: &'a Printer,
    terms: &'a Terms,
    told: BTreeMap<u32, mpsc::Sender<Tell>>,
    news: mpsc::Receiver<(u32, News)>,
    ready: BTreeSet<u32>,
    started: BTreeSet<u32>,
    codes: BTreeMap<u32, u8>,
    /// When the seats that are left are asked to end, or killed.
    end_at: Option<Instant>,
    kill_at: Option<Instant>,
    interrupts: u32,
    is_unknown: bool,
}

/// What the user's shell, terminal or scheduler sends.
struct Signals(Vec<(i32, Signal)>);

impl Signals {
    fn listen() -> Result<Signals, CliError> {
        let all = [
            (SIGINT, SignalKind::interrupt()),
            (SIGTERM, SignalKind::terminate()),
            (SIGHUP, SignalKind::hangup()),
            (SIGQUIT, SignalKind::quit()),
            (SIGUSR1, SignalKind::user_defined1()),
            (SIGUSR2, SignalKind::user_defined2()),
            (SIGWINCH, SignalKind::window_change()),
        ];
        let listen = |(number, kind)| Ok((number, signal(kind)?));
        let signals: std::io::Result<Vec<_>> = all.into_iter().map(listen).collect();
        signals.map(Signals).map_err(|source| CliError::Io { doing: "waiting for signals", source })
    }

    async fn next(&mut self) -> i32 {
        let waits = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        futures::future::select_all(waits).await.0
    }
}

/// Waits until the user's terminal or scheduler wants this command to end; the error that says so.
pub async fn interrupted() -> CliError {
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
    match Signals::listen() {
        Ok(mut signals) => loop {
            let number = signals.next().await;
            if wanted.contains(&number) {
                return CliError::of_run(shell_code(number), "interrupted");
            }
        },
        Err(error) => error,
    }
}

impl<'a> Job<'a> {
    /// Runs the seats, whose channels lead here.
    ///
    /// # Errors
    /// When not all seats could be made ready; the message names the seat, its host and why.
    pub async fn run(
        seats: Vec<(Seat, mpsc::Sender<Tell>)>,
        news: mpsc::Receiver<(u32, News)>,
        shown: &'a BTreeMap<u32, Shown>,
        (printer, terms): (&'a Printer, &'a Terms),
    ) -> Result<JobEnd, CliError> {
        let mut signals = Signals::listen()?;
        let (mut told, mut tasks) = (BTreeMap::new(), tokio::task::JoinSet::new());
        for (seat, to) in seats {
            told.insert(seat.rank, to);
            tasks.spawn(seat.run());
        }
        let mut job = Job::new(shown, (printer, terms), told, news);
        let released = if terms.is_attached { Ok(()) } else { job.barrier(&mut signals).await };
        let end = match released.and_then(|()| job.take_terminal()) {
            Ok(_terminal) => Ok(job.follow(&mut signals).await),
            Err(error) => Err(error),
        };
        // Without what tells them they leave, once they have said what they still had to say.
        job.told.clear();
        let _ = time::timeout(FAREWELL_MAX, async { while tasks.join_next().await.is_some() {} }).await;
        end
    }

    fn new(
        shown: &'a BTreeMap<u32, Shown>,
        (printer, terms): (&'a Printer, &'a Terms),
        told: BTreeMap<u32, mpsc::Sender<Tell>>,
        news: mpsc::Receiver<(u32, News)>,
    ) -> Job<'a> {
        let (ready, started, codes) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let (end_at, kill_at, interrupts, is_unknown) = (None, None, 0, false);
        Job { shown, printer, terms, told, news, ready, started, codes, end_at, kill_at, interrupts, is_unknown }
    }

    /// Makes the user's terminal like that of the command, where it has one.
    fn take_terminal(&self) -> Result<Option<Raw>, CliError> {
        if !self.terms.has_terminal {
            return Ok(None);
        }
        self.tell(Tell::Resize(terminal::size()));
        Raw::enter().map_err(|source| CliError::Io { doing: "using the terminal", source })
    }

    /// Waits until all are ready, and releases them.
    async fn barrier(&mut self, signals: &mut Signals) -> Result<(), CliError> {
        let ready_max = READY_MAX + self.terms.placing;
        let deadline = Instant::now() + ready_max;
        while self.ready.len() < self.told.len() {
            let failed = tokio::select! {
                news = self.news.recv() => match news {
                    Some((rank, News::Ready)) => {
                        self.ready.insert(rank);
                        continue;
                    }
                    Some((rank, News::NotReady(why) | News::Unknown(why))) => self.not_ready(rank, &why),
                    Some((rank, News::Ended(end))) => self.not_ready(rank, &words(&end)),
                    // It was started before this command came to it.
                    Some((rank, News::Started)) => self.not_ready(rank, "it has started already"),
                    Some((_, News::Unread | News::Printed)) => continue,
                    None => CliError::of_run(code::NOT_READY, "the seats have gone"),
                },
                number = signals.next() => {
                    if number == SIGWINCH {
                        continue;
                    }
                    let message = "interrupted before all seats were ready; nothing was run";
                    CliError::of_run(shell_code(number), message)
                }
                () = time::sleep_until(deadline) => {
                    let late = self.told.keys().find(|rank| !self.ready.contains(rank)).copied().unwrap_or_default();
                    self.not_ready(late, &format!("it was not ready within {} s", ready_max.as_secs()))
                }
            };
            self.tell(Tell::Signal(SIGKILL));
            return Err(failed);
        }
        self.tell(Tell::Go);
        Ok(())
    }

    fn not_ready(&self, rank: u32, why: &str) -> CliError {
        CliError::of_run(code::NOT_READY, format!("nothing was run: {} is not ready: {why}", self.name(rank)))
    }

    fn name(&self, rank: u32) -> String {
        match self.shown.get(&rank) {
            Some(Shown { host, site }) => format!("seat {rank} (host {host} of {site})"),
            None => format!("seat {rank}"),
        }
    }

    async fn follow(&mut self, signals: &mut Signals) -> JobEnd {
        while self.codes.len() < self.told.len() {
            if self.terms.detaches && self.runs_everywhere() {
                return JobEnd::Left(0);
            }
            tokio::select! {
                news = self.news.recv() => {
                    let Some((rank, news)) = news else { break };
                    if self.terms.is_watched && matches!(news, News::Unread) {
                        return JobEnd::Left(shell_code(SIGPIPE));
                    }
                    self.hear(rank, news);
                }
                number = signals.next() => {
                    if self.terms.is_watched {
                        return JobEnd::Left(shell_code(number));
                    }
                    if self.forward(number) {
                        // How it ends is not known, so it is no success.
                        return JobEnd::Left(code::UNKNOWN);
                    }
                }
                () = at(self.end_at) => {
                    self.end_at = None;
                    self.end_all();
                }
                () = at(self.kill_at) => {
                    self.kill_at = None;
                    self.tell(Tell::Signal(SIGKILL));
                }
            }
        }
        let is_unknown = self.is_unknown || self.codes.len() < self.told.len();
        let unknown = is_unknown.then_some(code::UNKNOWN);
        let code = self.codes.values().copied().chain(unknown).max().unwrap_or_default();
        if is_unknown { JobEnd::Unknown(code) } else { JobEnd::Over(code) }
    }

    /// Every seat has started, and none has ended in a way that its user must know.
    fn runs_everywhere(&self) -> bool {
        let has_started = |rank| self.started.contains(rank) || self.codes.contains_key(rank);
        self.told.keys().all(has_started) && self.codes.values().all(|code| *code < code::NO_RESERVATION)
    }

    fn hear(&mut self, rank: u32, news: News) {
        match news {
            News::Started => drop(self.started.insert(rank)),
            News::Ready => {}
            // A server is told that its user has gone.
            News::Unread if self.terms.ends_with_user => self.tell(Tell::Signal(SIGHUP)),
            News::Unread => self.tell(Tell::Signal(SIGPIPE)),
            News::Printed => self.over(rank, 0),
            News::Ended(end) => {
                let is_wanted = self.terms.ends_with_user && end == End::Signal(SIGHUP);
                if !matches!(end, End::Code(_)) && !is_wanted {
                    self.printer.remark(&format!("{}: {}", self.name(rank), words(&end)));
                }
                self.over(rank, code_of(&end));
            }
            News::NotReady(why) | News::Unknown(why) => {
                let name = self.name(rank);
                self.printer.remark(&format!("{name}: what became of it is not known: {why}"));
                self.is_unknown = true;
                self.over(rank, code::UNKNOWN);
            }
        }
    }

    fn over(&mut self, rank: u32, code: u8) {
        self.codes.insert(rank, code);
        if code != 0 && self.terms.kills_on_failure {
            self.end_all();
        }
        if let Some(timeout) = self.terms.exit_timeout {
            self.end_at.get_or_insert_with(|| Instant::now() + timeout);
        }
    }

    /// Asks the seats that are left to end, and kills them when they do not.
    fn end_all(&mut self) {
        if self.kill_at.is_none() {
            self.tell(Tell::Signal(SIGTERM));
            self.kill_at = Some(Instant::now() + KILL_AFTER);
        }
    }

    /// Passes a signal on; true when the user leaves.
    fn forward(&mut self, number: i32) -> bool {
        match number {
            // The terminal has gone; what runs does not need it.
            SIGHUP | SIGINT | SIGTERM if self.terms.ends_with_user => self.tell(Tell::Signal(SIGHUP)),
            SIGHUP => return true,
            SIGWINCH if self.terms.has_terminal => self.tell(Tell::Resize(terminal::size())),
            SIGWINCH => {}
            SIGINT => {
                self.interrupts += 1;
                match self.interrupts {
                    1 => {
                        self.tell(Tell::Signal(SIGINT));
                        self.printer.remark(
                            "interrupt passed on to all seats; a second one kills them, a third one leaves them",
                        );
                    }
                    2 => {
                        self.tell(Tell::Signal(SIGKILL));
                        self.printer.remark("all seats are being killed; a third interrupt leaves them");
                    }
                    _ => return true,
                }
            }
            number => self.tell(Tell::Signal(number)),
        }
        false
    }

    fn tell(&self, told: Tell) {
        for (_, seat) in self.told.iter().filter(|(rank, _)| !self.codes.contains_key(rank)) {
            // A seat that takes nothing more is being cut off, or is over.
            let _ = seat.try_send(told);
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The exit code that a shell gives for a signal.
fn shell_code(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
}

/// The exit code of one seat.
pub fn code_of(end: &End) -> u8 {
    match end {
        End::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        End::Signal(signal) => shell_code(*signal),
        End::OutOfMemory => shell_code(SIGKILL),
        End::WindowEnded => code::TIME_OVER,
        End::Owner(_) => code::OWNER,
        End::Failed(_) => code::NOT_STARTED,
        End::Lost | End::Broken(_) => code::UNKNOWN,
    }
}

/// How a run has ended, for people.
pub fn words(end: &End) -> String {
    match end {
        End::Code(code) => format!("ended with code {code}"),
        End::Signal(signal) => format!("ended by signal {signal}"),
        End::OutOfMemory => "ended because it wanted more memory than the seat has".to_owned(),
        End::WindowEnded => "ended because the time of the reservation was over".to_owned(),
        End::Owner(reason) => format!("ended by the owner of the machine: {reason}"),
        End::Failed(why) => format!("could not be started: {why}"),
        End::Lost => "it was started, and its result was lost; it is not run again".to_owned(),
        End::Broken(why) => format!("was started, and the site could not go on with it: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Played {
        end: Result<JobEnd, String>,
        told: BTreeMap<u32, Vec<Tell>>,
    }

    /// What two seats are told that tell this.
    async fn play(terms: Terms, script: Vec<(u32, News)>) -> Played {
        let shown = BTreeMap::from([(1, Shown { host: "h1".to_owned(), site: "beta".to_owned() })]);
        let printer = Printer::new(true, "\n").unwrap();
        let (send, news) = mpsc::channel(NEWS_QUEUE);
        for one in script {
            send.send(one).await.unwrap();
        }
        drop(send);
        let (told, mut heard): (BTreeMap<u32, _>, BTreeMap<u32, _>) = (0..2)
            .map(|rank| {
                let (to, heard) = mpsc::channel(TOLD_QUEUE);
                ((rank, to), (rank, heard))
            })
            .unzip();
        let mut job = Job::new(&shown, (&printer, &terms), told, news);
        let mut signals = Signals::listen().unwrap();
        let end = match job.barrier(&mut signals).await {
            Ok(()) => Ok(job.follow(&mut signals).await),
            Err(error) => Err(format!("{}: {error}", error.exit().code())),
        };
        let all = |heard: &mut mpsc::Receiver<Tell>| std::iter::from_fn(|| heard.try_recv().ok()).collect();
        Played { end, told: heard.iter_mut().map(|(rank, heard)| (*rank, all(heard))).collect() }
    }

    fn ready() -> Vec<(u32, News)> {
        vec![(0, News::Ready), (1, News::Ready), (0, News::Started), (1, News::Started)]
    }

    fn ended(ends: [End; 2]) -> Vec<(u32, News)> {
        let [first, second] = ends;
        [ready(), vec![(0, News::Ended(first)), (1, News::Ended(second))]].concat()
    }

    #[tokio::test]
    async fn none_starts_unless_all_are_ready_and_the_message_names_the_seat() {
        let refused = News::NotReady("no runner".to_owned());
        let played = play(Terms::default(), vec![(0, News::Ready), (1, refused)]).await;
        assert_eq!(
            played.end,
            Err("121: nothing was run: seat 1 (host h1 of beta) is not ready: no runner".to_owned())
        );
        assert_eq!(played.told[&0], [Tell::Signal(SIGKILL)]);
    }

    #[tokio::test]
    async fn the_largest_code_counts_and_what_was_not_told_is_unknown() {
        for (ends, expected) in [
            ([End::Code(0), End::Code(0)], 0),
            ([End::Code(3), End::Code(0)], 3),
            ([End::Code(1), End::Signal(15)], 143),
            ([End::Code(0), End::OutOfMemory], 137),
            ([End::Code(0), End::WindowEnded], 124),
            ([End::Owner("mine".to_owned()), End::Code(1)], 123),
            ([End::Failed("no".to_owned()), End::Code(0)], 122),
            ([End::Code(0), End::Lost], 125),
            ([End::Broken("no".to_owned()), End::Failed("no".to_owned())], 125),
            ([End::Code(256), End::Code(0)], 0),
        ] {
            let played = play(Terms::default(), ended(ends.clone())).await;
            assert_eq!((played.end, &played.told[&0][..]), (Ok(JobEnd::Over(expected)), &[Tell::Go][..]), "{ends:?}");
        }
        let unknown = [ready(), vec![(0, News::Ended(End::Code(0))), (1, News::Unknown("cut".to_owned()))]].concat();
        assert_eq!(play(Terms::default(), unknown).await.end, Ok(JobEnd::Unknown(125)));
        let gone = [ready(), vec![(0, News::Ended(End::Code(0)))]].concat();
        assert_eq!(play(Terms::default(), gone).await.end, Ok(JobEnd::Unknown(125)), "no end is no success");
    }

    #[tokio::test]
    async fn a_failure_ends_the_others_when_that_is_wanted() {
        let script = || ended([End::Code(2), End::Signal(15)]);
        let kills = play(Terms { kills_on_failure: true, ..Terms::default() }, script()).await;
        assert_eq!(kills.told[&1], [Tell::Go, Tell::Signal(SIGTERM)]);
        assert_eq!(play(Terms::default(), script()).await.told[&1], [Tell::Go]);
        let unread = [ready(), vec![(0, News::Unread)], ended([End::Code(0), End::Code(0)])[4..].to_vec()].concat();
        assert_eq!(play(Terms::default(), unread).await.told[&1], [Tell::Go, Tell::Signal(SIGPIPE)]);
    }

    #[tokio::test]
    async fn whoever_watches_passes_nothing_on() {
        let watches = Terms { is_watched: true, ..Terms::default() };
        let unread = [ready(), vec![(0, News::Unread)]].concat();
        let played = play(watches, unread).await;
        assert_eq!((played.end, &played.told[&1][..]), (Ok(JobEnd::Left(141)), &[Tell::Go][..]));
    }

    #[tokio::test]
    async fn whoever_detaches_leaves_when_all_have_started() {
        let played = play(Terms { detaches: true, ..Terms::default() }, ready()).await;
        assert_eq!((played.end, &played.told[&1][..]), (Ok(JobEnd::Left(0)), &[Tell::Go][..]));
        let failed = vec![(0, News::Ready), (1, News::Ready), (0, News::Started), (0, News::Ended(End::Code(0)))];
        let failed = [failed, vec![(1, News::Ended(End::Failed("no".to_owned())))]].concat();
        let played = play(Terms { detaches: true, ..Terms::default() }, failed).await;
        assert_eq!(played.end, Ok(JobEnd::Over(122)), "one that could not start was not left running");
    }
}
