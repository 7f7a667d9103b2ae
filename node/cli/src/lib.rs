//! The command line: raw arguments, checked arguments, one file a command, one way out.
//!
//! Invariant: every run ends with one of the documented exit codes ([`exit::Exit`]); results go to standard output,
//! complaints and progress to standard error. It knows no daemon: it speaks the API, reads the files of a node that is stopped, and is handed
//! what runs one.

mod args;
mod backup_args;
mod batch_args;
mod by_socket;
mod chart;
mod client;
mod commands;
mod connection;
mod dialled;
mod error;
mod exit;
mod foreign;
mod grid_args;
mod keeper_args;
mod keys;
mod local_args;
mod output;
mod price;
mod report;
mod request;
mod request_args;
mod run;
mod run_args;
#[cfg(test)]
mod samples;
pub mod script;
mod signing;
mod suggest;
mod token_args;

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use kolo_config::Surroundings;
use kolo_text::safe::safe;

pub use self::error::{NodeFailure, RunNode};
use self::{
    args::{Cli, Command},
    commands::Context,
    error::CliError,
    exit::Exit,
    output::{Look, Output, Paint},
};

/// Runs the command that the process was started with; `run_node` is what `kolo node` does.
pub fn run(run_node: RunNode) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let words: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            if let Some(here) = foreign::said_here(&error, &words) {
                complain(&CliError::Usage(here));
                return Exit::Usage.into();
            }
            // Nothing is left to be done when even the complaint cannot be written.
            let _ = error.print();
            return Exit::Usage.into();
        }
        Err(help) => {
            let shown = help.print().and_then(|()| io::stdout().flush());
            return end(shown.map(|()| Exit::Done).map_err(CliError::output));
        }
    };
    end(execute(cli, run_node))
}

/// Says what went wrong, if something did; the exit code.
fn end(result: Result<Exit, CliError>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(error) if error.is_broken_pipe() => Exit::Done.into(),
        Err(error) => {
            complain(&error);
            error.exit().into()
        }
    }
}

fn execute(cli: Cli, run_node: RunNode) -> Result<Exit, CliError> {
    let now = jiff::Zoned::now();
    let look = Look::for_stdout(now.time_zone().clone());
    let output = Output::new(cli.global.output, Box::new(io::stdout().lock()), look);
    let mut context = Context { global: cli.global, surroundings: Surroundings::of_process(), now, output };
    match cli.command {
        Command::Node(args) => commands::node::run(&mut context, &args, run_node),
        Command::Submit(args) => commands::submit::run(&mut context, &args),
        Command::Plan(args) => commands::plan::run(&mut context, &args),
        Command::Batch(args) => commands::batch::run(&mut context, &args),
        Command::List(args) => commands::list::run(&mut context, &args),
        Command::Show(args) => commands::show::run(&mut context, &args),
        Command::Explain(args) => commands::explain::run(&mut context, &args),
        Command::Receipt(args) => commands::receipt::run(&mut context, &args),
        Command::Slots(args) => commands::slots::run(&mut context, &args),
        Command::Run(args) => commands::run::run(&mut context, &args),
        Command::Attach(args) => commands::attach::attach(&mut context, &args),
        Command::Ssh(args) => commands::ssh::run(&mut context, &args),
        Command::SshConfig(args) => commands::ssh::config(&mut context, &args),
        Command::SshProxy(args) => commands::ssh_proxy::run(&mut context, &args),
        Command::SshServer(args) => commands::keeper::ssh_server(&args),
        Command::Ps(args) => commands::ps::run(&mut context, &args),
        Command::Cp(args) => commands::cp::run(&mut context, &args),
        Command::Logs(args) => commands::attach::logs(&mut context, &args),
        Command::Wait(args) => commands::wait::run(&mut context, &args),
        Command::Watch(args) => commands::watch::run(&mut context, &args),
        Command::Extend(args) => commands::extend::run(&mut context, &args),
        Command::Gantt(args) => commands::gantt::run(&mut context, &args),
        Command::Top(args) => commands::top::run(&mut context, &args),
        Command::Drain(args) => commands::upkeep::drain(&mut context, &args),
        Command::Reload => commands::upkeep::reload(&mut context),
        Command::Local(args) => commands::local::run(&mut context, &args),
        Command::Open(args) => commands::open::run(&mut context, &args),
        Command::Completions(args) => commands::completions::run(&mut context, &args),
        Command::Man(args) => commands::man::run(&args),
        Command::Keeper(args) => commands::keeper::run(&args),
        Command::Cancel(args) => commands::cancel::run(&mut context, &args),
        Command::Repair(args) => commands::repair::run(&mut context, &args),
        Command::Sites => commands::sites::run(&mut context),
        Command::Usage(args) => commands::usage::run(&mut context, &args),
        Command::Hosts => commands::hosts::run(&mut context),
        Command::Token(args) => commands::token::run(&mut context, &args),
        Command::Grid(args) => commands::grid::run(&mut context, &args),
        Command::InSandbox(args) => commands::keeper::in_sandbox(&args),
        Command::InUnit => commands::keeper::in_unit(),
        Command::AsUser(args) => commands::keeper::as_user(&args),
        Command::Login(args) => commands::login::run(&mut context, &args),
        Command::Whoami(args) => commands::whoami::run(&mut context, &args),
        Command::Join(args) => commands::join::run(&mut context, &args),
        Command::Doctor(args) => commands::doctor::run(&mut context, &args),
        Command::Backup(args) => commands::backup::back_up(&mut context, &args),
        Command::Restore(args) => commands::backup::restore(&mut context, &args),
    }
}

/// Writes `error: what` and `  hint: what to do` to standard error.
fn complain(error: &CliError) {
    let stderr = io::stderr().lock();
    let mut text = format!("{} {}\n", Paint::for_stream(&stderr).bad("error:"), safe(&error.to_string()));
    if let Some(hint) = error.hint() {
        text.push_str(&format!("  hint: {}\n", safe(&hint)));
    }
    // Nothing is left to be done when even the complaint cannot be written.
    let _ = { stderr }.write_all(text.as_bytes());
}
