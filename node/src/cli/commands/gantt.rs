//! `kolo gantt`: who has which hosts when, as bars of text.

use std::collections::BTreeMap;

use broker::time::{Span, Time};
use serde::{Deserialize, Serialize};

use super::Context;
use crate::{
    cli::{
        args::GanttArgs,
        chart::{BookingView, Canvas, Chart, ChartSite},
        client::{ApiError, Client},
        error::{CliError, Exit},
        output::{Look, Report},
    },
    text::time::{parse_span, parse_time},
};

/// Shortest and longest time that is drawn: a minute to a year.
const SPAN: (Span, Span) = (Span(60), Span(366 * 86_400));
/// Columns when there is no terminal to ask.
const COLUMNS: usize = 100;
/// Most reservations that are drawn.
const BOOKINGS: usize = 20_000;

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &GanttArgs) -> Result<Exit, CliError> {
    let usage = |flag: &str, error: &dyn std::fmt::Display| CliError::Usage(format!("{flag}: {error}"));
    let from = match args.from.is_empty() {
        true => context.time(),
        false => parse_time(&args.from.join(" "), &context.now).map_err(|error| usage("--from", &error))?,
    };
    let span = read_span(&args.span)?;
    let client = context.connect()?;
    let chart = look_at(&client, from, span, args.site.as_deref())?;
    if let Some(site) = args.site.as_ref().filter(|_| chart.sites.is_empty()) {
        return Err(CliError::Usage(format!("--site: no known site has a name or id that begins with {site:?}")));
    }
    let columns = args.width.map(usize::from).or(context.output.look().columns).unwrap_or(COLUMNS);
    context.output.print(&Gantt { chart, canvas: Canvas { columns } })?;
    Ok(Exit::Done)
}

/// How much time is drawn.
pub(super) fn read_span(text: &str) -> Result<Span, CliError> {
    let span = parse_span(text).map_err(|error| CliError::Usage(format!("--span: {error}")))?;
    if span < SPAN.0 || SPAN.1 < span {
        return Err(CliError::Usage(format!("--span: {text:?}: expected 1m to 366d")));
    }
    Ok(span)
}

/// What is reserved in `span` from `from` on, at the sites whose name or id begins with `site`.
pub(super) fn look_at(client: &Client, from: Time, span: Span, site: Option<&str>) -> Result<Chart, ApiError> {
    let until = from + span;
    let hosts = client.hosts()?;
    let told: BookingList = client.get(&format!("/v1/bookings?from={}&until={}&limit={BOOKINGS}", from.0, until.0))?;
    let mut hosts_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for host in &hosts.hosts {
        hosts_of.entry(&host.site).or_default().push(host.host.clone());
    }
    let is_wanted =
        |told: &&ToldSite| site.is_none_or(|site| told.name.starts_with(site) || told.site.starts_with(site));
    let mut sites: Vec<ChartSite> = told
        .sites
        .iter()
        .filter(is_wanted)
        .map(|told| ChartSite {
            site: told.site.clone(),
            name: told.name.clone(),
            schedule: told.schedule.clone(),
            told_age_s: told.told_age_s,
            is_withheld: told.is_withheld,
            hosts: hosts_of.remove(told.site.as_str()).unwrap_or_default(),
        })
        .collect();
    sites.sort_by(|a, b| (&a.name, &a.site).cmp(&(&b.name, &b.site)));
    let is_cut = told.next.is_some() || told.sites.iter().any(|site| site.is_cut);
    let is_shown = |booking: &BookingView| sites.iter().any(|site| site.site == booking.site);
    let bookings = told.bookings.into_iter().filter(is_shown).collect();
    Ok(Chart { from, until, now: told.now, bookings, is_cut, sites })
}

/// Answer of `GET /v1/bookings`.
#[derive(Debug, Deserialize)]
struct BookingList {
    now: Time,
    sites: Vec<ToldSite>,
    bookings: Vec<BookingView>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToldSite {
    site: String,
    name: String,
    schedule: String,
    told_age_s: Option<f64>,
    is_cut: bool,
    #[serde(default)]
    is_withheld: bool,
}

struct Gantt {
    chart: Chart,
    canvas: Canvas,
}

impl Report for Gantt {
    fn body(&self) -> impl Serialize {
        &self.chart
    }

    fn text(&self, look: &Look) -> String {
        self.chart.text(self.canvas, look)
    }

    fn ids(&self) -> Vec<String> {
        let ids: std::collections::BTreeSet<_> = self.chart.bookings.iter().map(BookingView::reservation).collect();
        ids.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{
        client::tests::serve,
        output::{OutputFormat, tests::printed},
    };

    #[test]
    fn sites_hosts_and_reservations_come_together() {
        let hosts = r#"{"hosts":[{"site":"12D3a","site_name":"alpha","host":"a1","resources":{},"attributes":{},
            "free_now":null,"schedule_age_s":null}]}"#;
        let bookings = r#"{"now":1763712000,"sites":[{"site":"12D3b","name":"beta","schedule":"unknown",
            "told_age_s":null,"is_cut":false},{"site":"12D3a","name":"alpha","schedule":"current","told_age_s":1,
            "is_cut":false}],"bookings":[{"site":"12D3a","request":"r1","entry_point":"x","attempt":1,"user":"ada",
            "start":1763712000,"end":1763719200,"hosts":[{"host":"a1","amounts":{"cpu":1}}]}],"next":null}"#;
        let (client, server) = serve(vec![("200 OK", hosts.to_owned()), ("200 OK", bookings.to_owned())]);
        let chart = look_at(&client, Time(1_763_712_000), Span(3600), None).unwrap();
        assert!(server.join().unwrap()[1].starts_with("GET /v1/bookings?from=1763712000&until=1763715600&limit="));
        assert_eq!(chart.sites.iter().map(|site| &*site.name).collect::<Vec<_>>(), ["alpha", "beta"]);
        let gantt = Gantt { chart, canvas: Canvas { columns: 40 } };
        assert!(printed(&gantt, OutputFormat::Table).contains("\n  a1   AAAAAAA"));
        assert_eq!(printed(&gantt, OutputFormat::Quiet), "r1\n");
    }

    #[test]
    fn too_much_and_too_little_time_are_refused() {
        for text in ["1s", "400d", "24", "x"] {
            let error = read_span(text).unwrap_err();
            assert!(error.to_string().starts_with("--span: "), "{error}");
        }
        assert_eq!(read_span("24h").ok(), Some(Span(86_400)));
    }
}
