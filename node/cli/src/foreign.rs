//! Words of other schedulers that are no flags or commands of `kolo`, and what says the same here.
//!
//! Invariant: only what was refused anyway is looked up, so no word of Kolo's own changes its meaning.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// A flag of other programs.
struct Flag {
    names: &'static [&'static str],
    /// How its value is said here; `{}` is the value.
    here: &'static str,
    /// A value for whoever has typed none.
    usual: &'static str,
}

const fn flag(names: &'static [&'static str], here: &'static str, usual: &'static str) -> Flag {
    Flag { names, here, usual }
}

const FLAGS: [Flag; 12] = [
    flag(&["--cpus", "--cpu", "--cores", "--cpus-per-task", "--cpus-per-node", "-c"], "--per-host cpu={}", "4"),
    flag(&["--gpus", "--gpu", "--gpus-per-node", "--gres", "-G"], "--per-host gpu={}", "1"),
    flag(&["--mem", "--memory", "--ram", "--mem-per-node"], "--per-host memory={}", "4GiB"),
    flag(&["--disk", "--tmp"], "--per-host disk={}", "10GiB"),
    flag(&["-n", "--ntasks", "--nodes", "--node", "--num-nodes", "--nnodes", "-np"], "-N {}", "2"),
    flag(&["--time", "--walltime", "--time-limit"], "-t {}", "1h"),
    flag(&["--begin", "--start", "--at", "-b"], "--earliest {}", "18:00"),
    flag(&["--constraint", "-C", "--attribute"], "--where {}", "arch=x86_64"),
    flag(&["--nodelist", "-w", "--host-list"], "--candidate {}", "HOST"),
    flag(&["--job-name", "-J", "--name", "--label"], "--id {}", "NAME"),
    flag(&["--price", "--cost", "--max-cost"], "--budget {}", "12.50"),
    flag(&["--container", "--docker-image"], "--image {}", "IMAGE"),
];

/// The commands that take the flags of a request.
const DESCRIBING: [&str; 4] = ["submit", "plan", "slots", "run"];

/// A command elsewhere, and the one that does it here.
const COMMANDS: [(&[&str], &str); 10] = [
    (&["status", "queue", "squeue", "qstat", "oarstat", "ls", "jobs", "requests"], "kolo list"),
    (&["sinfo", "nodes", "pbsnodes"], "kolo hosts"),
    (&["sbatch", "qsub", "oarsub", "reserve", "book", "request"], "kolo submit"),
    (&["srun", "exec", "launch", "salloc"], "kolo run"),
    (&["scancel", "qdel", "oardel", "rm", "delete", "kill", "stop"], "kolo cancel"),
    (&["info", "describe", "get"], "kolo show"),
    (&["log"], "kolo logs"),
    (&["start", "serve", "daemon", "up"], "kolo node"),
    (&["why"], "kolo explain"),
    (&["web", "page", "ui"], "kolo open"),
];

/// What says here what somebody has typed that the parser has refused; `words` is all that was typed.
pub fn said_here(error: &Error, words: &[String]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => of_flag(context(ContextKind::InvalidArg)?, words),
        ErrorKind::InvalidSubcommand => {
            let typed = context(ContextKind::InvalidSubcommand)?;
            let (_, here) = COMMANDS.iter().find(|(elsewhere, _)| elsewhere.contains(&typed))?;
            Some(format!("no command is called {typed}: say {here}"))
        }
        _ => None,
    }
}

/// What a flag of another program is here.
fn of_flag(typed: &str, words: &[String]) -> Option<String> {
    if let Some((name, _)) = typed.split_once('=').filter(|(name, _)| !name.starts_with('-')) {
        return Some(blank_for_comma(name, typed));
    }
    let describes_request = match words {
        // A line of a script has flags only.
        [first, ..] if first.starts_with('-') => true,
        [_, command, ..] => DESCRIBING.contains(&command.as_str()),
        _ => false,
    };
    if !describes_request {
        return None;
    }
    let Flag { here, usual, .. } = FLAGS.iter().find(|flag| flag.names.contains(&typed))?;
    let value = value_of(typed, words).map(|value| plain(typed, &value));
    Some(format!("no flag is called {typed}: say {}", here.replace("{}", value.as_deref().unwrap_or(usual))))
}

/// What to tell somebody who has typed `cpu=1 mem=4GiB`.
pub fn blank_for_comma(name: &str, typed: &str) -> String {
    format!(
        "{typed}: no flag is before it; amounts of several resources are joined by a comma, as in --per-host cpu=1,{name}=..."
    )
}

/// What to tell somebody whose command begins with a `NAME=VALUE`, which is no program.
pub fn no_command(word: &str) -> Option<String> {
    let (name, _) = word.split_once('=').filter(|(name, _)| !name.contains('/'))?;
    let is_variable = name.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_variable {
        format!("{word}: expected a command; its variables are set by --env {word}")
    } else {
        blank_for_comma(name, word)
    })
}

/// The value that was typed behind this flag: in the same word, or the next.
fn value_of(flag: &str, words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word.starts_with(flag))?;
    let rest = words[at][flag.len()..].trim_start_matches('=');
    let value = if rest.is_empty() {
        words.get(at + 1).map(String::as_str).filter(|next| !next.starts_with('-'))?
    } else {
        rest
    };
    Some(value.to_owned())
}

/// `gpu:2` and `gpu:a100:2` of other programs are the number.
fn plain(flag: &str, value: &str) -> String {
    let count =
        value.rsplit(':').next().filter(|count| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()));
    match count {
        Some(count) if flag.starts_with("--g") => count.to_owned(),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn told(line: &str) -> Option<String> {
        let words = shlex::split(line).unwrap();
        said_here(&Cli::try_parse_from(&words).unwrap_err(), &words)
    }

    #[test]
    fn flags_of_other_programs_are_named_with_what_says_the_same() {
        for (line, expected) in [
            ("kolo submit -N 1 --cpus 4", "no flag is called --cpus: say --per-host cpu=4"),
            ("kolo submit --cpus=4", "no flag is called --cpus: say --per-host cpu=4"),
            ("kolo plan --gpus 1", "no flag is called --gpus: say --per-host gpu=1"),
            ("kolo run --gres=gpu:a100:2 hostname", "no flag is called --gres: say --per-host gpu=2"),
            ("kolo submit --mem 4GiB", "no flag is called --mem: say --per-host memory=4GiB"),
            ("kolo submit --mem", "no flag is called --mem: say --per-host memory=4GiB"),
            ("kolo run -n 2 hostname", "no flag is called -n: say -N 2"),
            ("kolo run -n2 hostname", "no flag is called -n: say -N 2"),
            ("kolo submit -N 1 --time 1h", "no flag is called --time: say -t 1h"),
            ("kolo submit -N 1 --begin 18:00", "no flag is called --begin: say --earliest 18:00"),
            ("kolo status", "no command is called status: say kolo list"),
            ("kolo squeue", "no command is called squeue: say kolo list"),
            ("kolo scancel last", "no command is called scancel: say kolo cancel"),
        ] {
            assert_eq!(told(line).as_deref(), Some(expected), "{line}");
        }
        let told = told("kolo list cpu=1").unwrap();
        assert!(told.starts_with("cpu=1: no flag is before it") && told.contains("joined by a comma"), "{told}");
    }

    #[test]
    fn a_command_needs_no_dashes_before_it() {
        let command = |line: &str| match Cli::try_parse_from(shlex::split(line).unwrap()).unwrap().command {
            Command::Run(args) => args.command,
            Command::Ssh(args) => args.arguments,
            Command::Watch(args) => args.command,
            other => panic!("{other:?}"),
        };
        for line in [
            "kolo run -N 1 -t 10min ls -l --color",
            "kolo run -N 1 -t 10min -- ls -l --color",
            "kolo run --in last ls -l --color",
            "kolo ssh last/0 ls -l --color",
            "kolo ssh last/0 -- ls -l --color",
            "kolo watch last ls -l --color",
        ] {
            assert_eq!(command(line), ["ls", "-l", "--color"], "{line}");
        }
        assert!(Cli::try_parse_from(["kolo", "run", "-N", "1", "-t", "1h"]).is_err(), "a command is asked for");
        let told = no_command("mem=4GiB").unwrap();
        assert!(told.contains("joined by a comma"), "{told}");
        assert!(no_command("LANG=C").unwrap().ends_with("--env LANG=C"));
        assert_eq!((no_command("hostname"), no_command("./a=b")), (None, None));
    }

    #[test]
    fn what_the_parser_says_itself_is_left_to_it() {
        for line in [
            "kolo submit --host 5",
            "kolo shwo",
            "kolo submit -N x",
            "kolo",
            "kolo --version",
            "kolo cancel --name x",
            "kolo node --cpus 4",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }
}
