//! What a user orders to be run on one seat, signed.
//!
//! Invariant: a [`RunOrder`] that passed [`RunOrder::check`] can be given to the operating system as it stands: no text is too long or
//! holds a zero byte. Whether its user may run it here and now is decided elsewhere.

use std::{
    collections::BTreeMap,
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use broker::{
    ids::{RequestId, SeatNumber, SiteId},
    needs::ImageName,
    time::Time,
    trust::Statement,
};
use kolo_trust::ssh_key;
use serde::{Deserialize, Serialize};

use super::{
    files::manifest::ChunkHash,
    frame::TerminalSize,
    peers::order::{PeerSeat, Peers, PeersError},
    ssh,
};

/// Most bytes of command, environment and hosts together, as the operating system counts them: each text with a byte behind it.
pub const TEXTS_BYTES_MAX: usize = 1024 * 1024;
/// What each text of a command takes in memory beside its bytes, however short it is.
const TEXT_COST_BYTES: usize = 32;
/// Longest single text that Linux gives to a program, in bytes.
pub const TEXT_BYTES_MAX: usize = 128 * 1024 - 1;
/// Longest nonce, in bytes.
pub const NONCE_BYTES_MAX: usize = 64;
/// What the names of variables begin with that the site sets.
pub const OWN_VARIABLES: &str = "KOLO_";

/// Which run of a seat. A user counts up; a number that the seat has seen, or may have, is never run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunNumber(pub u64);

impl RunNumber {
    /// The number of a run that is ordered now: microseconds, so that hardly any two of a user are the same.
    #[must_use]
    pub fn now() -> RunNumber {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        RunNumber(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A command to be run on one seat of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOrder {
    /// In this grid.
    pub grid: String,
    /// The only site that may run it.
    pub site: SiteId,
    /// The reservation.
    pub request: RequestId,
    /// The seat.
    pub seat: SeatNumber,
    /// Which run of the seat.
    pub run: RunNumber,
    /// The place of this seat in `hosts`, which the command reads as its rank.
    pub rank: u32,
    /// The names by which the seats of this run reach each other, in the order of their ranks.
    pub hosts: Vec<String>,
    /// Which of them reach each other at which ports, where any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Peers>,
    /// The program and its arguments; none with `ssh_keys`.
    pub command: Vec<String>,
    /// The image that it runs in, at sites that run containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Instead of a command the SSH server of the site runs, and speaks on the input and output: it lets in who holds one of these keys, each
    /// a line such as `ssh-ed25519 AAAA...`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// What is in its environment beside what the site sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Where it starts; relative to the scratch directory of the run, which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// It gets a terminal of this size, else pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Whether the user's input goes to this seat; else there is none.
    #[serde(default)]
    pub has_stdin: bool,
    /// The files that are in its scratch directory from the beginning, by their manifest, which the site has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<ChunkHash>,
    /// Whether the scratch directory is kept for a while after the end, for its user to fetch files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_files: bool,
    /// When it was signed, on the user's clock.
    pub issued: Time,
    /// From this second on it is not started.
    pub expires: Time,
    /// Random, so that no two orders are the same.
    pub nonce: String,
}

impl Statement for RunOrder {
    const KIND: &'static str = "run";
    /// As JSON a byte of a text may take six.
    const TEXT_BYTES_MAX: usize = 7 * TEXTS_BYTES_MAX;
}

/// Why an order cannot be run by any site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// There is no program, or its name is empty.
    #[error("there is no command to run")]
    NoCommand,
    /// The texts are too long together.
    #[error(
        "command, environment and hosts take {0} bytes together, with {TEXT_COST_BYTES} for each of their texts, at most {TEXTS_BYTES_MAX} are run; put the rest into a file"
    )]
    TooLongTogether(usize),
    /// One text is too long.
    #[error("{what} has {bytes} bytes, at most {limit} are accepted")]
    TooLong {
        /// Which text.
        what: String,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A text holds a byte that ends it.
    #[error("{0} holds a zero byte")]
    ZeroByte(String),
    /// The name of a variable is empty or holds `=`.
    #[error("{0:?} cannot name a variable of the environment")]
    Variable(String),
    /// The site sets these itself.
    #[error("the variable {0} is set by the site; names that begin with {OWN_VARIABLES} are not taken from an order")]
    OwnVariable(String),
    /// The rank is not that of one of the hosts.
    #[error("rank {rank} of {hosts} hosts")]
    Rank {
        /// The rank, from 0.
        rank: u32,
        /// How many hosts the order names.
        hosts: usize,
    },
    /// A host's name would break the list of hosts.
    #[error("{0:?} cannot name a host")]
    Host(String),
    /// The seats cannot reach each other like this.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The SSH server has a use for nothing else.
    #[error("an order for SSH has {0}")]
    Ssh(&'static str),
    /// A key for SSH cannot be used.
    #[error(transparent)]
    SshKey(#[from] ssh_key::KeyError),
    /// The name of an image cannot be one.
    #[error("{0:?} cannot name an image")]
    ImageName(String),
    /// A terminal without lines or columns.
    #[error("a terminal of {} lines and {} columns", .0.rows, .0.columns)]
    Terminal(TerminalSize),
}

impl RunOrder {
    /// Whether any site could run it.
    ///
    /// # Errors
    /// The first bound that it crosses, named.
    pub fn check(&self) -> Result<(), OrderError> {
        if !self.ssh_keys.is_empty() {
            self.check_ssh()?;
        } else if self.command.first().is_none_or(String::is_empty) {
            return Err(OrderError::NoCommand);
        }
        self.check_variables()?;
        self.check_hosts()?;
        if let Some(peers) = &self.peers {
            let own = PeerSeat { site: self.site.clone(), seat: self.seat };
            peers.check((self.rank, &own), self.hosts.len())?;
        }
        for (number, argument) in (0..).zip(&self.command) {
            check_text(|| format!("argument {number}"), argument, TEXT_BYTES_MAX)?;
        }
        self.image.as_deref().map_or(Ok(()), check_image_name)?;
        // The longest path that Linux takes.
        check_text(|| "the directory".to_owned(), self.directory.as_deref().unwrap_or_default(), 4095)?;
        check_text(|| "the nonce".to_owned(), &self.nonce, NONCE_BYTES_MAX)?;
        if let Some(size) = self.terminal.filter(|size| size.rows == 0 || size.columns == 0) {
            return Err(OrderError::Terminal(size));
        }
        let variables = self.environment.iter().flat_map(|(name, value)| [name, value]);
        let together =
            self.command.iter().chain(variables).chain(&self.hosts).map(|text| text.len() + TEXT_COST_BYTES).sum();
        if together > TEXTS_BYTES_MAX { Err(OrderError::TooLongTogether(together)) } else { Ok(()) }
    }

    /// Leaves as much of it as people look at.
    pub fn shorten(&mut self) {
        const ARGUMENTS_SHOWN: usize = 64;
        const CHARACTERS_SHOWN: usize = 256;
        self.command.truncate(ARGUMENTS_SHOWN);
        for argument in &mut self.command {
            if let Some((end, _)) = argument.char_indices().nth(CHARACTERS_SHOWN) {
                argument.truncate(end);
                argument.push('…');
            }
        }
        (self.environment, self.hosts) = (BTreeMap::new(), Vec::new());
    }

    fn check_ssh(&self) -> Result<(), OrderError> {
        let wrong = [
            (self.ssh_keys.len() > ssh::KEYS_MAX, "more keys than are let in"),
            (!self.command.is_empty(), "a command too"),
            (self.image.is_some(), "an image"),
            (self.terminal.is_some(), "a terminal of its own"),
            (!self.has_stdin, "no input"),
        ];
        if let Some((_, what)) = wrong.iter().find(|(is_so, _)| *is_so) {
            return Err(OrderError::Ssh(what));
        }
        self.ssh_keys.iter().try_for_each(|line| ssh_key::read(line).map(drop)).map_err(OrderError::from)
    }

    /// What runs, for people.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        if self.ssh_keys.is_empty() { self.command.clone() } else { vec!["(ssh)".to_owned()] }
    }

    fn check_variables(&self) -> Result<(), OrderError> {
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains('=') {
                return Err(OrderError::Variable(name.clone()));
            }
            if name.starts_with(OWN_VARIABLES) {
                return Err(OrderError::OwnVariable(name.clone()));
            }
            check_text(|| format!("the name of the variable {name:?}"), name, TEXT_BYTES_MAX)?;
            // Name, `=` and value are one text to the operating system.
            check_text(|| format!("the variable {name}"), value, TEXT_BYTES_MAX.saturating_sub(name.len() + 1))?;
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), OrderError> {
        if usize::try_from(self.rank).is_ok_and(|rank| rank >= self.hosts.len()) {
            return Err(OrderError::Rank { rank: self.rank, hosts: self.hosts.len() });
        }
        let breaks_list = |host: &str| {
            host.is_empty()
                || host.starts_with(['-', '#'])
                || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',')
        };
        if let Some(host) = self.hosts.iter().find(|host| breaks_list(host)) {
            return Err(OrderError::Host(host.clone()));
        }
        // The command reads all of them as one variable.
        let bytes = self.hosts.iter().map(|host| host.len() + 1).sum();
        let limit = TEXT_BYTES_MAX - OWN_VARIABLES.len() - "HOSTS=".len();
        let too_long = OrderError::TooLong { what: "the list of hosts".to_owned(), bytes, limit };
        if bytes > limit { Err(too_long) } else { Ok(()) }
    }
}

/// Whether a text can name an image: nothing else could be read from it in a command line.
///
/// # Errors
/// [`OrderError::ImageName`].
pub fn check_image_name(image: &str) -> Result<(), OrderError> {
    let named = ImageName::try_from(image.to_owned());
    named.map(drop).map_err(|_| OrderError::ImageName(image.to_owned()))
}

fn check_text(what: impl Fn() -> String, text: &str, limit: usize) -> Result<(), OrderError> {
    if text.len() > limit {
        return Err(OrderError::TooLong { what: what(), bytes: text.len(), limit });
    }
    if text.contains('\0') { Err(OrderError::ZeroByte(what())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use broker::trust::{SignedText, testing};
    use expect_test::expect;

    use super::{
        super::{peers::order::tests::peers, testing::order},
        *,
    };

    #[test]
    fn many_short_texts_cost_what_they_take_in_memory() {
        let many = order(&vec!["x"; 100_001]);
        assert!(matches!(many.check(), Err(OrderError::TooLongTogether(_))), "{:?}", many.check());
        let mut shown = order(&["ä".repeat(1000).as_str(), "b"]);
        shown.shorten();
        assert_eq!((shown.command[0].chars().count(), shown.command[1].as_str()), (257, "b"));
    }

    #[test]
    fn an_order_is_signed_as_other_versions_read_it() {
        let order = RunOrder {
            peers: Some(peers()),
            image: Some("docker.io/library/debian:stable".to_owned()),
            environment: BTreeMap::from([("LANG".to_owned(), "C".to_owned())]),
            directory: Some("work".to_owned()),
            terminal: Some(TerminalSize { rows: 24, columns: 80 }),
            ..order(&["echo", "ü"])
        };
        expect![[r#"
            kolo-run/1
            {"grid":"test","site":"s","request":"r","seat":2,"run":1,"rank":1,"hosts":["a","b"],"peers":{"seats":[{"site":"x","seat":0},{"site":"s","seat":2}],"ports":[{"rank":0,"port":29500},{"port":4000}]},"command":["echo","ü"],"image":"docker.io/library/debian:stable","environment":{"LANG":"C"},"directory":"work","terminal":{"rows":24,"columns":80},"has_stdin":false,"issued":1000,"expires":1060,"nonce":"n"}"#]]
        .assert_eq(&SignedText::text_of(&order).unwrap());
        let signed = SignedText::sign(&order, &testing::key(1)).unwrap();
        assert_eq!(signed.open::<RunOrder>(), Ok(order));
        let altered = SignedText { text: signed.text.replace("echo", "exec"), ..signed };
        assert!(altered.open::<RunOrder>().is_err());
    }

    #[test]
    fn an_order_at_its_bounds_fits_and_one_beyond_is_told_which_it_crossed() {
        assert_eq!(order(&["true"]).check(), Ok(()));
        // Control characters are the longest in JSON.
        let text = "\u{1}".repeat(TEXT_BYTES_MAX);
        let full = order(&["x", &text, &text, &text, &text, &text, &text, &text]);
        assert_eq!(full.check(), Ok(()));
        assert!(SignedText::text_of(&full).is_ok());
        let over = order(&[text.as_str(); 9]);
        assert_eq!(
            over.check(),
            Err(OrderError::TooLongTogether(9 * (TEXT_BYTES_MAX + TEXT_COST_BYTES) + 2 * (1 + TEXT_COST_BYTES)))
        );
        let argument = order(&["x", &format!("{text}x")]).check().unwrap_err();
        assert_eq!(argument.to_string(), "argument 1 has 131072 bytes, at most 131071 are accepted");
    }

    #[test]
    fn an_order_for_ssh_has_keys_and_input_and_nothing_else() {
        let line = ssh_key::line(ssh_key::private(&[7; 32]).public_key()).unwrap();
        let ssh = RunOrder { ssh_keys: vec![line.clone()], has_stdin: true, ..order(&[]) };
        assert_eq!((ssh.check(), ssh.shown()), (Ok(()), vec!["(ssh)".to_owned()]));
        let size = TerminalSize { rows: 24, columns: 80 };
        for wrong in [
            RunOrder { command: vec!["true".to_owned()], ..ssh.clone() },
            RunOrder { has_stdin: false, ..ssh.clone() },
            RunOrder { terminal: Some(size), ..ssh.clone() },
            RunOrder { ssh_keys: vec![line; ssh::KEYS_MAX + 1], ..ssh.clone() },
        ] {
            assert!(matches!(wrong.check(), Err(OrderError::Ssh(_))), "{wrong:?}");
        }
        let key = RunOrder { ssh_keys: vec!["ada".to_owned()], ..ssh };
        assert!(matches!(key.check(), Err(OrderError::SshKey(_))));
    }

    #[test]
    fn what_no_system_could_run_is_refused() {
        let variables = |name: &str| BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        let plain = order(&["true"]);
        let size = TerminalSize { rows: 0, columns: 80 };
        let cases = [
            (order(&[]), OrderError::NoCommand),
            (order(&[""]), OrderError::NoCommand),
            (order(&["a\0b"]), OrderError::ZeroByte("argument 0".to_owned())),
            (RunOrder { environment: variables("a=b"), ..plain.clone() }, OrderError::Variable("a=b".to_owned())),
            (
                RunOrder { environment: variables("KOLO_RANK"), ..plain.clone() },
                OrderError::OwnVariable("KOLO_RANK".to_owned()),
            ),
            (RunOrder { rank: 2, ..plain.clone() }, OrderError::Rank { rank: 2, hosts: 2 }),
            (
                RunOrder { hosts: vec!["a".to_owned(), "b\nc".to_owned()], ..plain.clone() },
                OrderError::Host("b\nc".to_owned()),
            ),
            (RunOrder { terminal: Some(size), ..plain.clone() }, OrderError::Terminal(size)),
            (RunOrder { image: Some("-v".to_owned()), ..plain.clone() }, OrderError::ImageName("-v".to_owned())),
            (RunOrder { directory: Some("\0".to_owned()), ..plain }, OrderError::ZeroByte("the directory".to_owned())),
        ];
        for (order, error) in cases {
            assert_eq!(order.check(), Err(error));
        }
    }
}
