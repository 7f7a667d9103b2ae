//! `kolo hosts`: the hosts of the grid, as this node knows them.

use broker::{
    cost::{Cost, PriceList},
    time::Span,
};
use jiff::{Timestamp, tz::TimeZone};
use kolo_api::{
    grid::{HostList, HostView},
    prices::{BeforeView, ConditionsView},
};
use kolo_text::{
    time::{format_span, format_time},
    words::{age_text, amounts_text, attributes_text, site_text},
};

use super::Context;
use crate::{
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
};

pub fn run(context: &mut Context) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let list = client.hosts()?;
    context.done(&list)
}

impl Report for HostList {
    fn text(&self, look: &Look) -> String {
        columns(
            look,
            ["HOST", "SITE", "CAPACITY", "FREE NOW", "ATTRIBUTES", "PRICE", "AGE"],
            self.hosts.iter().map(|host| {
                [
                    host.host.to_string(),
                    site_text(host.site.as_str(), &host.site_name),
                    capacity_text(host),
                    host.free_now.as_ref().map_or_else(|| "unknown".to_owned(), amounts_text),
                    attributes_text(&host.attributes),
                    price_text(host, &look.zone),
                    age_text(host.schedule_age_s),
                ]
            }),
        )
    }
    fn ids(&self) -> Vec<String> {
        self.hosts.iter().map(|host| format!("{}/{}", host.site, host.host)).collect()
    }
}

/// What a host has, and how fast it is where that is not the reference speed.
fn capacity_text(host: &HostView) -> String {
    let speed = if host.speed.is_reference() { String::new() } else { format!(" speed={}", host.speed) };
    format!("{}{speed}", amounts_text(&host.resources))
}

/// Credits for an hour now, and from the next change on; and the conditions.
fn price_text(host: &HostView, zone: &TimeZone) -> String {
    let mut text = prices_text(&host.prices);
    if let Some(next) = &host.next_prices {
        let from = Timestamp::from_second(next.from.0).map(|from| from.to_zoned(zone.clone()));
        let from = from.map_or_else(|_| format_time(next.from, zone), |from| from.strftime("%a %H:%M%:z").to_string());
        text.push_str(&format!("; from {from}: {}", prices_text(&next.prices)));
    }
    if let Some(conditions) = &host.conditions {
        text.push_str(&format!("; {}", conditions_text(conditions)));
    }
    text
}

/// Conditions as they are written in the configuration.
fn conditions_text(conditions: &ConditionsView) -> String {
    let ConditionsView { surcharges, refunds, horizon_s, notice_s, share } = conditions;
    let percent = |part: u32| format!("{}%", f64::from(part) / 10.0);
    let span = |seconds: u64| format_span(Span(seconds));
    let steps = |what: &str, word: &str, steps: &[BeforeView]| {
        let step = |step: &BeforeView| format!("{} {word} {}", percent(step.part), span(step.before_s));
        let steps: Vec<_> = steps.iter().map(step).collect();
        (!steps.is_empty()).then(|| format!("{what} {}", steps.join(" ")))
    };
    let parts = [
        steps("surcharge", "within", surcharges),
        steps("refund", "with notice", refunds),
        horizon_s.map(|horizon| format!("horizon {}", span(horizon))),
        notice_s.map(|notice| format!("notice {}", span(notice))),
        share.map(|share| format!("share {}", percent(share))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Prices as `cpu 6.00 memory 0.50 /h`.
fn prices_text(prices: &PriceList) -> String {
    let parts: Vec<_> = prices.iter().map(|(name, price)| format!("{name} {}", Cost(price.0.into()))).collect();
    if parts.is_empty() { "free".to_owned() } else { format!("{} /h", parts.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn hosts_are_listed_with_capacity_and_what_is_free() {
        let list: HostList = serde_json::from_str(
            r#"{"hosts":[{"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h1","resources":{"cpu":4000,
            "memory":3072},"attributes":{"arch":"x86_64"},"prices":{"cpu":6000,"memory":500},
            "next_prices":{"from":1763748000,"prices":{"cpu":2000}},"conditions":{"surcharges":[{"before_s":3600,"part":500}],
            "refunds":[{"before_s":3600,"part":505}],"horizon_s":60,"notice_s":120,"share":500},"free_now":{"cpu":500},
            "schedule_age_s":3},{"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h2","resources":{"cpu":4000},
            "attributes":{},"speed":1500,"free_now":null,"schedule_age_s":3}],"next":null}"#,
        )
        .unwrap();
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "HOST  SITE                CAPACITY           FREE NOW  ATTRIBUTES   PRICE                                                                                                                                               AGE\n\
             h1    alpha (..aaaa1111)  cpu=4 memory=3GiB  cpu=0.5   arch=x86_64  cpu 6.00 memory 0.50 /h; from Fri 18:00+00:00: cpu 2.00 /h; surcharge 50% within 1h, refund 50.5% with notice 1h, horizon 1m, notice 2m, share 50%  3s\n\
             h2    alpha (..aaaa1111)  cpu=4 speed=1.5    unknown   -            free                                                                                                                                                3s\n"
        );
        assert_eq!(printed(&list, OutputFormat::Quiet), "12D3KooWaaaa1111/h1\n12D3KooWaaaa1111/h2\n");
    }
}
