//! A command on a seat that has a terminal, whose keys and size are those of the user's.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use end_to_end::{Ended, Node, hosts, run, skip, wait_for};
use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

use crate::run_on_seats::runner;

/// A terminal, as a user has one.
struct Terminal {
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn new(rows: u16, columns: u16) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let terminal = Terminal { keys: File::from(master), shown: Arc::default() };
        terminal.resize(rows, columns);
        let (mut screen, shown) = (terminal.keys.try_clone().unwrap(), Arc::clone(&terminal.shown));
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // It ends when nobody has the terminal open any more.
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                shown.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        terminal
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).unwrap();
    }

    /// Starts a command in a session of its own that has this terminal.
    fn start(&self, command: &Command) -> (Child, File) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let open = || File::from(ioctl_tiocgptpeer(&self.keys, flags).unwrap());
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg("--wait").arg(command.get_program()).args(command.get_args()).env("TERM", "vt100");
        let child = session.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        (child, open())
    }

    fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn wait_for(&self, text: &str) {
        wait_for(text, || {
            let shown = String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        });
    }
}

/// `kolo` with these arguments, the last of which may be a command for a seat.
fn kolo(node: &Node, arguments: &[&str]) -> Command {
    let mut kolo = node.command(&[]);
    kolo.args(arguments).stdin(Stdio::null());
    kolo
}

fn kolo_run(node: &Node, arguments: &[&str]) -> Ended {
    run(&mut kolo(node, arguments))
}

#[test]
fn keys_sizes_and_signals_reach_a_command_that_has_a_terminal() {
    let missing = skip::missing(&["setsid", "stty"]);
    if !missing.is_empty() {
        return skip::skip(&format!("not installed: {}", missing.join(", ")));
    }
    let node = Node::start("alpha", &hosts("a", 1), runner());
    node.wait_until_it_knows(1);
    let id = node.kolo_json(&["submit", "-N", "1", "-t", "1h"], 0)["id"].as_str().unwrap().to_owned();
    let script = "trap 'echo interrupted' INT; trap 'echo resized to $(stty size)' WINCH; \
        echo $TERM of $(stty size); while :; do read -t 0.2 line || continue; echo got $line; [ \"$line\" = end ] && exit 7; done";

    let mut terminal = Terminal::new(30, 100);
    let (mut running, open) = terminal.start(&kolo(&node, &["run", "--in", &id, "--pty", "--", "bash", "-c", script]));
    terminal.wait_for("vt100 of 30 100");
    // The command hears of a key that would have ended `kolo`, and `kolo` goes on.
    terminal.type_keys("\u{3}");
    terminal.wait_for("interrupted");
    terminal.type_keys("one\r");
    terminal.wait_for("got one");
    terminal.resize(40, 120);
    terminal.wait_for("resized to 40 120");
    terminal.type_keys("~.");
    assert_eq!(running.wait().unwrap().code(), Some(125));
    terminal.wait_for("left running");
    let modes = tcgetattr(&open).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "it is as it was: {modes:?}");

    // It runs on, and another terminal takes it over.
    let mut other = Terminal::new(20, 60);
    let (mut running, _open) = other.start(&node.command(&["attach", &id, "--pty"]));
    other.wait_for("resized to 20 60");
    other.type_keys("end\r");
    assert_eq!(running.wait().unwrap().code(), Some(7));
    other.wait_for("got end");

    // Without a terminal of the user's the command has one all the same.
    let piped = kolo_run(&node, &["run", "--in", &id, "--pty", "--", "sh", "-c", "test -t 0 && stty size"]);
    assert_eq!((piped.code, piped.out.trim()), (Some(0), "24 80"), "{piped:?}");
}

#[test]
fn a_terminal_is_for_one_seat() {
    let node = Node::start("alpha", &hosts("a", 2), runner());
    node.wait_until_it_knows(2);
    let id = node.kolo_json(&["submit", "-N", "2", "-t", "1h"], 0)["id"].as_str().unwrap().to_owned();
    for refused in
        [kolo_run(&node, &["run", "--in", &id, "--pty", "--", "true"]), kolo_run(&node, &["attach", &id, "--pty"])]
    {
        assert!(refused.code == Some(64) && refused.err.contains("--on 0"), "{refused:?}");
    }
    let one = kolo_run(&node, &["run", "--in", &id, "--on", "1", "--pty", "--", "true"]);
    assert_eq!(one.code, Some(0), "{one:?}");
}
