//! `kolo ps`: what runs, or has run, on the seats of the user's reservations.

use std::time::Duration;

use futures::future::join_all;
use kolo_api::request_view::{RequestState, RequestView, ReservedHost};
use kolo_seat::{
    frame::{FrameReader, FromKeeper, ToKeeper, encode},
    opening::Wish,
};
use serde::Serialize;
use tokio::{io::AsyncWriteExt as _, time::timeout};

use super::{Context, path_of, seats};
use crate::{
    client::Client,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
    run::{
        connection::{self, NoStream},
        job::words,
        seat::Opener,
    },
    run_args::PsArgs,
    signing,
};

/// How long a keeper may take to say how far its run is.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Most reservations that are looked at.
const REQUESTS_MAX: usize = 100;

/// All that was found.
#[derive(Debug, Serialize)]
struct Runs {
    runs: Vec<Run>,
}

/// The last run of a seat.
#[derive(Debug, Serialize)]
struct Run {
    request: String,
    seat: u32,
    host: String,
    site: String,
    site_name: String,
    state: String,
}

impl Report for Runs {
    fn text(&self, look: &Look) -> String {
        if self.runs.is_empty() {
            return "there is no reservation that has begun and not ended\n".to_owned();
        }
        let row = |run: &Run| {
            [run.request.clone(), run.seat.to_string(), run.host.clone(), run.site_name.clone(), run.state.clone()]
        };
        columns(look, ["REQUEST", "SEAT", "HOST", "SITE", "STATE"], self.runs.iter().map(row))
    }

    fn ids(&self) -> Vec<String> {
        self.runs.iter().map(|run| format!("{}/{}", run.request, run.seat)).collect()
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &PsArgs) -> Result<Exit, CliError> {
    let client = context.connect_as(&args.key)?;
    let views = match &args.selector {
        Some(selector) => vec![client.get::<RequestView>(&path_of(&client, selector)?)?],
        None => {
            let mut begun = client.requests()?.requests;
            begun.retain(|view| matches!(view.state, RequestState::Active | RequestState::Degraded));
            begun.truncate(REQUESTS_MAX);
            begun
        }
    };
    let (grid, opener) = signing::opener(context, &client, &args.key)?;
    let mut wanted = Vec::new();
    for view in &views {
        for host in view.reservation.iter().flat_map(|reservation| &reservation.hosts) {
            wanted.push((view, host, seats::attach(&grid, &view.id, host)?));
        }
    }
    let failed = |source| CliError::Io { doing: "asking the seats", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let asked = wanted.into_iter().map(|(view, host, wish)| ask(&client, &opener, (view, host), wish));
    let runs = runtime.block_on(join_all(asked));
    context.done(&Runs { runs })
}

async fn ask(client: &Client, opener: &Opener, (view, host): (&RequestView, &ReservedHost), wish: Wish) -> Run {
    let state = match timeout(ANSWER_MAX, state(client, opener, &wish)).await {
        Ok(Ok(state)) => state,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".to_owned(),
    };
    Run {
        request: view.id.to_string(),
        seat: host.seat.0,
        host: host.host.to_string(),
        site: host.site.to_string(),
        site_name: host.site_name.clone(),
        state,
    }
}

/// How far the last run of a seat is, in words.
async fn state(client: &Client, opener: &Opener, wish: &Wish) -> Result<String, NoStream> {
    let stream = connection::open(client, &opener.wanted(wish)?).await?;
    let (read, mut write) = tokio::io::split(stream);
    // None of the output: what is wanted begins behind its end.
    let attach = encode(&ToKeeper::Attach { from_stdout: u64::MAX, from_stderr: u64::MAX });
    write.write_all(&attach.map_err(|error| NoStream::Refused(error.to_string()))?).await?;
    write.flush().await?;
    let mut frames = FrameReader::new(read);
    let mut is_ready = false;
    loop {
        let frame = frames.next().await.map_err(|error| NoStream::NotNow(error.to_string()))?;
        match frame {
            Some(FromKeeper::Started { pid }) => return Ok(format!("running (process {pid})")),
            Some(FromKeeper::Ended(end)) => return Ok(words(&end)),
            Some(FromKeeper::Ready) => is_ready = true,
            Some(FromKeeper::StdinAck { .. }) if is_ready => return Ok("ready, not started".to_owned()),
            Some(_) => {}
            None => return Err(NoStream::NotNow("the site has closed the stream".to_owned())),
        }
    }
}
