//! What the owner's `[[price]]` tables come to: a tariff for each host, with its prices as steps in UTC.
//!
//! Invariant: the steps depend on the tables and on the day (UTC) alone, so prices that are
//! worked out again on the same day are the same; behind the last day each resource has its highest price.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use broker::{
    cost::{Price, PriceList, Prices},
    ids::HostId,
    resources::ResourceName,
    tariff::Tariff,
    time::{Span, Time},
};

use super::{
    calendar::{DAY_S, When},
    error::ConfigError,
    hosts::OwnHost,
    prices::PriceTable,
};

/// Most steps of all prices of a site together: an advert has no room for more.
const STEPS_MAX: usize = 900;
/// Most `[[price]]` tables.
const TABLES_MAX: usize = 64;

/// The tables, and how far ahead their prices are published.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pricing {
    tables: Vec<PriceTable>,
    reach: Span,
}

impl Pricing {
    /// Checks the tables, for these hosts of the site. `place` says where they are written.
    ///
    /// # Errors
    /// [`ConfigError::Value`] with the table and its key.
    pub fn new(tables: &[PriceTable], reach: Span, hosts: &[OwnHost], place: &str) -> Result<Pricing, ConfigError> {
        let wrong = |index: usize, key: &str, message: String| {
            Err(ConfigError::Value { place: format!("{place}[{index}]{key}"), message })
        };
        if tables.len() > TABLES_MAX {
            let message = format!("expected at most {TABLES_MAX} tables, got {}", tables.len());
            return Err(ConfigError::Value { place: place.to_owned(), message });
        }
        let known: BTreeSet<&HostId> = hosts.iter().map(|own| &own.host.id).collect();
        for (index, table) in tables.iter().enumerate() {
            let named = table.hosts.as_ref();
            if named.is_some_and(BTreeSet::is_empty) {
                return wrong(index, ".hosts", "no host is named: leave the key out for all".to_owned());
            }
            if let Some(other) = named.and_then(|named| named.iter().find(|host| !known.contains(host))) {
                let known: Vec<&str> = known.iter().take(8).map(|host| host.as_str()).collect();
                return wrong(
                    index,
                    ".hosts",
                    format!("{other} is no host of this site (it has {})", known.join(", ")),
                );
            }
            if table.per_hour.is_none() && table.conditions.is_none() {
                return wrong(index, "", "expected per_hour, such as { cpu = \"6.00\" }, or conditions".to_owned());
            }
            if table.per_hour.as_ref().is_some_and(|prices| prices.is_empty()) {
                let message = "no resource is named: write { cpu = \"0\" } for one that is free, or leave the key out";
                return wrong(index, ".per_hour", message.to_owned());
            }
            if let Some(other) = unknown_resource(table, hosts) {
                return wrong(index, ".per_hour", format!("{other} is no resource of these hosts"));
            }
            if table.conditions.is_some() && table.is_timed() {
                let message = "conditions hold at all times: write them in a table without hours and days";
                return wrong(index, ".conditions", message.to_owned());
            }
        }
        Ok(Pricing { tables: tables.to_vec(), reach })
    }

    /// Whether there is no table, and so nothing to be worked out again.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The tariff of each of these hosts that a table names, on the day of `now`.
    pub fn tariffs<'a>(&self, hosts: impl IntoIterator<Item = &'a HostId>, now: Time) -> BTreeMap<HostId, Arc<Tariff>> {
        let mut of_tables: BTreeMap<Vec<usize>, Arc<Tariff>> = BTreeMap::new();
        let mut tariffs = BTreeMap::new();
        for host in hosts {
            let is_named = |table: &PriceTable| table.hosts.as_ref().is_none_or(|hosts| hosts.contains(host));
            let applying: Vec<usize> = (0..self.tables.len()).filter(|index| is_named(&self.tables[*index])).collect();
            if applying.is_empty() {
                continue;
            }
            let tariff = of_tables.entry(applying).or_insert_with_key(|applying| self.tariff(applying, now));
            tariffs.insert(host.clone(), tariff.clone());
        }
        tariffs
    }

    fn tariff(&self, applying: &[usize], now: Time) -> Arc<Tariff> {
        let tables: Vec<&PriceTable> = applying.iter().map(|index| &self.tables[*index]).collect();
        let conditions = tables.iter().rev().find_map(|table| table.conditions.clone()).unwrap_or_default();
        let today = now.0.div_euclid(DAY_S) * DAY_S;
        // Clocks differ, and a request may arrive late.
        let from = (today - DAY_S).max(0);
        let until = (today + DAY_S).saturating_add_unsigned(self.reach.0).min(Time::MAX.0);
        Arc::new(Tariff { prices: prices(&tables, from, until), conditions })
    }
}

/// A resource that a table has a price for and none of its hosts has; nothing is said of a site that has no hosts yet.
fn unknown_resource<'t>(table: &'t PriceTable, hosts: &[OwnHost]) -> Option<&'t ResourceName> {
    let is_meant = |own: &&OwnHost| table.hosts.as_ref().is_none_or(|named| named.contains(&own.host.id));
    let meant: Vec<&OwnHost> = hosts.iter().filter(is_meant).collect();
    let is_unknown = |name: &&ResourceName| !meant.iter().any(|own| own.host.capacity.contains_key(*name));
    table.per_hour.iter().flatten().map(|(name, _)| name).find(|name| !meant.is_empty() && is_unknown(name))
}

/// How many steps an advert has for these tariffs, each distinct one once.
fn steps_of<'a>(tariffs: impl IntoIterator<Item = &'a Arc<Tariff>>) -> usize {
    let mut distinct: Vec<&Arc<Tariff>> = Vec::new();
    for tariff in tariffs {
        if !distinct.contains(&tariff) {
            distinct.push(tariff);
        }
    }
    let steps = |tariff: &&Arc<Tariff>| match &tariff.prices {
        Prices::Always(_) => 1,
        Prices::From(steps) => steps.len(),
    };
    distinct.iter().map(steps).sum()
}

/// Why these tariffs cannot be published, if they cannot.
pub fn too_many_steps<'a>(tariffs: impl IntoIterator<Item = &'a Arc<Tariff>>) -> Option<String> {
    let steps = steps_of(tariffs);
    (steps > STEPS_MAX).then(|| {
        format!(
            "the prices of all hosts change {steps} times until price_reach, and {STEPS_MAX} can be published: give more hosts the \
             same prices, use fewer hours and days, or lower price_reach"
        )
    })
}

/// The prices from `from` on; behind `until` the highest.
fn prices(tables: &[&PriceTable], from: i64, until: i64) -> Prices {
    if tables.iter().all(|table| table.per_hour.is_none() || !table.is_timed()) {
        return Prices::Always(list_at(tables, from));
    }
    let mut moments = BTreeSet::from([from]);
    for table in tables.iter().filter(|table| table.per_hour.is_some() && table.is_timed()) {
        table.when().add_changes(&mut moments, from, until);
    }
    let mut steps: Vec<(Time, PriceList)> = Vec::new();
    let lists = moments.into_iter().map(|at| (Time(at), list_at(tables, at)));
    for (at, list) in lists.chain([(Time(until), highest(tables))]) {
        if steps.last().is_none_or(|(_, before)| *before != list) {
            steps.push((at, list));
        }
    }
    match steps.as_mut_slice() {
        [(_, list)] => Prices::Always(std::mem::take(list)),
        _ => Prices::From(steps),
    }
}

/// The prices at this moment: of each resource that of the last table that holds and names it.
fn list_at(tables: &[&PriceTable], at: i64) -> PriceList {
    let holding = tables.iter().filter(|table| table.when().holds_at(at));
    let mut list: PriceList = holding.filter_map(|table| table.per_hour.clone()).flatten().collect();
    list.retain(|_, price| price.0 > 0);
    list
}

/// The highest price of each resource.
fn highest(tables: &[&PriceTable]) -> PriceList {
    let mut list = PriceList::new();
    for (name, price) in tables.iter().filter_map(|table| table.per_hour.as_ref()).flatten() {
        let most = list.entry(name.clone()).or_insert(*price);
        *most = Price(most.0.max(price.0));
    }
    list.retain(|_, price| price.0 > 0);
    list
}

impl PriceTable {
    /// Whether it holds at some times only.
    fn is_timed(&self) -> bool {
        self.hours.is_some() || self.days.is_some()
    }

    fn when(&self) -> When<'_> {
        When { hours: self.hours.as_slice(), days: self.days, dates: &[], zone: self.zone.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use broker::{amount::Amount, host::Host, schedule::Schedule};
    use jiff::{Timestamp, civil::Weekday, tz::TimeZone};
    use kolo_text::document::{Syntax, parse};
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const ZONES: [&str; 6] =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago", "UTC"];
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

    #[derive(Deserialize)]
    struct Tables {
        price: Vec<PriceTable>,
    }

    fn tables(text: &str) -> Vec<PriceTable> {
        parse::<Tables>(std::path::Path::new("site.toml"), text, Syntax::Toml).unwrap().price
    }

    fn pricing(text: &str, days: u64) -> Pricing {
        Pricing::new(&tables(text), Span(days * 86_400), &hosts(), "site.toml: price").unwrap()
    }

    fn hosts() -> Vec<OwnHost> {
        let host = |id: &str| Host {
            id: HostId::new(id).unwrap(),
            capacity: ["cpu", "gpu", "memory"].map(|name| (ResourceName::new(name).unwrap(), Amount(1000))).into(),
            attributes: Default::default(),
            speed: Default::default(),
            tariff: Default::default(),
        };
        ["h1", "h2"].map(|id| OwnHost { host: host(id), own_work: Schedule::default(), class: None }).into()
    }

    fn time(text: &str) -> Time {
        Time(text.parse::<Timestamp>().unwrap().as_second())
    }

    fn tariff(pricing: &Pricing, host: &str, now: Time) -> Tariff {
        let hosts = hosts();
        Tariff::clone(&pricing.tariffs(hosts.iter().map(|own| &own.host.id), now)[&HostId::new(host).unwrap()])
    }

    /// The price of a core at a start, in thousandths.
    fn of_cpu(prices: &Prices, at: &str) -> u64 {
        let core = serde_json::from_str(r#"{"cpu":1000}"#).unwrap();
        prices.of_seat(time(at), Span(3600), &core).0
    }

    #[test]
    fn a_day_of_the_zone_is_priced_by_its_clock() {
        let text = "[[price]]\nper_hour = { cpu = \"2.00\", memory = \"0.50\" }\n[[price]]\nper_hour = { cpu = \"6.00\" }\n\
                    hours = \"08:00-18:00\"\ndays = \"mon-fri\"\nzone = \"Europe/Berlin\"";
        let prices = tariff(&pricing(text, 60), "h1", time("2026-11-23T12:00:00Z")).prices;
        let at = |at: &str| of_cpu(&prices, at);
        // A Monday in winter, when Berlin is an hour ahead.
        assert_eq!([at("2026-11-23T06:59:59Z"), at("2026-11-23T07:00:00Z")], [2000, 6000]);
        assert_eq!([at("2026-11-23T16:59:59Z"), at("2026-11-23T17:00:00Z")], [6000, 2000]);
        assert_eq!(at("2026-11-28T12:00:00Z"), 2000, "a Saturday");
        let memory = serde_json::from_str(r#"{"memory":1024}"#).unwrap();
        let of_memory = prices.of_seat(time("2026-11-23T12:00:00Z"), Span(3600), &memory);
        assert_eq!(of_memory.0, 500, "of each resource the last table that names it");
        assert_eq!(at("2027-03-01T03:00:00Z"), 6000, "behind what is published the highest");
        let Prices::From(steps) = &prices else { panic!("{prices:?}") };
        assert!(steps[0].0 <= time("2026-11-23T00:00:00Z"), "the present is covered");
        assert_eq!(of_cpu(&prices, "2026-11-22T00:00:01Z"), 2000);
    }

    #[test]
    fn the_days_on_which_the_clock_changes_are_right() {
        let text = "[[price]]\nper_hour = { cpu = \"1\" }\nhours = \"02:30-04:00\"\nzone = \"Europe/Berlin\"";
        let spring = tariff(&pricing(text, 60), "h1", time("2027-03-01T00:00:00Z")).prices;
        let at = |prices: &Prices, at: &str| of_cpu(prices, at);
        // 28 March 2027: 02:00 becomes 03:00 at 01:00 UTC, so there is no 02:30.
        assert_eq!([at(&spring, "2027-03-28T00:59:59Z"), at(&spring, "2027-03-28T01:00:00Z")], [0, 1000]);
        assert_eq!([at(&spring, "2027-03-28T01:59:59Z"), at(&spring, "2027-03-28T02:00:00Z")], [1000, 0]);
        assert_eq!([at(&spring, "2027-03-29T00:29:59Z"), at(&spring, "2027-03-29T00:30:00Z")], [0, 1000]);
        // 31 October 2027: 03:00 becomes 02:00 at 01:00 UTC, so 02:30 to 03:00 comes twice.
        let autumn = tariff(&pricing(text, 60), "h1", time("2027-10-01T00:00:00Z")).prices;
        let seen = ["00:29", "00:30", "00:59", "01:00", "01:29", "01:30", "02:59", "03:00"]
            .map(|clock| at(&autumn, &format!("2027-10-31T{clock}:00Z")));
        assert_eq!(seen, [0, 1000, 1000, 0, 0, 1000, 1000, 0]);
    }

    #[test]
    fn hosts_get_the_prices_and_conditions_of_their_tables() {
        let text = "[[price]]\nper_hour = { cpu = \"1\" }\nconditions = { horizon = \"30d\" }\n[[price]]\nhosts = [\"h2\"]\n\
                    per_hour = { cpu = \"0\", gpu = \"3\" }\nconditions = { share = 50 }";
        let pricing = pricing(text, 60);
        let of = |host| serde_json::to_string(&tariff(&pricing, host, Time(1_795_000_000)).prices).unwrap();
        assert_eq!((of("h1").as_str(), of("h2").as_str()), (r#"{"cpu":1000}"#, r#"{"gpu":3000}"#), "0 is free");
        let conditions = |host| tariff(&pricing, host, Time(1_795_000_000)).conditions;
        assert_eq!(conditions("h1").horizon, Some(Span(30 * 86_400)));
        assert_eq!((conditions("h2").horizon, conditions("h2").share_max.map(|share| share.0)), (None, Some(500)));
    }

    #[test]
    fn without_hours_prices_hold_always_and_on_one_day_they_stay_the_same() {
        let always = pricing("[[price]]\nper_hour = { cpu = \"1\" }\nzone = \"Asia/Tokyo\"", 60);
        assert!(matches!(tariff(&always, "h1", Time(0)).prices, Prices::Always(list) if list.len() == 1));
        assert!(
            Pricing::default().tariffs([&HostId::new("h").unwrap()], Time(0)).values().all(|one| one.prices.is_empty())
        );
        let timed = pricing("[[price]]\nper_hour = { cpu = \"1\" }\nhours = \"8:00-9:00\"", 60);
        let (morning, night) = (time("2026-11-23T00:00:00Z"), time("2026-11-23T23:59:59Z"));
        assert_eq!(tariff(&timed, "h1", morning), tariff(&timed, "h1", night));
        assert_ne!(tariff(&timed, "h1", morning), tariff(&timed, "h1", Time(night.0 + 1)));
        assert!(matches!(tariff(&timed, "h1", Time(0)).prices, Prices::From(steps) if steps[0].0 == Time(0)));
    }

    #[test]
    fn distinct_tariffs_are_counted_once() {
        let now = time("2026-11-23T00:00:00Z");
        let daily = |hosts: &str, price: u32| {
            format!("[[price]]\nhosts = {hosts}\nper_hour = {{ cpu = \"{price}\" }}\nhours = \"08:00-18:00\"\n")
        };
        let steps = |text: &str, days| {
            let hosts = hosts();
            let tariffs = pricing(text, days).tariffs(hosts.iter().map(|own| &own.host.id), now);
            (steps_of(tariffs.values()), too_many_steps(tariffs.values()).is_some())
        };
        let (both, _) = steps(&daily("[\"h1\", \"h2\"]", 1), 60);
        assert!((120..130).contains(&both), "two a day: {both}");
        assert_eq!(steps(&(daily("[\"h1\"]", 1) + &daily("[\"h2\"]", 2)), 60).0, 2 * both);
        assert!(steps(&(daily("[\"h1\"]", 1) + &daily("[\"h2\"]", 2)), 366).1);
        assert_eq!(steps("[[price]]\nper_hour = { cpu = \"1\" }", 366), (1, false));
    }

    #[test]
    fn what_is_wrong_with_a_table_is_named() {
        for (text, expected) in [
            (
                "[[price]]\nper_hour = { cpu = \"1\" }\n[[price]]\nhosts = [\"h9\"]\nper_hour = { cpu = \"1\" }",
                "[1].hosts: h9 is no host of this site (it has h1, h2)",
            ),
            ("[[price]]\nhosts = []\nper_hour = { cpu = \"1\" }", "[0].hosts: no host is named"),
            ("[[price]]\nper_hour = {}", "[0].per_hour: no resource is named"),
            (
                "[[price]]\nhosts = [\"h2\"]\nper_hour = { memroy = \"1\" }",
                "[0].per_hour: memroy is no resource of these hosts",
            ),
            ("[[price]]\nhours = \"8:00-9:00\"", "[0]: expected per_hour"),
            ("[[price]]\nhours = \"8:00-9:00\"\nconditions = {}", "[0].conditions: conditions hold at all times"),
            (
                &"[[price]]\nper_hour = { cpu = \"1\" }\n".repeat(65),
                "site.toml: price: expected at most 64 tables, got 65",
            ),
        ] {
            let error =
                Pricing::new(&tables(text), Span(86_400), &hosts(), "site.toml: price").unwrap_err().to_string();
            assert!(error.starts_with("site.toml: price") && error.contains(expected), "{text}: {error}");
        }
    }

    /// The obvious way: what the zone's calendar and clock show at this moment.
    fn holds_by_the_calendar(zone: &str, hours: Option<(u32, u32)>, days: &[usize], at: i64) -> bool {
        let local = Timestamp::from_second(at).unwrap().to_zoned(TimeZone::get(zone).unwrap());
        let weekday = |weekday: Weekday| usize::try_from(weekday.to_monday_zero_offset()).unwrap();
        let (today, yesterday) = (weekday(local.weekday()), (weekday(local.weekday()) + 6) % 7);
        let minute = u32::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute())).unwrap();
        let has = |day| days.is_empty() || days.contains(&day);
        match hours {
            None => has(today),
            Some((from, until)) if from < until => has(today) && from <= minute && minute < until,
            Some((from, until)) => (has(today) && minute >= from) || (has(yesterday) && minute < until),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn prices_are_those_of_the_tables_that_hold(
            start in 1_790_000_000_i64..1_830_000_000,
            raw in prop::collection::vec(
                (0..ZONES.len(), prop::option::of((0_u32..24 * 60, 0_u32..=24 * 60)), prop::collection::vec(0_usize..7, 0..4), 0_u64..9),
                1..4,
            ),
            moments in prop::collection::vec(0_i64..40 * 86_400, 64),
        ) {
            let mut text = String::new();
            let raw: Vec<_> = raw.into_iter().map(|(zone, hours, days, price)| (zone, hours.filter(|(a, b)| a != b), days, price)).collect();
            for (zone, hours, days, price) in &raw {
                text += &format!("[[price]]\nper_hour = {{ cpu = \"{price}\" }}\nzone = \"{}\"\n", ZONES[*zone]);
                if let Some((from, until)) = hours {
                    text += &format!("hours = \"{:02}:{:02}-{:02}:{:02}\"\n", from / 60, from % 60, until / 60, until % 60);
                }
                if !days.is_empty() {
                    let names: Vec<&str> = days.iter().map(|day| DAYS[*day]).collect();
                    text += &format!("days = {names:?}\n");
                }
            }
            let prices = tariff(&pricing(&text, 40), "h1", Time(start)).prices;
            let core = serde_json::from_str(r#"{"cpu":1000}"#).unwrap();
            for moment in moments {
                // Moments right at full minutes find boundaries that are off by one.
                for at in [start + moment, (start + moment) / 1800 * 1800, (start + moment) / 1800 * 1800 - 1] {
                    let holding = raw.iter().rev().find(|(zone, hours, days, _)| holds_by_the_calendar(ZONES[*zone], *hours, days, at));
                    let expected = holding.map_or(0, |(_, _, _, price)| price * 1000);
                    prop_assert_eq!(prices.of_seat(Time(at), Span(3600), &core).0, expected, "at {}: {}", at, text);
                }
            }
        }
    }
}
