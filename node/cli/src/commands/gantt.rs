//! `kolo gantt`: who has which hosts when, as bars of text.

use std::collections::BTreeMap;

use broker::{
    ids::HostId,
    time::{Span, Time},
};
use kolo_api::bookings::{BookedSite, BookingList, BookingView};
use serde::Serialize;

use super::Context;
use crate::{
    args::GanttArgs,
    chart::{Chart, ChartSite},
    client::Client,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

/// Columns when there is no terminal to ask.
const COLUMNS: usize = 100;
/// Most reservations that are drawn.
const BOOKINGS: usize = 20_000;

pub fn run(context: &mut Context, args: &GanttArgs) -> Result<Exit, CliError> {
    let from = context.time_of("--from", &args.from)?.unwrap_or_else(|| context.time());
    let client = context.connect()?;
    let chart = look_at(&client, from, args.span, args.site.as_deref())?;
    if let Some(site) = args.site.as_ref().filter(|_| chart.sites.is_empty()) {
        return Err(CliError::Usage(format!("--site: no known site has a name or id that begins with {site:?}")));
    }
    let columns = args.width.map(usize::from).or(context.output.look().columns).unwrap_or(COLUMNS);
    context.done(&Gantt { chart, columns })
}

/// What is reserved in `span` from `from` on, at the sites whose name or id begins with `site`.
pub(super) fn look_at(client: &Client, from: Time, span: Span, site: Option<&str>) -> Result<Chart, CliError> {
    let until = from + span;
    let hosts = client.hosts()?;
    let reported: BookingList =
        client.get(&format!("/v1/bookings?from={}&until={}&limit={BOOKINGS}", from.0, until.0))?;
    let mut hosts_of: BTreeMap<&str, Vec<HostId>> = BTreeMap::new();
    for host in &hosts.hosts {
        hosts_of.entry(host.site.as_str()).or_default().push(host.host.clone());
    }
    let is_wanted = |reported: &&BookedSite| {
        site.is_none_or(|site| reported.name.starts_with(site) || reported.site.as_str().starts_with(site))
    };
    let mut sites: Vec<ChartSite> = reported
        .sites
        .iter()
        .filter(is_wanted)
        .map(|reported| ChartSite {
            site: reported.site.clone(),
            name: reported.name.clone(),
            schedule: reported.schedule,
            told_age_s: reported.told_age_s,
            is_withheld: reported.is_withheld,
            hosts: hosts_of.remove(reported.site.as_str()).unwrap_or_default(),
            uplink_mbps: reported.uplink_mbps,
        })
        .collect();
    sites.sort_by(|a, b| (&a.name, &a.site).cmp(&(&b.name, &b.site)));
    let is_cut = reported.next.is_some() || reported.sites.iter().any(|site| site.is_cut);
    let is_shown = |booking: &BookingView| sites.iter().any(|site| site.site == booking.site);
    let bookings = reported.bookings.into_iter().filter(is_shown).collect();
    Ok(Chart { from, until, now: reported.now, bookings, is_cut, sites })
}

#[derive(Serialize)]
struct Gantt {
    #[serde(flatten)]
    chart: Chart,
    #[serde(skip)]
    columns: usize,
}

impl Report for Gantt {
    fn text(&self, look: &Look) -> String {
        self.chart.text(self.columns, look)
    }

    fn ids(&self) -> Vec<String> {
        let ids: std::collections::BTreeSet<_> = self.chart.bookings.iter().map(BookingView::reservation).collect();
        ids.into_iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        output::OutputFormat,
        samples::{printed, serve},
    };

    #[test]
    fn sites_hosts_and_reservations_come_together() {
        let hosts = r#"{"hosts":[{"site":"12D3a","site_name":"alpha","host":"a1","resources":{},"attributes":{},
            "free_now":null,"schedule_age_s":null}],"next":null}"#;
        let bookings = r#"{"now":1763712000,"sites":[{"site":"12D3b","name":"beta","schedule":"unknown",
            "told_age_s":null,"is_cut":false,"is_withheld":false},{"site":"12D3a","name":"alpha","schedule":"current","told_age_s":1,
            "is_cut":false,"is_withheld":false}],"bookings":[{"site":"12D3a","request":"r1","entry_point":"x","attempt":1,"user":"ada",
            "start":1763712000,"end":1763719200,"hosts":[{"host":"a1","end":1763719200,"amounts":{"cpu":1}}]}],"next":null}"#;
        let (client, server) = serve(vec![("200 OK", hosts.to_owned()), ("200 OK", bookings.to_owned())]);
        let chart = look_at(&client, Time(1_763_712_000), Span(3600), None).unwrap();
        assert!(server.join().unwrap()[1].starts_with("GET /v1/bookings?from=1763712000&until=1763715600&limit="));
        assert_eq!(chart.sites.iter().map(|site| &*site.name).collect::<Vec<_>>(), ["alpha", "beta"]);
        let gantt = Gantt { chart, columns: 40 };
        assert!(printed(&gantt, OutputFormat::Table).contains("\n  a1   AAAAAAA"));
        assert_eq!(printed(&gantt, OutputFormat::Quiet), "r1\n");
    }
}
