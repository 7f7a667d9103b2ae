//! The configuration in force as a file, with a comment for every key.
//!
//! Invariant: what is printed, fed back as `--config`, gives the same configuration; a key that has no value stands there
//! as a comment.

use std::{path::Path, time::Duration};

use broker::{
    request::Effort,
    resources::Attributes,
    time::{Millis, Span},
    trust::OwnerPolicy,
};
use toml::Value;

use super::{
    ActivationConfig, GossipConfig, HostSource, HostTable, LocalConfig, LogFormat, NodeConfig, RemoteConfig,
    policy::format_hours,
};
use crate::text::{
    document::Written,
    time::{format_duration, format_span},
};

/// The configuration as TOML.
#[must_use]
pub fn print_config(config: &NodeConfig) -> String {
    let mut page = Page::default();
    page.line(
        "# Configuration of a Kolo node. Durations have units (10s, 2h30m, 366d); paths are relative to this file.",
    );
    top(&mut page, config);
    planner(&mut page, config);
    negotiation(&mut page, config);
    ledger(&mut page, config);
    policy(&mut page, &config.policy);
    activation(&mut page, &config.activation);
    local(&mut page, &config.local);
    remote(&mut page, config.remote.as_ref());
    gossip(&mut page, &config.gossip);
    page.section("storage", "What is kept on disk.");
    page.duration("history_keep", config.history_keep, "How long requests that are over are remembered. Default 90d.");
    page.section("log", "What is logged, on standard error.");
    let format = match config.log.format {
        LogFormat::Human => "human",
        LogFormat::Json => "json",
    };
    page.text("format", format, "human, or json for one object a line. Default human.");
    page.text(
        "filter",
        &config.log.filter,
        "Level, or levels by module as in discovery=debug,info. Default: Kolo's own at info.",
    );
    hosts(&mut page, &config.host_source);
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn section(&mut self, name: &str, comment: &str) {
        self.line(&format!("\n# {comment}\n[{name}]"));
    }

    fn key(&mut self, key: &str, value: &Value, comment: &str) {
        self.line(&format!("# {comment}\n{key} = {value}"));
    }

    fn text(&mut self, key: &str, value: &str, comment: &str) {
        self.key(key, &Value::String(value.to_owned()), comment);
    }

    fn number(&mut self, key: &str, value: impl TryInto<i64>, comment: &str) {
        self.key(key, &Value::Integer(value.try_into().unwrap_or(i64::MAX)), comment);
    }

    fn duration(&mut self, key: &str, value: Duration, comment: &str) {
        self.text(key, &format_duration(value), comment);
    }

    fn millis(&mut self, key: &str, value: Millis, comment: &str) {
        self.duration(key, Duration::from_millis(value.0), comment);
    }

    fn span(&mut self, key: &str, value: Span, comment: &str) {
        self.text(key, &format_span(value), comment);
    }

    fn list(&mut self, key: &str, values: &[String], comment: &str) {
        let values = values.iter().cloned().map(Value::String).collect();
        self.key(key, &Value::Array(values), comment);
    }

    /// A key that may have no value: then it stands there as a comment, with an example.
    fn optional(&mut self, key: &str, value: Option<Value>, example: &str, comment: &str) {
        match value {
            Some(value) => self.key(key, &value, comment),
            None => self.line(&format!("# {comment}\n# {key} = {example}")),
        }
    }

    fn path(&mut self, key: &str, path: &Path, comment: &str) {
        self.text(key, &path.to_string_lossy(), comment);
    }
}

fn top(page: &mut Page, config: &NodeConfig) {
    page.path(
        "data_dir",
        &config.data_dir,
        "Where identity, ledger and tokens are kept. Default $XDG_DATA_HOME/kolo or ~/.local/share/kolo.",
    );
    page.text("name", &config.name, "What people call the site; not unique. Default: the host name.");
    let comment = "Id of the grid to belong to (a-z 0-9 -). Default: the one kept in data_dir, else a new one.";
    match &config.grid {
        Some(grid) => page.text("grid", &grid.id, comment),
        None => page.line(&format!("# {comment}\n# grid = \"...\"")),
    }
    page.list(
        "listen",
        &config.listen,
        "Multiaddrs to listen on; port 0 lets the system choose. Default: loopback, TCP and QUIC.",
    );
    page.list(
        "announce",
        &config.announce,
        "Multiaddrs that others are told in the place of those, such as that of a port forward. Default: those.",
    );
    page.list("bootstrap", &config.bootstrap, "Multiaddrs of nodes of the grid. Default: none.");
    page.optional(
        "contact",
        config.contact.clone().map(Value::String),
        "\"ssh {user}@{host}.example.org\"",
        "How users reach the hosts; {host}, {user} and {request} are filled in. Default: not told.",
    );
    page.text(
        "api",
        &config.api.to_string(),
        "Where the local API listens; loopback only; port 0 lets the system choose. Default 127.0.0.1:7740.",
    );
    if let HostSource::File(file) = &config.host_source {
        page.path("hosts_file", file, "Snapshot (kolo-grid/1) with this site's hosts and the owner's own occupancy.");
    }
}

fn gossip(page: &mut Page, gossip: &GossipConfig) {
    page.section("gossip", "How schedules are told and asked for.");
    page.duration("interval", gossip.interval, "Least time between two messages with schedule changes. Default 500ms.");
    page.duration(
        "recheck",
        gossip.recheck,
        "Between two checks of schedules that were heard of longest ago. Default 2s.",
    );
    page.number(
        "asked_when_met",
        gossip.asked_when_met,
        "Sites that are asked for their schedules when they are met; of a larger grid the others one by one. Default 64.",
    );
}

fn planner(page: &mut Page, config: &NodeConfig) {
    let planner = &config.negotiation.planner;
    page.section("planner", "How requests are planned.");
    page.text(
        "effort",
        effort_text(planner.effort),
        "fast, balanced or thorough, for requests that ask for none. Default balanced.",
    );
    page.number("m_init", planner.m_init, "Hosts looked at first, as a multiple of those asked. Default 3.");
    page.number("m_max", planner.m_max, "Hosts looked at most, as a multiple of those asked. Default 24.");
    page.span(
        "default_reach",
        planner.default_reach,
        "How far behind the earliest start the latest one is, when a request names none. Default 24h.",
    );
}

fn negotiation(page: &mut Page, config: &NodeConfig) {
    let negotiation = &config.negotiation;
    page.section("negotiation", "How reservations are made for users of this node.");
    page.millis(
        "hold",
        negotiation.hold_for,
        "How long sites are asked to hold; longer than twice answer_timeout. Default 10s.",
    );
    page.millis("answer_timeout", negotiation.answer_timeout, "How long a site's answer is waited for. Default 2s.");
    page.millis("patience", negotiation.patience, "How long a request is tried in all. Default 60s.");
    page.number("attempts", negotiation.max_attempts, "Most attempts a request. Default 32.");
    page.millis(
        "check_min",
        negotiation.check_min,
        "Shortest wait between two looks whether a reservation is still whole; longer than answer_timeout. Default 60s.",
    );
    page.millis("check_max", negotiation.check_max, "Longest wait between two such looks. Default 1h.");
    page.millis(
        "lost_after",
        negotiation.lost_after,
        "How long a site may not answer such looks before its hosts count as lost. Default 5m.",
    );
}

fn ledger(page: &mut Page, config: &NodeConfig) {
    let ledger = &config.ledger;
    page.section("ledger", "What this site grants.");
    page.number("max_holds", ledger.max_holds, "Most holds at a time. Default 10000.");
    page.number(
        "max_holds_per_entry_point",
        ledger.max_holds_per_entry_point,
        "Most holds at a time of one entry point. Default 1000.",
    );
    page.span("farthest_future", ledger.farthest_future, "How far ahead a reservation may end. Default 366d.");
    page.millis("hold_max", ledger.hold_max, "Longest hold granted; not below negotiation.hold. Default 60s.");
}

fn remote(page: &mut Page, remote: Option<&RemoteConfig>) {
    page.section("remote", "The page and the API for browsers of other machines, over TLS, beside the local API.");
    let text = |path: &std::path::Path| Value::String(path.display().to_string());
    let listen = remote.map(|remote| Value::String(remote.address.to_string()));
    page.optional("listen", listen, "\"0.0.0.0:7743\"", "Address and port. Default: none.");
    page.optional("cert", remote.map(|remote| text(&remote.cert)), "\"cert.pem\"", "Chain of certificates (PEM).");
    page.optional("key", remote.map(|remote| text(&remote.key)), "\"key.pem\"", "Private key (PEM).");
    let names = remote.map(|remote| Value::Array(remote.names.iter().cloned().map(Value::String).collect()));
    page.optional("names", names, "[\"kolo.example.org\"]", "What browsers may call this node beside its addresses.");
}

fn policy(page: &mut Page, policy: &OwnerPolicy) {
    let users =
        |users: &std::collections::BTreeSet<String>| Value::Array(users.iter().cloned().map(Value::String).collect());
    let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let span = |span: Span| Value::String(format_span(span));
    page.section(
        "policy",
        "Whom this site grants what. A hold that breaks a rule is refused, and the user is told which.",
    );
    let allow = policy.allow.as_ref().map(users);
    page.optional("allow", allow, "[\"ada\"]", "Only these users, by name or key. Default: everybody.");
    page.key("deny", &users(&policy.deny), "Never these users, by name or key. Default: nobody.");
    page.optional("max_duration", policy.max_duration.map(span), "\"12h\"", "Longest reservation. Default: any.");
    page.optional(
        "max_reach",
        policy.max_reach.map(span),
        "\"30d\"",
        "How far ahead a reservation may end. Default: as ledger.farthest_future.",
    );
    page.optional(
        "hours",
        policy.hours.map(|hours| Value::String(format_hours(hours))),
        "\"18:00-08:00\"",
        "Hours of the day, in UTC, in which reservations may run; the whole of one must fit. Default: all.",
    );
    let shares = policy.user_share_percent.iter();
    let shares = shares.map(|(name, percent)| (name.to_string(), Value::String(format!("{percent}%")))).collect();
    page.key(
        "user_share",
        &Value::Table(shares),
        "Share of each host that one user may have at any time, as in { cpu = \"50%\" }. Default: all of it.",
    );
    page.optional(
        "max_holds",
        policy.limits.max_holds.map(|count| number(count.into())),
        "64",
        "Most holds at a time of one user whose credential does not say. Default 64.",
    );
    page.optional(
        "max_reservations",
        policy.limits.max_reservations.map(|count| number(count.into())),
        "1000",
        "Most reservations at a time of one user whose credential does not say. Default 1000.",
    );
    page.optional(
        "max_host_hours",
        policy.limits.max_host_hours.map(number),
        "500",
        "Most hours, summed over hosts, of one user whose credential does not say. Default: any.",
    );
    page.key(
        "tell_bookings",
        &Value::Boolean(policy.tells_bookings),
        "Whether the rest of the grid is told who has reserved what here; else it sees how much is free. Default true.",
    );
}

fn activation(page: &mut Page, activation: &ActivationConfig) {
    page.section("activation", "The owner's hook, which makes reservations usable (docs/activation.md).");
    let hook = &activation.hook;
    let words = || Value::Array(hook.iter().cloned().map(Value::String).collect());
    page.optional(
        "hook",
        (!hook.is_empty()).then(words),
        "[\"/usr/share/kolo/hooks/systemd-slice\"]",
        "Program to run when reservations come, begin, change and go, and its arguments. Default: none.",
    );
    page.duration("timeout", activation.timeout, "How long a run may take. Default 60s.");
    page.number(
        "tries",
        activation.tries,
        "How often it is run again for an event for which it has failed. Default 3.",
    );
    let early = activation.early.map(|early| Value::String(format_span(early)));
    page.optional(
        "early",
        early,
        "\"30s\"",
        "How long before its window a reservation is started. Default: at its start.",
    );
    page.path("log", &activation.log, "Log of the runs. Default activation.log in data_dir.");
}

fn local(page: &mut Page, local: &LocalConfig) {
    page.section("local", "The program that tells what the owner's own work takes (docs/slurm.md).");
    let words = || Value::Array(local.feed.iter().cloned().map(Value::String).collect());
    let feed = (!local.feed.is_empty()).then(words);
    page.optional("feed", feed, "[\"/usr/share/kolo/feeds/slurm\"]", "The program and its arguments. Default: none.");
    page.duration("every", local.every, "How often it is run. Default 30s.");
    page.duration("timeout", local.timeout, "How long a run may take. Default 20s.");
    page.span(
        "reach",
        local.reach,
        "How far ahead work counts, and how long if its end is not known; up to twice this. Default 7d.",
    );
}

fn hosts(page: &mut Page, source: &HostSource) {
    match source {
        HostSource::File(_) => {}
        HostSource::Machine { share, attributes } => {
            page.section("machine", "This machine is the site's host, unless hosts_file or [[hosts]] list others.");
            page.text("share", &share.to_string(), "Share of cpu, memory and disk that is offered. Default 50%.");
            page.key("attributes", &attribute_table(attributes), "Attributes beside arch and os. Default: none.");
        }
        HostSource::Listed(tables) => {
            for table in tables {
                host(page, table);
            }
        }
    }
}

fn host(page: &mut Page, table: &HostTable) {
    page.line("\n# A host of the site.\n[[hosts]]");
    page.text("id", table.id.as_str(), "Its name, unique in the site.");
    let resources = table.resources.iter().map(|(name, written)| (name.to_string(), written_value(written)));
    page.key("resources", &Value::Table(resources.collect()), "Capacities: cpu in cores, memory and disk with units.");
    page.key("attributes", &attribute_table(&table.attributes), "Qualitative properties. Default: none.");
}

fn written_value(written: &Written) -> Value {
    match written {
        Written::Integer(number) => Value::Integer(*number),
        Written::Text(text) => Value::String(text.clone()),
    }
}

fn attribute_table(attributes: &Attributes) -> Value {
    Value::Table(attributes.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect())
}

fn effort_text(effort: Effort) -> &'static str {
    match effort {
        Effort::Fast => "fast",
        Effort::Balanced => "balanced",
        Effort::Thorough => "thorough",
    }
}
