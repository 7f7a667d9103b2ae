//! `kolo cp`: files into the directory of what runs on a seat, and back.

use std::{
    io::{self, Write as _},
    path::Path,
};

use kolo_api::request_view::RequestView;
use kolo_text::safe::safe;

use super::{Context, path_of, seats};
use crate::{
    error::CliError,
    exit::Exit,
    run::files::{Courier, Sent},
    run_args::CpArgs,
    signing,
};

/// A place at a site: `REQUEST[/SEAT]:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Remote {
    selector: String,
    seat: Option<u32>,
    path: String,
}

impl Remote {
    /// Reads what is no place here: a name before the first colon that is not a path.
    fn read(text: &str) -> Result<Option<Remote>, CliError> {
        let Some((place, path)) = text.split_once(':') else { return Ok(None) };
        if place.is_empty() || place.starts_with(['.', '/']) {
            return Ok(None);
        }
        let (selector, seat) = match place.split_once('/') {
            None => (place, None),
            Some((selector, seat)) => {
                let wrong = |_| CliError::Usage(format!("{text}: {seat:?} is no seat; expected REQUEST/SEAT:PATH"));
                (selector, Some(seat.parse().map_err(wrong)?))
            }
        };
        let path = path.trim_start_matches("./");
        if path.starts_with('/') {
            return Err(CliError::Usage(format!(
                "{text}: the path is below the directory of the run, without / before it"
            )));
        }
        Ok(Some(Remote { selector: selector.to_owned(), seat, path: path.to_owned() }))
    }
}

/// Copies.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &CpArgs) -> Result<Exit, CliError> {
    let form =
        || CliError::Usage("one of the two is REQUEST[/SEAT]:PATH, the other a file or directory here".to_owned());
    match (Remote::read(&args.from)?, Remote::read(&args.to)?) {
        (None, Some(to)) => send(context, args, Path::new(&args.from), &to),
        (Some(from), None) => fetch(context, args, &from, Path::new(&args.to)),
        _ => Err(form()),
    }
}

/// What is sent, and the directory that it goes into: as `cp` takes a last part of a path for a name or a directory.
fn sent(from: &Path, to: &str) -> Result<(Sent, String), CliError> {
    if from.is_dir() {
        return Ok((Sent::directory(from)?, to.trim_end_matches('/').to_owned()));
    }
    let (directory, name) = match to.rsplit_once('/') {
        Some((directory, name)) => (directory, name),
        None => ("", to),
    };
    let own = from.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = if name.is_empty() { own } else { name };
    Ok((Sent::file(from, name)?, directory.to_owned()))
}

fn send(context: &Context, args: &CpArgs, from: &Path, to: &Remote) -> Result<Exit, CliError> {
    let (sent, directory) = sent(from, &to.path)?;
    let client = context.connect_as(&args.key)?;
    let view: RequestView = client.get(&path_of(&client, &to.selector)?)?;
    let hosts = seats::chosen(&view, to.seat.as_slice())?;
    let (grid, opener) = signing::opener(context, &client, &args.key)?;
    let courier = Courier { client: &client, opener: &opener, grid: &grid, request: &view.id, run: None };
    seats::block_on(async {
        for host in hosts {
            courier.send(host, &sent, Some(&directory)).await?;
        }
        Ok(())
    })?;
    Ok(Exit::Done)
}

fn fetch(context: &Context, args: &CpArgs, from: &Remote, to: &Path) -> Result<Exit, CliError> {
    let client = context.connect_as(&args.key)?;
    let view: RequestView = client.get(&path_of(&client, &from.selector)?)?;
    let hosts = seats::chosen(&view, from.seat.as_slice())?;
    let [host] = hosts[..] else {
        let message =
            format!("the reservation has {} seats: say which, such as {}/0:{}", hosts.len(), from.selector, from.path);
        return Err(CliError::Usage(message));
    };
    let (grid, opener) = signing::opener(context, &client, &args.key)?;
    let courier = Courier { client: &client, opener: &opener, grid: &grid, request: &view.id, run: None };
    let patterns = [from.path.clone()];
    let names = seats::block_on(courier.fetch(host, (&patterns, false), to))?;
    if names.is_empty() {
        return Err(CliError::failed(format!("seat {} has no file {:?}", host.seat, from.path)));
    }
    for name in names {
        writeln!(io::stdout(), "{}", safe(&to.join(name).to_string_lossy())).map_err(CliError::output)?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_at_sites_are_told_from_paths_here() {
        let remote =
            |selector: &str, seat, path: &str| Remote { selector: selector.to_owned(), seat, path: path.to_owned() };
        for (text, expected) in [
            ("last:", Some(remote("last", None, ""))),
            ("r-1/2:a/b", Some(remote("r-1", Some(2), "a/b"))),
            ("r:./a:b", Some(remote("r", None, "a:b"))),
            ("./a:b", None),
            ("/a:b", None),
            ("a/b", None),
        ] {
            assert_eq!(Remote::read(text).unwrap(), expected, "{text}");
        }
        assert!(Remote::read("r:/etc/passwd").is_err() && Remote::read("r/x:a").is_err());
    }

    #[test]
    fn a_file_goes_into_a_directory_or_gets_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        std::fs::write(&file, "x").unwrap();
        let of = |to: &str| sent(&file, to).unwrap().1;
        assert_eq!(["", "b", "d/", "d/b", "d/e/"].map(of), ["", "", "d", "d", "d/e"]);
        assert_eq!(sent(directory.path(), "d/").unwrap().1, "d");
        let missing = sent(&directory.path().join("no"), "").map(drop).unwrap_err().to_string();
        assert!(missing.contains("/no: "), "{missing}");
    }
}
