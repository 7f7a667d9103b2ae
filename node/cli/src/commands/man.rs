//! `kolo man`: the manual pages, one a command, made of the same definition that the command line is read with.
//!
//! For packages. Invariant: a page appears under its name only when it is whole.

use std::{fs, io, path::Path};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::{
    args::{Cli, ManArgs},
    error::CliError,
    exit::Exit,
};

pub fn run(args: &ManArgs) -> Result<Exit, CliError> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &args.directory).map_err(|source| CliError::Io { doing: "writing a manual page", source })?;
    Ok(Exit::Done)
}

fn write_pages(command: &clap::Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, directory)?;
    }
    let man = Man::new(command.clone()).manual("Kolo");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let name = man.get_filename();
    let unfinished = directory.join(format!(".{name}.new"));
    fs::write(&unfinished, page)?;
    fs::rename(unfinished, directory.join(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let _ = run(&ManArgs { directory: directory.path().to_owned() }).unwrap();
        let files = fs::read_dir(directory.path()).unwrap();
        let pages: BTreeSet<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        let commands = Cli::command();
        let shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
        for command in shown {
            assert!(pages.contains(&format!("kolo-{}.1", command.get_name())), "{pages:?}");
        }
        assert!(pages.contains("kolo.1") && pages.contains("kolo-grid-init.1") && !pages.contains("kolo-man.1"));
        let submit = fs::read_to_string(directory.path().join("kolo-submit.1")).unwrap();
        assert!(submit.contains("per\\-host") && submit.contains("KOLO_KEY"), "{submit}");
        let gone = directory.path().join("none");
        assert!(run(&ManArgs { directory: gone }).is_err());
    }
}
