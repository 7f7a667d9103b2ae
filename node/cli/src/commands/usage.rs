//! `kolo usage`: what this site has earned with its hosts, what the requests of this node have cost, and what was used of what was reserved.

use std::{collections::BTreeMap, fmt::Write as _};

use broker::{cost::Cost, time::Time};
use jiff::{Timestamp, tz::TimeZone};
use kolo_api::accounts::{AccountLine, AccountState, Accounts, ReservedPart, UsedLine};
use kolo_text::{safe::safe, words::site_text};

use super::Context;
use crate::{
    args::{UsageArgs, UsageBy},
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns, remark},
};

/// What is said where nothing costs anything.
const NOTHING: &str = "nothing has cost anything yet, and no command has run on what was reserved here\n";

/// What is said beside costs.
const NO_MONEY: &str = "Kolo moves no money: what is to be paid is settled elsewhere\n";

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &UsageArgs) -> Result<Exit, CliError> {
    let accounts: Accounts = context.connect()?.get("/v1/accounts")?;
    if accounts.is_cut {
        remark("there is more than the node tells at once: these are the latest");
    }
    context.done(&Usage { accounts, by: args.by, is_csv: args.csv, zone: context.now.time_zone().clone() })
}

#[derive(serde::Serialize)]
struct Usage {
    #[serde(flatten)]
    accounts: Accounts,
    #[serde(skip)]
    by: UsageBy,
    #[serde(skip)]
    is_csv: bool,
    #[serde(skip)]
    zone: TimeZone,
}

/// What lines add up to.
#[derive(Default)]
struct Sum {
    reservations: usize,
    /// Of what stands.
    agreed: Cost,
    charged: Cost,
    /// Given back, and not said yet what that costs.
    open: Cost,
}

impl Sum {
    fn add(&mut self, line: &AccountLine) {
        self.reservations += 1;
        let (sum, cost) = match line.state {
            AccountState::Stands => (&mut self.agreed, line.agreed),
            AccountState::Over | AccountState::Cancelled => (&mut self.charged, line.charged),
            AccountState::Open => (&mut self.open, line.charged),
        };
        *sum = [*sum, cost].into_iter().sum();
    }
}

fn month(time: Time, zone: &TimeZone) -> String {
    let at = Timestamp::from_second(time.0).unwrap_or_default();
    at.to_zoned(zone.clone()).strftime("%Y-%m").to_string()
}

impl Usage {
    fn sides(&self) -> [(&'static str, &[AccountLine]); 2] {
        [("earned", &self.accounts.earned), ("spent", &self.accounts.spent)]
    }

    fn group(&self, part: &ReservedPart) -> String {
        match self.by {
            UsageBy::User => safe(&part.user),
            UsageBy::Site => site_text(part.site.as_str(), &part.site_name),
            UsageBy::Month => month(part.window.start, &self.zone),
        }
    }

    fn table(&self, look: &Look) -> String {
        let mut rows = Vec::new();
        for (side, lines) in self.sides() {
            let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
            for line in lines {
                sums.entry(self.group(&line.part)).or_default().add(line);
            }
            rows.extend(sums.into_iter().map(|(group, Sum { reservations, agreed, charged, open })| {
                let costs = [agreed, charged, open].map(|cost| cost.to_string());
                let [agreed, charged, open] = costs;
                [side.to_owned(), group, reservations.to_string(), agreed, charged, open]
            }));
        }
        let header = ["", self.by.heading(), "PARTS", "RESERVED", "TO PAY", "AT MOST"];
        let costs = (!rows.is_empty()).then(|| columns(look, header, rows) + NO_MONEY);
        let tables: Vec<String> = costs.into_iter().chain(self.used(look)).collect();
        if tables.is_empty() { NOTHING.to_owned() } else { tables.join("\n") }
    }

    /// What was used of what was reserved here; none where nothing was.
    fn used(&self, look: &Look) -> Option<String> {
        let mut sums: BTreeMap<String, [u64; 5]> = BTreeMap::new();
        for line in &self.accounts.used {
            let &UsedLine { reserved_s, used_ms, cpu_ms, runs, .. } = line;
            let sum = sums.entry(self.group(&line.part)).or_default();
            for (sum, more) in sum.iter_mut().zip([1, runs, reserved_s.saturating_mul(1000), used_ms, cpu_ms]) {
                *sum = sum.saturating_add(more);
            }
        }
        let row = |(group, [reservations, runs, reserved_ms, used_ms, cpu_ms]): (String, [u64; 5])| {
            let percent = used_ms.saturating_mul(100).checked_div(reserved_ms).unwrap_or(0);
            let [reserved, used, cpu] = [reserved_ms, used_ms, cpu_ms].map(|ms| format!("{:.2}", ms as f64 / 3.6e6));
            let counts = [reservations, runs].map(|count| count.to_string());
            let [reservations, runs] = counts;
            ["used".to_owned(), group, reservations, runs, reserved, used, format!("{percent}%"), cpu]
        };
        let by = self.by.heading();
        let header = ["", by, "RESERVATIONS", "RUNS", "HOST-HOURS", "USED", "", "PROCESSOR-HOURS"];
        (!sums.is_empty()).then(|| columns(look, header, sums.into_iter().map(row)))
    }

    /// Every line by itself, for a spreadsheet.
    fn csv(&self) -> String {
        let mut text =
            "side,user,site,site_name,request,start,end,seats,state,agreed,charged,runs,reserved_s,used_s,cpu_s\n"
                .to_owned();
        for (side, lines) in self.sides() {
            for line in lines {
                let state = match line.state {
                    AccountState::Stands => "stands",
                    AccountState::Over => "over",
                    AccountState::Cancelled => "cancelled",
                    AccountState::Open => "open",
                };
                let AccountLine { part, agreed, charged, .. } = line;
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{side},{},{state},{agreed},{charged},,,,", fields(part));
            }
        }
        for line in &self.accounts.used {
            let UsedLine { part, runs, reserved_s, used_ms, cpu_ms } = line;
            let [used, cpu] = [used_ms, cpu_ms].map(|ms| *ms as f64 / 1e3);
            let _ = writeln!(text, "used,{},,,,{runs},{reserved_s},{used:.3},{cpu:.3}", fields(part));
        }
        text
    }
}

/// What lines of all kinds begin with, behind the side.
fn fields(part: &ReservedPart) -> String {
    let ReservedPart { user, site, site_name, request, window, seats } = part;
    let [user, name, request] = [user, site_name, request.as_str()].map(quoted);
    format!("{user},{site},{name},{request},{},{},{seats}", window.start.0, window.end.0)
}

/// A field as RFC 4180 has it. A spreadsheet takes a text that begins with one of `=+-@` for a formula.
fn quoted(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t']) { "'" } else { "" };
    format!("\"{guard}{}\"", safe(text).replace('"', "\"\""))
}

impl Report for Usage {
    fn text(&self, look: &Look) -> String {
        if self.is_csv { self.csv() } else { self.table(look) }
    }

    fn ids(&self) -> Vec<String> {
        self.accounts.spent.iter().map(|line| line.part.request.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{RequestId, SiteId},
        time::Window,
    };

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    fn part(user: &str, request: &str, window: Window) -> ReservedPart {
        ReservedPart {
            user: user.to_owned(),
            site: SiteId::new("12D3KooWaaaa1111").unwrap(),
            site_name: "alpha".to_owned(),
            request: RequestId::new(request).unwrap(),
            window,
            seats: 2,
        }
    }

    fn line(user: &str, request: &str, start: i64, costs: (u64, u64), state: AccountState) -> AccountLine {
        let part = part(user, request, Window { start: Time(start), end: Time(start + 60) });
        AccountLine { part, agreed: Cost(costs.0), charged: Cost(costs.1), state }
    }

    fn usage(by: UsageBy, is_csv: bool) -> Usage {
        let earned = vec![
            line("ada", "r1", 1_790_000_000, (12_500, 12_500), AccountState::Over),
            line("=bob", "r2", 1_793_000_000, (4_000, 1_000), AccountState::Cancelled),
            line("ada", "r3", 1_793_000_000, (700, 0), AccountState::Stands),
        ];
        let spent = vec![line("ada", "r4", 1_793_000_000, (900, 900), AccountState::Open)];
        Usage { accounts: Accounts { earned, spent, used: Vec::new(), is_cut: false }, by, is_csv, zone: TimeZone::UTC }
    }

    #[test]
    fn lines_add_up_by_user_and_by_month() {
        assert_eq!(
            printed(&usage(UsageBy::User, false), OutputFormat::Table),
            "        USER  PARTS  RESERVED  TO PAY  AT MOST\n\
             earned  =bob  1      0.00      1.00    0.00\n\
             earned  ada   2      0.70      12.50   0.00\n\
             spent   ada   1      0.00      0.00    0.90\n\
             Kolo moves no money: what is to be paid is settled elsewhere\n"
        );
        let by_month = printed(&usage(UsageBy::Month, false), OutputFormat::Table);
        assert!(by_month.contains("2026-09") && by_month.contains("2026-10"), "{by_month}");
    }

    #[test]
    fn a_spreadsheet_gets_every_line_and_no_formula() {
        let text = usage(UsageBy::User, true).csv();
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("earned,\"'=bob\",12D3KooWaaaa1111,\"alpha\",\"r2\","), "{text}");
        assert!(text.ends_with(",2,open,0.90,0.90,,,,\n"), "{text}");
    }

    #[test]
    fn what_was_used_stands_beside_what_was_reserved() {
        let used = |request: &str, reserved_s: u64, used_ms: u64| UsedLine {
            part: part("ada", request, Window { start: Time(0), end: Time(3600) }),
            runs: 3,
            reserved_s,
            used_ms,
            cpu_ms: 900_000,
        };
        let lines = vec![used("r1", 7200, 5_400_000), used("r2", 7200, 0)];
        let accounts = Accounts { earned: Vec::new(), spent: Vec::new(), used: lines, is_cut: false };
        let usage = Usage { accounts, by: UsageBy::User, is_csv: false, zone: TimeZone::UTC };
        assert_eq!(
            printed(&usage, OutputFormat::Table),
            "      USER  RESERVATIONS  RUNS  HOST-HOURS  USED       PROCESSOR-HOURS\n\
             used  ada   2             6     4.00        1.50  37%  0.50\n"
        );
        let csv = usage.csv();
        let row = "used,\"ada\",12D3KooWaaaa1111,\"alpha\",\"r1\",0,3600,2,,,,3,7200,5400.000,900.000\n";
        assert!(csv.contains(row), "{csv}");
    }
}
