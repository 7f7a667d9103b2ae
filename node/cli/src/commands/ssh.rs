//! `kolo ssh` and `kolo ssh-config`: the stock clients of SSH, led to a seat by `kolo ssh-proxy`.
//!
//! The key that comes in is the user's own for SSH, and is used for nothing else. Invariant: `ssh` takes no server whose key the proxy has not
//! written down.

use std::{
    env,
    fs::File,
    io::{self, Write as _},
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use kolo_api::request_view::{RequestView, ReservedHost};
use kolo_trust::{files, random_bytes, ssh_key};

use super::{Context, path_of, seats};
use crate::{
    error::CliError,
    exit::Exit,
    run_args::{SshArgs, SshConfigArgs, SshKeyArgs},
};

/// The file with the user's key for SSH.
const KEY_FILE: &str = "ssh.key";
/// The file with the keys of servers.
const KNOWN_HOSTS: &str = "ssh.known_hosts";
/// Most servers in it; the oldest go.
const KNOWN_MAX: usize = 256;
/// Largest file of a key, and of known hosts.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// A seat as typed: `REQUEST[/SEAT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// The reservation.
    pub selector: String,
    number: Option<u32>,
}

impl Seat {
    /// Reads it.
    ///
    /// # Errors
    /// When what is behind the slash is no number.
    pub fn read(text: &str) -> Result<Seat, CliError> {
        let Some((selector, number)) = text.split_once('/') else {
            return Ok(Seat { selector: text.to_owned(), number: None });
        };
        let wrong =
            |_| CliError::Usage(format!("{text}: {number:?} is no seat; expected REQUEST/SEAT, such as last/0"));
        Ok(Seat { selector: selector.to_owned(), number: Some(number.parse().map_err(wrong)?) })
    }

    /// Its host in the reservation.
    ///
    /// # Errors
    /// When it is not there, or several could be meant.
    pub fn of<'v>(&self, view: &'v RequestView) -> Result<&'v ReservedHost, CliError> {
        match seats::chosen(view, self.number.as_slice())?[..] {
            [host] => Ok(host),
            ref hosts => {
                let selector = &self.selector;
                let message = format!("the reservation has {} seats: say which, such as {selector}/0", hosts.len());
                Err(CliError::Usage(message))
            }
        }
    }
}

/// The user's key for SSH.
pub struct Identity {
    file: PathBuf,
    /// The line of the public one.
    pub public: String,
}

/// The key that the user has named, or his own, which is made when there is none.
///
/// # Errors
/// When it cannot be read or used.
pub fn identity(context: &Context, args: &SshKeyArgs) -> Result<Identity, CliError> {
    let wrong = |file: &Path, why: &dyn std::fmt::Display| CliError::Usage(format!("{}: {why}", file.display()));
    if let Some(file) = &args.identity {
        let beside = file.with_added_extension("pub");
        let text = files::read(&beside, FILE_BYTES_MAX)?;
        let text = text.ok_or_else(|| CliError::Usage(format!("--identity: there is no {}", beside.display())))?;
        let read = ssh_key::read(text.trim()).and_then(|key| ssh_key::line(&key));
        let file = std::path::absolute(file).map_err(|error| wrong(file, &error))?;
        return Ok(Identity { public: read.map_err(|error| wrong(&beside, &error))?, file });
    }
    let file = directory(context)?.join(KEY_FILE);
    let text = files::read_private_or_make::<CliError>(&file, FILE_BYTES_MAX, || {
        ssh_key::to_file(&ssh_key::private(&random_bytes::<32>()?)).map_err(|error| wrong(&file, &error))
    })?;
    Ok(Identity {
        public: ssh_key::seed_of_file(&text)
            .and_then(|seed| ssh_key::line(ssh_key::private(&seed).public_key()))
            .map_err(|error| wrong(&file, &error))?,
        file,
    })
}

/// The file of the servers that are known.
///
/// # Errors
/// When the user has no directory.
pub fn known_hosts(context: &Context) -> Result<PathBuf, CliError> {
    Ok(directory(context)?.join(KNOWN_HOSTS))
}

/// What `ssh` calls a seat.
pub fn alias(view: &RequestView, host: &ReservedHost) -> String {
    format!("kolo-{}-{}", view.id, host.seat)
}

/// Adds a server to those that are known, whoever else does so at the same time.
///
/// # Errors
/// Those of the disk.
pub fn keep_known(file: &Path, line: &str) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        files::open_directory(directory).map_err(io::Error::other)?;
    }
    let beside = file.with_extension("lock");
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(beside)?;
    lock.lock()?;
    let text = files::read(file, FILE_BYTES_MAX).map_err(io::Error::other)?.unwrap_or_default();
    let mut lines: Vec<&str> = text.lines().filter(|known| *known != line).chain([line]).collect();
    lines.drain(..lines.len().saturating_sub(KNOWN_MAX));
    files::replace(file, &(lines.join("\n") + "\n")).map_err(io::Error::other)
}

fn directory(context: &Context) -> Result<PathBuf, CliError> {
    match context.surroundings.user_dir() {
        Some(directory) => Ok(directory),
        None => context.data_dir(),
    }
}

/// Runs `kolo ssh`.
///
/// # Errors
/// [`CliError`]; else this process has become `ssh`.
pub fn run(context: &mut Context, args: &SshArgs) -> Result<Exit, CliError> {
    let seat = Seat::read(&args.seat)?;
    let client = context.connect_as(&args.keys.key)?;
    let view: RequestView = client.get(&path_of(&client, &seat.selector)?)?;
    let host = seat.of(&view)?;
    let mut ssh = Command::new("ssh");
    let identity = identity(context, &args.keys)?;
    for (name, value) in options(context, (&args.keys, &identity), &view, host)? {
        ssh.arg("-o").arg(format!("{name}={value}"));
    }
    // It takes options of its own behind the name of the host as well.
    ssh.arg(alias(&view, host)).args(&args.arguments);
    let error = ssh.exec();
    Err(CliError::failed(format!("ssh cannot be started: {error}")).hinted("install the client of OpenSSH"))
}

/// Runs `kolo ssh-config`.
///
/// # Errors
/// [`CliError`].
pub fn config(context: &mut Context, args: &SshConfigArgs) -> Result<Exit, CliError> {
    let client = context.connect_as(&args.keys.key)?;
    let view: RequestView = client.get(&path_of(&client, &args.selector)?)?;
    let (mut text, identity) = (String::new(), identity(context, &args.keys)?);
    for host in seats::chosen(&view, &[])? {
        text.push_str(&format!("Host {}\n", alias(&view, host)));
        for (name, value) in options(context, (&args.keys, &identity), &view, host)? {
            text.push_str(&format!("    {name} {value}\n"));
        }
    }
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::output)?;
    Ok(Exit::Done)
}

/// What `ssh` has to know of a seat.
fn options(
    context: &Context,
    (args, identity): (&SshKeyArgs, &Identity),
    view: &RequestView,
    host: &ReservedHost,
) -> Result<Vec<(&'static str, String)>, CliError> {
    let quoted = |path: &Path| format!("\"{}\"", path.display().to_string().replace('%', "%%"));
    Ok(vec![
        ("ProxyCommand", proxy_command(context, args, view, host)?),
        ("HostKeyAlias", alias(view, host)),
        ("User", "kolo".to_owned()),
        ("IdentityFile", quoted(&identity.file)),
        ("IdentitiesOnly", "yes".to_owned()),
        ("UserKnownHostsFile", quoted(&known_hosts(context)?)),
        ("GlobalKnownHostsFile", "/dev/null".to_owned()),
        ("StrictHostKeyChecking", "yes".to_owned()),
        ("PasswordAuthentication", "no".to_owned()),
        // Whatever the user has set for all hosts: a seat is a stranger's machine.
        ("ForwardAgent", "no".to_owned()),
        ("ForwardX11", "no".to_owned()),
        ("PermitLocalCommand", "no".to_owned()),
        ("ControlMaster", "no".to_owned()),
        ("ControlPath", "none".to_owned()),
    ])
}

/// `kolo ssh-proxy` with everything that this command was told, for a shell.
fn proxy_command(
    context: &Context,
    args: &SshKeyArgs,
    view: &RequestView,
    host: &ReservedHost,
) -> Result<String, CliError> {
    let failed = |source| CliError::Io { doing: "finding this program", source };
    let program = env::current_exe().map_err(failed)?;
    let global = &context.global;
    let absolute = |path: &Option<PathBuf>| path.as_deref().map(std::path::absolute).transpose().map_err(failed);
    let mut words = vec![program.display().to_string(), "ssh-proxy".to_owned(), format!("{}/{}", view.id, host.seat)];
    words.extend(global.api.iter().flat_map(|api| ["--api".to_owned(), api.clone()]));
    let paths = [
        ("--token-file", &global.token_file),
        ("--ca-file", &global.ca_file),
        ("--data-dir", &global.data_dir),
        ("--key", &args.key.key),
        ("--identity", &args.identity),
    ];
    for (flag, path) in paths {
        words.extend(absolute(path)?.iter().flat_map(|path| [flag.to_owned(), path.display().to_string()]));
    }
    let line = shlex::try_join(words.iter().map(String::as_str)).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(line.replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use kolo_api::samples::view;

    use super::*;

    #[test]
    fn a_seat_is_read_and_found_where_only_one_can_be_meant() {
        let view = view("active", None);
        let found = |text: &str| Seat::read(text).unwrap().of(&view).map(|host| host.seat.0).map_err(|e| e.to_string());
        assert_eq!(found("last/1"), Ok(1));
        assert!(found("last").unwrap_err().contains("say which, such as last/0"));
        assert!(found("last/99").is_err());
        assert!(Seat::read("last/x").is_err());
    }

    #[test]
    fn servers_are_known_once_and_the_oldest_go() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sub").join(KNOWN_HOSTS);
        for number in 0..KNOWN_MAX + 10 {
            keep_known(&file, &format!("host-{number} key")).unwrap();
        }
        keep_known(&file, "host-20 key").unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[KNOWN_MAX - 1]), (KNOWN_MAX, "host-10 key", "host-20 key"));
    }
}
