//! `kolo top`: the grid as this node sees it, drawn again and again until the user has seen enough.
//!
//! Invariant: the terminal is given back as it was, however the command ends; a node that does not answer for a while is
//! shown as such and asked again.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use broker::time::{Span, Time};
use crossterm::{
    cursor,
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute, queue,
    terminal::{self, ClearType},
};
use jiff::Timestamp;
use kolo_api::{
    grid::{ScheduleState, SiteList, Status},
    request_view::RequestList,
};
use kolo_text::{
    safe::safe,
    time::{format_span, format_time},
    words::counted,
};
use serde::Serialize;

use super::{Context, gantt};
use crate::{
    args::TopArgs,
    chart::Chart,
    client::Client,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

/// Requests that are shown, and sites.
const ROWS: usize = 8;
/// Columns of a picture that is printed once, when it does not go to a terminal.
const ONCE: usize = 100;
/// Shortest and longest time that the keys set.
const SPAN: (Span, Span) = (Span(900), Span(14 * 86_400));

pub fn run(context: &mut Context, args: &TopArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let can_draw = io::stdout().is_terminal() && io::stdin().is_terminal();
    if args.once || !can_draw {
        let columns = context.output.look().columns.unwrap_or(ONCE);
        let picture = Picture { seen: Seen::at(&client, context.time(), args.span)?, columns };
        return context.done(&picture);
    }
    let failed = |source| CliError::Io { doing: "drawing on the terminal", source };
    // What does not fit is cut, so that a request keeps its one line.
    let look = Look { columns: None, ..context.output.look().clone() };
    let screen = Screen::take().map_err(failed)?;
    let result = draw_until_quit(&client, &look, args.interval, args.span).map_err(failed);
    drop(screen);
    result.map(|()| Exit::Done)
}

/// The terminal while it is ours.
struct Screen;

impl Screen {
    fn take() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(io::stdout(), terminal::EnterAlternateScreen, terminal::DisableLineWrap, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone.
        let _ = execute!(io::stdout(), cursor::Show, terminal::EnableLineWrap, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn draw_until_quit(client: &Client, look: &Look, interval: Duration, mut span: Span) -> io::Result<()> {
    loop {
        let (columns, rows) = terminal::size()?;
        let text = match Seen::at(client, Time(Timestamp::now().as_second()), span) {
            Ok(seen) => Picture { seen, columns: columns.into() }.text(look),
            Err(error) => format!("{}\nasking again; q ends\n", look.paint.bad(&safe(&error.to_string()))),
        };
        draw(&text, rows)?;
        if event::poll(interval)? {
            match event::read()? {
                Event::Key(key) if is_quit(&key) => return Ok(()),
                Event::Key(key) => span = changed(span, &key),
                _ => {}
            }
        }
    }
}

fn is_quit(key: &KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// The time shown after a key: + half of it, - twice as much.
fn changed(span: Span, key: &KeyEvent) -> Span {
    match key.code {
        KeyCode::Char('+' | '=') if key.kind == KeyEventKind::Press => Span(span.0 / 2).max(SPAN.0),
        KeyCode::Char('-') if key.kind == KeyEventKind::Press => Span(span.0 * 2).min(SPAN.1),
        _ => span,
    }
}

/// Draws over what was there, line by line, so that nothing flickers.
fn draw(text: &str, rows: u16) -> io::Result<()> {
    let mut out = io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0))?;
    for (row, line) in text.lines().take(rows.into()).enumerate() {
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        queue!(out, cursor::MoveTo(0, row))?;
        write!(out, "{line}")?;
        queue!(out, terminal::Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, terminal::Clear(ClearType::FromCursorDown))?;
    out.flush()
}

/// Everything that one picture shows.
#[derive(Debug, Clone, Serialize)]
struct Seen {
    status: Status,
    sites: SiteList,
    requests: RequestList,
    chart: Chart,
}

impl Seen {
    fn at(client: &Client, now: Time, span: Span) -> Result<Seen, CliError> {
        Ok(Seen {
            status: client.get("/v1/status")?,
            sites: client.sites()?,
            requests: client.get(&format!("/v1/requests?limit={ROWS}"))?,
            chart: gantt::look_at(client, now, span, None)?,
        })
    }
}

#[derive(Serialize)]
struct Picture {
    #[serde(flatten)]
    seen: Seen,
    #[serde(skip)]
    columns: usize,
}

impl Picture {
    fn head(&self, look: &Look) -> String {
        let status = &self.seen.status;
        let stale = self.seen.sites.sites.iter().filter(|site| site.schedule != ScheduleState::Current).count();
        let stale = if stale == 0 { String::new() } else { look.paint.doubtful(&format!(" ({stale} not current)")) };
        format!(
            "{}  {}  {}\n{}, {}{stale}, {}, {} under way; {} of bars (+ -), q ends\n",
            look.paint.title(&safe(&status.name)),
            safe(&status.grid),
            format_time(self.seen.chart.now, &look.zone),
            counted(status.peers, "peer"),
            counted(status.known_sites, "site"),
            counted(status.known_hosts, "host"),
            counted(status.active_requests, "request"),
            format_span(self.seen.chart.until.since(self.seen.chart.from)),
        )
    }
}

impl Report for Picture {
    fn text(&self, look: &Look) -> String {
        let requests = self.seen.requests.text(look);
        let chart = self.seen.chart.text(self.columns, look);
        format!("{}\n{requests}\n{chart}", self.head(look))
    }

    fn ids(&self) -> Vec<String> {
        self.seen.requests.ids()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use kolo_api::samples::{self, view};
    use serde_json::json;

    use super::*;
    use crate::{chart::tests::chart, output::OutputFormat, samples::printed};

    #[test]
    fn a_picture_has_the_node_the_requests_and_the_bars() {
        let status = json!({"name": "al\u{1b}pha", "grid": "lab-1", "peers": 1, "known_sites": 2, "known_hosts": 3});
        let status = samples::status(&status);
        let sites = SiteList { sites: Vec::new(), next: None, bans: Vec::new(), apart: Vec::new() };
        let requests = RequestList { requests: vec![view("confirmed", None)], next: None };
        let picture = Picture { seen: Seen { status, sites, requests, chart: chart() }, columns: 55 };
        expect![[r#"
            al\u{1b}pha  lab-1  2025-11-21 09:00:00+00:00
            1 peer, 2 sites, 3 hosts, 0 requests under way; 24h of bars (+ -), q ends

            ID    LABEL  STATE      HOSTS  DURATION  START                      SUBMITTED                  REASON
            r-42  mine   confirmed  3      2h        2025-11-21 08:00:00+00:00  2025-11-21 04:40:00+00:00  -

            2025-11-21 08:00:00+00:00 to 2025-11-22 08:00:00+00:00, 30m a column
                   08:00       14:00       20:00       02:00
                   | ▼         |           |           |
            alpha (..aaaa1111)  reservations as of 2s ago
              a1   AAAAAAAAAA##BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
              a2   AAAAAAAAAAAA····································
            be\u{1b}[2Jta (..bbbb2222)  stale, no reservations reported
              b1   AAAAAAAAAAAA????????????????????????????????????
            A first  ada  3 hosts  2025-11-21 08:00:00+00:00 to 2025-11-21 14:00:00+00:00
            B second  -  1 host  2025-11-21 13:00:00+00:00 to 2025-11-22 14:00:00+00:00
        "#]]
        .assert_eq(&printed(&picture, OutputFormat::Table));
    }

    #[test]
    fn keys_change_the_time_shown_within_bounds() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(changed(Span(3600), &key(KeyCode::Char('+'))), Span(1800));
        assert_eq!(changed(Span(900), &key(KeyCode::Char('+'))), Span(900));
        assert_eq!(changed(Span(3600), &key(KeyCode::Char('-'))), Span(7200));
        assert_eq!(changed(Span(14 * 86_400), &key(KeyCode::Char('-'))), Span(14 * 86_400));
        assert!(is_quit(&key(KeyCode::Esc)) && !is_quit(&key(KeyCode::Char('c'))));
        assert!(is_quit(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
