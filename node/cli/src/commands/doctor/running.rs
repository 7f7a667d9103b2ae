//! The state of the node that runs here: whether others can reach it, and whether it reaches others.
//!
//! Invariant: a node that does not answer is no problem by itself, since the doctor is asked when one does not run.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use broker::{
    ids::SiteId,
    time::{Span, Time},
};
use discovery::check::STEPS_PER_SITE_MAX;
use jiff::tz::TimeZone;
use kolo_api::grid::{
    ApartView, BanView, FailedActivation, HostList, HostView, ReachView, SOFTWARE, ScheduleState, SiteList, SiteView,
    Status,
};
use kolo_api::upkeep::ClockConfirmed;
use kolo_runtime::clock::is_off;
use kolo_text::{
    safe::safe,
    time::{format_span, format_time},
    words::{counted, site_text},
};
use ureq::http::StatusCode;

use super::finding::{Finding, Level};
use crate::{client::Client, error::CliError, exit::Exit};

/// How long a connection to one of the node's own ports may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long other sites may take to test whether they reach the node.
const DIAL_BACK_WAIT: Duration = Duration::from_secs(10);
/// Most ports that are tried.
const PORTS_MAX: usize = 16;

/// Failures of the owner's hook longer ago are no news.
const FAILED_LATELY: Span = Span(86_400);

/// Asks the node here, if one answers.
pub(super) fn check(client: Result<Client, CliError>, now: Time, zone: &TimeZone) -> Vec<Finding> {
    const CHECK: &str = "node";
    let to_do = "start kolo node and run kolo doctor again: then ports, peers and clocks are checked as well";
    let silent = |what: String| vec![Finding::note(CHECK, what, to_do)];
    let client = match client {
        Ok(client) => client,
        Err(error) => return silent(error.to_string()),
    };
    let seen = client.get::<Status>("/v1/status").and_then(|status| Ok((status, client.sites()?)));
    match seen {
        Ok((status, sites)) => {
            let mut findings = vec![check_version(&status)];
            findings.extend(check_api(&status));
            findings.extend(check_ports(&status.listen));
            findings.push(check_reach(&status, announced(&status, &sites)));
            // A node of an earlier version cannot be asked this.
            let tried = (status.peers > 0).then(|| client.get_waiting::<ReachView>("/v1/reach", DIAL_BACK_WAIT).ok());
            findings.extend(tried.flatten().map(|tried| check_inbound(&tried, &status, announced(&status, &sites))));
            findings.extend(check_stopped(&status));
            findings.push(check_peers(&status));
            findings.push(check_schedules(&sites));
            findings.extend(check_coarse(&status, zone));
            findings.extend(check_versions(&sites.apart));
            findings.push(check_clock(&status));
            findings.push(check_bans(&sites.bans, zone));
            findings.extend(check_room(&status));
            findings.extend(client.hosts().ok().and_then(|list| check_prices(&list, &status.site, zone)));
            findings.extend(check_activation(&status.failed_activations, now, zone));
            findings
        }
        // Something answers, but no node that knows this token.
        Err(error) if error.exit() == Exit::Failure && !is_of_node(&error) => {
            let to_do = error.hint().unwrap_or_else(|| "see which program listens there".to_owned());
            vec![Finding::problem(CHECK, error.to_string(), to_do)]
        }
        Err(error) => silent(error.to_string()),
    }
}

/// A stop of all commands by the owner, if there is one.
fn check_stopped(status: &Status) -> Option<Finding> {
    let what = format!("all commands of users are stopped here: {}", status.stopped.as_ref()?);
    Some(Finding::note("commands", what, "kolo local resume lets them start again"))
}

/// Which hosts of this site cost something, as the grid sees it; none when all is free.
fn check_prices(list: &HostList, site: &SiteId, zone: &TimeZone) -> Option<Finding> {
    let own: Vec<_> = list.hosts.iter().filter(|host| host.site == *site).collect();
    let is_priced = |host: &&&HostView| !host.prices.is_empty() || host.next_prices.is_some();
    let priced = own.iter().filter(is_priced).count();
    let next = own.iter().filter_map(|host| host.next_prices.as_ref()).map(|next| next.from).min();
    let next = next.map_or_else(String::new, |from| format!("; prices change at {}", format_time(from, zone)));
    let what = format!("{priced} of {} of this site cost something{next} (kolo hosts)", counted(own.len(), "host"));
    (priced > 0).then(|| Finding::good("prices", what))
}

/// Whether a node has answered that takes this token, and could not do what it was asked.
fn is_of_node(error: &CliError) -> bool {
    matches!(error, CliError::Problem { status, .. } if *status != StatusCode::UNAUTHORIZED)
}

fn check_version(status: &Status) -> Finding {
    if status.software == SOFTWARE {
        return Finding::good("node", format!("{SOFTWARE} runs"));
    }
    let what = format!("{} runs, but {SOFTWARE} is installed", status.software);
    Finding::note("node", what, "restart the node")
}

/// Another program that has the port of the API and the page, if there is one.
fn check_api(status: &Status) -> Option<Finding> {
    if let Some(other) = &status.api_displaced_by {
        let what = format!("{} has the usual port, so this node has {}", safe(other), safe(&status.api));
        let to_do = "commands and kolo open find it; for a scraper, a bookmark or ssh -L choose a port (api, --api), as theirs is now the other program's";
        return Some(Finding::note("api", what, to_do));
    }
    let holder = safe(status.api_holder.as_ref()?);
    let what = format!(
        "{holder} has the port of the API and the page, {}: browsers do not reach this node",
        safe(&status.api)
    );
    let to_do = "end that program: the node takes the port within seconds; or choose another (api, --api) and start the node again";
    Some(Finding::problem("api", what, to_do))
}

/// The IP address of a multiaddr, and its TCP port when it has one.
fn address_of(multiaddr: &str) -> Option<(IpAddr, Option<u16>)> {
    let mut parts = multiaddr.split('/').skip(1);
    let (kind, address) = (parts.next()?, parts.next()?);
    let address = matches!(kind, "ip4" | "ip6").then(|| address.parse().ok()).flatten()?;
    let port = if parts.next() == Some("tcp") { parts.next().and_then(|port| port.parse().ok()) } else { None };
    Some((address, port))
}

fn check_ports(listen: &[String]) -> Vec<Finding> {
    const CHECK: &str = "ports";
    let ports: Vec<SocketAddr> = listen
        .iter()
        .filter_map(|address| address_of(address))
        .filter_map(|(address, port)| port.map(|port| SocketAddr::new(address, port)))
        .take(PORTS_MAX)
        .collect();
    let mut findings = Vec::new();
    for port in &ports {
        if let Err(error) = TcpStream::connect_timeout(port, CONNECT_TIMEOUT) {
            let to_do = "see whether a packet filter on this machine drops connections to it";
            findings.push(Finding::problem(CHECK, format!("{port} takes no connection: {error}"), to_do));
        }
    }
    if findings.is_empty() {
        let shown: Vec<_> = ports.iter().map(ToString::to_string).collect();
        findings.push(if shown.is_empty() {
            Finding::new(CHECK, Level::Note, "the node listens on no TCP port that can be tested")
        } else {
            Finding::good(CHECK, format!("{} take connections from here", shown.join(", ")))
        });
    }
    findings
}

/// The addresses that the node advertises; those that it listens on while it has advertised none.
fn announced<'a>(status: &'a Status, sites: &'a SiteList) -> &'a [String] {
    let own = sites.sites.iter().find(|site| site.this_node && !site.addresses.is_empty());
    own.map_or(&status.listen, |site| &site.addresses)
}

/// From where the node can be reached by the addresses that it advertises.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    ThisMachine,
    ThisNetwork,
    Everybody,
}

fn reach_of(listen: &[String]) -> Reach {
    let addresses: Vec<IpAddr> =
        listen.iter().filter_map(|address| address_of(address)).map(|(address, _)| address).collect();
    // A name, or anything else that is no address, may be reached from anywhere.
    if addresses.len() < listen.len() || addresses.iter().any(|address| !address.is_loopback() && !is_private(*address))
    {
        return Reach::Everybody;
    }
    if addresses.iter().all(IpAddr::is_loopback) { Reach::ThisMachine } else { Reach::ThisNetwork }
}

/// Whether routers of the Internet do not carry packets to `address`.
fn is_private(address: IpAddr) -> bool {
    match address {
        // 100.64.0.0/10 is shared by the customers of a provider (RFC 6598).
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            v4.is_private() || v4.is_link_local() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// Judged by the addresses that the node advertises; what peers have seen counts for more.
fn check_reach(status: &Status, shown: &[String]) -> Finding {
    const CHECK: &str = "reach";
    let came_in = status.counters.get("connections_from_elsewhere").copied().unwrap_or(0);
    let seen_as = status.seen_as.iter().filter_map(|seen| seen.parse::<IpAddr>().ok());
    let own: Vec<IpAddr> = shown.iter().filter_map(|address| address_of(address)).map(|(ip, _)| ip).collect();
    let mut outside = seen_as.filter(|ip| !ip.is_loopback() && !is_private(*ip) && !own.contains(ip));
    if let Some(outside) = outside.next().filter(|_| reach_of(shown) != Reach::Everybody) {
        let what = format!(
            "peers see this machine at {outside}, which is not an address that this node advertises: a router translates addresses (NAT)"
        );
        let to_do = format!(
            "have that router forward a port to this machine, and announce it with --announce /ip4/{outside}/tcp/PORT"
        );
        return Finding::note(CHECK, what, to_do);
    }
    let (what, to_do) = match reach_of(shown) {
        Reach::Everybody if came_in > 0 => {
            let what = format!("its address is public, and {came_in} connections came from other machines");
            return Finding::good(CHECK, what);
        }
        Reach::Everybody => {
            let what = "its address is public; no other machine has opened a connection to it yet";
            return Finding::good(CHECK, what);
        }
        Reach::ThisNetwork => (
            "it advertises private addresses only (NAT): sites outside this network cannot reach it",
            "forward a port to this machine and announce its address (--announce), run the node where it has a public address, or \
             connect the sites by a VPN",
        ),
        Reach::ThisMachine => (
            "it listens on loopback only: other machines cannot reach it",
            "start it with --listen /ip4/0.0.0.0/tcp/4001 (or set listen in its configuration)",
        ),
    };
    Finding::note(CHECK, what, to_do)
}

/// The result of other sites that tested a connection to this node: behind a router or a packet filter, a node reaches others
/// and does not notice that they cannot reach it.
fn check_inbound(tried: &ReachView, status: &Status, shown: &[String]) -> Finding {
    const CHECK: &str = "inbound";
    let ReachView { asked, reached } = *tried;
    if asked == 0 {
        let to_do = "run kolo doctor again in ten seconds";
        let what = "no other site has just tested whether it can reach this node";
        return Finding::note(CHECK, what, to_do);
    }
    let of_asked = format!("{reached} of {} that tested it", counted(asked, "other site"));
    if reached == asked {
        return Finding::good(CHECK, format!("{of_asked} could open a connection to this node"));
    }
    let seen = status.seen_as.first().map_or_else(|| "ADDRESS".to_owned(), Clone::clone);
    let to_do = format!(
        "have routers and packet filters let connections through to the port that the node listens on (listen), and check \
         that the addresses it advertises are its own: --announce /ip4/{seen}/tcp/PORT, or announce in the configuration"
    );
    let what = format!(
        "{of_asked} could open a connection to this node, at the addresses that it advertises: {}",
        shown.join(", ")
    );
    if reached == 0 {
        return Finding::problem(CHECK, what, to_do);
    }
    Finding::note(CHECK, what, to_do)
}

fn check_peers(status: &Status) -> Finding {
    const CHECK: &str = "peers";
    let others = status.known_sites.saturating_sub(1);
    if status.peers == 0 && others > 0 {
        let what = format!("{} known, but it is connected to none", counted(others, "other site"));
        return Finding::problem(
            CHECK,
            what,
            "see whether the network is up, and whether those sites run (kolo sites)",
        );
    }
    if status.peers == 0 {
        let to_do = "if the grid has other sites, give the address of one with --bootstrap; else invite some";
        return Finding::note(CHECK, "it knows no other site", to_do);
    }
    let what = format!("connected to {}; {} known", counted(status.peers, "peer"), counted(others, "other site"));
    Finding::good(CHECK, what)
}

/// Sites that are named in one finding.
const SITES_NAMED_MAX: usize = 8;

/// Sites whose schedules are not known, or not as they are now, and why: nothing is planned on them.
fn check_schedules(sites: &SiteList) -> Finding {
    const CHECK: &str = "schedules";
    let doubtful: Vec<&SiteView> = sites.sites.iter().filter(|site| site.schedule != ScheduleState::Current).collect();
    if doubtful.is_empty() {
        return Finding::good(CHECK, format!("those of all {} are current", counted(sites.sites.len(), "site")));
    }
    let named = doubtful.iter().take(SITES_NAMED_MAX).map(|site| {
        let why = site.schedule_trouble.as_deref().map(|why| format!(" ({})", safe(why))).unwrap_or_default();
        let here = if site.this_node { " (this node)" } else { "" };
        let name = site_text(site.site.as_str(), &site.name);
        format!("{}{here}: {}{why}", safe(&name), site.schedule.as_str())
    });
    let more = doubtful.len().saturating_sub(SITES_NAMED_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let what = format!(
        "nothing is planned on {} of {} whose schedules are not current: {}{more}",
        doubtful.len(),
        counted(sites.sites.len(), "site"),
        named.collect::<Vec<_>>().join("; ")
    );
    let is_own = doubtful.iter().any(|site| site.this_node);
    if is_own {
        return Finding::problem(
            CHECK,
            what,
            "wait some seconds and run kolo doctor again; if it stays so, restart the node",
        );
    }
    Finding::note(
        CHECK,
        what,
        "wait a minute and run kolo doctor again; if it stays so, have their owners run it there",
    )
}

/// Whether others are told all of this site's occupancy as it is; nothing when they are.
fn check_coarse(status: &Status, zone: &TimeZone) -> Option<Finding> {
    let from = format_time(status.coarse_from?, zone);
    let what = format!(
        "this site has more steps of occupancy than others are told ({STEPS_PER_SITE_MAX}): from {from} on its hosts look busier to \
         them than they are"
    );
    let to_do = "enter less of the far future, or own work in whole hours; or divide the hosts among several sites";
    Some(Finding::note("occupancy", what, to_do))
}

/// Sites that speak another version of the protocol; nothing when there is none.
fn check_versions(apart: &[ApartView]) -> Option<Finding> {
    let named = apart.iter().take(SITES_NAMED_MAX).map(|apart| format!("{}: {}", apart.site, safe(&apart.why)));
    let what = format!("{} not understood: {}", counted(apart.len(), "site"), named.collect::<Vec<_>>().join("; "));
    (!apart.is_empty()).then(|| {
        Finding::problem(
            "versions",
            what,
            "install the same kolo on all nodes of the grid; each site says which one is too old",
        )
    })
}

/// Whether the node has the room on the disk that its promises need; none when it has.
fn check_room(status: &Status) -> Option<Finding> {
    let to_do = "make room on the disk of the data directory; the node sees that within seconds. To drop what ended commands have \
                 left, stop the node and run kolo doctor --free";
    let what = "the disk is full: this site promises nothing new, and what it has promised stands";
    status.lacks_room.then(|| Finding::problem("room", what, to_do))
}

/// Peers that the node has banned.
fn check_bans(bans: &[BanView], zone: &TimeZone) -> Finding {
    const CHECK: &str = "bans";
    if bans.is_empty() {
        return Finding::good(CHECK, "no peer is banned");
    }
    let shown = bans.iter().map(|ban| {
        let until = format_time(ban.until, zone);
        format!("{} until {until} (time {}): {}", ban.site, ban.times, ban.why)
    });
    let to_do = "nothing, a ban ends by itself; if you trust the site, ask its owner to look into its log and to run the \
                 newest kolo";
    let what = format!("banned: {}", shown.collect::<Vec<_>>().join("; "));
    Finding::note(CHECK, what, to_do)
}

/// Whether the owner's hook has failed lately; nothing when it has not.
fn check_activation(failed: &[FailedActivation], now: Time, zone: &TimeZone) -> Option<Finding> {
    let lately = failed.iter().filter(|failed| now.since(Time(failed.at)) <= FAILED_LATELY);
    let shown: Vec<String> = lately
        .map(|failed| {
            let at = format_time(Time(failed.at), zone);
            format!("{} of {} at {at}: {}", safe(&failed.event), safe(&failed.booking), safe(&failed.why))
        })
        .collect();
    let to_do = "read the log of its runs (activation.log in the data directory), and do by hand what it \
                 has not done";
    let what = || format!("the hook has failed in all its runs: {}", shown.join("; "));
    (!shown.is_empty()).then(|| Finding::problem("activation", what(), to_do))
}

/// Has the node believe the machine's clock as it is.
///
/// # Errors
/// When no node answers.
pub(super) fn confirm_clock(client: &Client) -> Result<Finding, CliError> {
    let ClockConfirmed { was_ahead_s } = client.post("/v1/clock/confirm", &())?;
    let what = was_ahead_s.map_or_else(
        || "the node believed this machine's clock already".to_owned(),
        |ahead_s| format!("the node believes this machine's clock, which was {} its own until now", off_by(ahead_s)),
    );
    Ok(Finding::good("clock", what))
}

/// The words for a clock that is so many seconds ahead, in whole minutes; below zero it is behind.
fn off_by(ahead_s: i64) -> String {
    let direction = if ahead_s > 0 { "ahead of" } else { "behind" };
    let minutes = (ahead_s.unsigned_abs() + 30) / 60;
    format!("{} {direction}", format_span(Span(minutes * 60)))
}

/// Clocks are compared by what others have signed: how far theirs are ahead of this one, messages from the future, and
/// messages that arrive when their life is over.
fn check_clock(status: &Status) -> Finding {
    const CHECK: &str = "clock";
    if let Some(ahead_s) = status.clock_ahead_s {
        let off = off_by(ahead_s);
        let what = format!(
            "this machine's clock is {off} what the node believes: nothing is promised, forgotten or ended by it"
        );
        let to_do = "set it right (timedatectl), or if it is right say so: kolo doctor --clock-is-right";
        return Finding::problem(CHECK, what, to_do);
    }
    let to_do = "see whether this clock is synchronised (timedatectl); if it is, that of another site is wrong";
    let measured = status.clock.as_ref().map(|clock| (clock.ahead_ms, counted(clock.sites, "other site")));
    if let Some((ahead_ms, sites)) = measured.as_ref().filter(|(ahead_ms, _)| is_off(*ahead_ms)) {
        let direction = if *ahead_ms > 0 { "behind" } else { "ahead of" };
        let much = format_span(Span(ahead_ms.unsigned_abs() / 1000));
        let what = format!("this machine's clock is some {much} {direction} the median clock of {sites}");
        return Finding::problem(CHECK, what, to_do);
    }
    if let Some((ahead_ms, sites)) = measured {
        let what = format!("it is within {} ms of the median clock of {sites}", ahead_ms.unsigned_abs());
        return Finding::good(CHECK, what);
    }
    let count = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    let (future, expired, good) = (count("dropped_from_future"), count("dropped_expired"), count("gossip_received"));
    if future > 0 || expired > good / 2 {
        let what = format!(
            "{future} messages of other sites came from the future and {expired} had expired on arrival, of {good} received"
        );
        return Finding::problem(CHECK, what, to_do);
    }
    if status.known_sites <= 1 {
        return Finding::good(CHECK, "there is no other site whose clock it could be held against");
    }
    let to_do = "run kolo doctor again when other sites have made promises, or see timedatectl";
    Finding::note(CHECK, "no other site has signed anything lately that tells whether it is right", to_do)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use broker::ids::SiteId;
    use kolo_api::samples::status;
    use serde_json::{Value, json};

    use super::*;
    use crate::samples::serve;

    fn listen(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(|&address| address.to_owned()).collect()
    }

    #[test]
    fn addresses_tell_who_can_reach_them() {
        for (addresses, expected) in [
            (&["/ip4/127.0.0.1/tcp/1", "/ip6/::1/udp/1/quic-v1"][..], Reach::ThisMachine),
            (&["/ip4/127.0.0.1/tcp/1", "/ip4/192.168.1.5/tcp/1"], Reach::ThisNetwork),
            (&["/ip4/100.64.0.1/tcp/1", "/ip6/fd00::1/tcp/1"], Reach::ThisNetwork),
            (&["/ip4/100.128.0.1/tcp/1"], Reach::Everybody),
            (&["/ip4/10.0.0.1/tcp/1", "/ip4/193.2.1.66/tcp/1"], Reach::Everybody),
            (&["/dns/kolo.example.org/tcp/1"], Reach::Everybody),
        ] {
            assert_eq!(reach_of(&listen(addresses)), expected, "{addresses:?}");
        }
    }

    #[test]
    fn prices_of_this_site_are_told() {
        let list = |prices: &str| -> HostList {
            let host = |site: &str, prices: &str| {
                format!(
                    r#"{{"site":"{site}","site_name":"","host":"h","resources":{{}},"attributes":{{}}{prices},"free_now":null,"schedule_age_s":null}}"#
                )
            };
            let hosts = [host("own", prices), host("own", ""), host("other", r#","prices":{"cpu":1}"#)].join(",");
            serde_json::from_str(&format!(r#"{{"hosts":[{hosts}],"next":null}}"#)).unwrap()
        };
        let check = |prices: &str| check_prices(&list(prices), &SiteId::new("own").unwrap(), &TimeZone::UTC);
        assert!(check("").is_none());
        let what = check(r#","prices":{"cpu":1},"next_prices":{"from":1763748000,"prices":{}}"#).unwrap().what;
        assert_eq!(
            what,
            "1 of 2 hosts of this site cost something; prices change at 2025-11-21 18:00:00+00:00 (kolo hosts)"
        );
    }

    #[test]
    fn sites_without_a_current_schedule_are_named_with_the_reason() {
        let site = |name: &str, this_node: bool, schedule: &str, trouble: Option<&str>| {
            json!({ "site": "12D3", "name": name, "this_node": this_node, "hosts": 1, "advert_age_s": 0, "expires_in_s": 9,
                "schedule": schedule, "ledger_version": null, "schedule_age_s": null, "schedule_trouble": trouble,
                "addresses": [] })
        };
        let check = |sites: Vec<Value>| {
            let list = json!({ "sites": sites, "bans": [], "next": null });
            check_schedules(&serde_json::from_value::<SiteList>(list).unwrap())
        };
        assert_eq!(check(vec![site("a", true, "current", None)]).level, Level::Good);
        let shown = check(vec![site("a", true, "current", None), site("b", false, "unknown", Some("too busy"))]);
        assert_eq!(shown.level, Level::Note);
        assert!(shown.what.contains("1 of 2 sites") && shown.what.contains("unknown (too busy)"), "{}", shown.what);
        assert_eq!(check(vec![site("a", true, "unknown", None)]).level, Level::Problem);
        let many = (0..20).map(|_| site("b", false, "stale", None)).collect();
        assert!(check(many).what.ends_with("and 12 more"));
    }

    #[test]
    fn what_is_told_coarsely_and_who_is_not_understood_is_said() {
        let coarse = check_coarse(&status(&json!({ "coarse_from": 86_400 })), &TimeZone::UTC).unwrap();
        assert!(coarse.what.contains("from 1970-01-02 00:00:00+00:00 on"), "{}", coarse.what);
        assert!(check_coarse(&status(&json!({})), &TimeZone::UTC).is_none());
        let apart = ApartView { site: SiteId::new("12D4").unwrap(), why: "its program is too old".to_owned() };
        assert_eq!(check_versions(&[]), None);
        let finding = check_versions(&[apart]).unwrap();
        assert!(
            finding.level == Level::Problem && finding.what.ends_with("12D4: its program is too old"),
            "{finding:?}"
        );
    }

    #[test]
    fn what_peers_have_seen_says_more_than_addresses() {
        let check = |shown: &str, seen_as: &[&str], came_in: u32| {
            let counters = json!({ "connections_from_elsewhere": came_in });
            let finding = check_reach(&status(&json!({ "seen_as": seen_as, "counters": counters })), &listen(&[shown]));
            (finding.level, finding.what + &finding.to_do.unwrap_or_default())
        };
        let (level, what) = check("/ip4/10.0.0.1/tcp/1", &["10.0.0.1", "193.2.1.66"], 0);
        assert!(
            level == Level::Note && what.contains("at 193.2.1.66") && what.contains("/ip4/193.2.1.66/tcp"),
            "{what}"
        );
        assert!(check("/ip4/10.0.0.1/tcp/1", &["10.0.0.1"], 0).1.contains("private addresses only"));
        assert!(check("/ip4/193.2.1.66/tcp/1", &[], 0).1.contains("no other machine"));
        assert!(check("/ip4/193.2.1.66/tcp/1", &[], 3).1.contains("3 connections came"));
    }

    #[test]
    fn whether_others_come_in_is_their_word() {
        let status = status(&json!({ "seen_as": ["193.2.1.66"] }));
        let check = |asked, reached| {
            let shown = listen(&["/ip4/10.0.0.1/tcp/7741"]);
            let finding = check_inbound(&ReachView { asked, reached }, &status, &shown);
            (finding.level, finding.what, finding.to_do.unwrap_or_default())
        };
        assert_eq!(check(3, 3).1, "3 of 3 other sites that tested it could open a connection to this node");
        assert_eq!((check(3, 3).0, check(0, 0).0, check(3, 1).0), (Level::Good, Level::Note, Level::Note));
        let (level, what, to_do) = check(1, 0);
        assert_eq!(level, Level::Problem);
        assert!(
            what.starts_with("0 of 1 other site that tested it") && what.ends_with("/ip4/10.0.0.1/tcp/7741"),
            "{what}"
        );
        assert!(to_do.contains("--announce /ip4/193.2.1.66/tcp/PORT"), "{to_do}");
    }

    #[test]
    fn a_closed_port_is_a_problem() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("/ip4/127.0.0.1/tcp/{}", open.local_addr().unwrap().port());
        assert_eq!(check_ports(&listen(&[&address]))[0].level, Level::Good);
        drop(open);
        assert_eq!(check_ports(&listen(&[&address]))[0].level, Level::Problem);
        assert_eq!(check_ports(&listen(&["/ip4/127.0.0.1/udp/1/quic-v1"]))[0].level, Level::Note);
    }

    #[test]
    fn a_lonely_node_with_a_wrong_clock_is_told_both() {
        let failed = |booking: &str, at: i64, why: &str| json!({ "booking": booking, "request": "r", "event": "start", "at": at, "why": why });
        let status = status(&json!({
            "software": "kolo 0.0.0", "listen": ["/ip4/10.0.0.1/udp/9/quic-v1"], "known_sites": 3,
            "counters": { "dropped_from_future": 7, "gossip_received": 9 },
            "failed_activations": [failed("r-1", 80_000, "exit status: 1"), failed("r-0", 3_000, "long ago")],
        }));
        let sites = r#"{"sites":[],"bans":[],"next":null}"#.to_owned();
        let (client, server) = serve(vec![("200 OK", serde_json::to_string(&status).unwrap()), ("200 OK", sites)]);
        let findings = check(Ok(client), Time(90_000), &TimeZone::UTC);
        let _ = server.join().unwrap();
        let levels: Vec<_> = findings.iter().map(|finding| (finding.check, finding.level)).collect();
        assert_eq!(
            levels,
            [
                ("node", Level::Note),
                ("ports", Level::Note),
                ("reach", Level::Note),
                ("peers", Level::Problem),
                ("schedules", Level::Good),
                ("clock", Level::Problem),
                ("bans", Level::Good),
                ("activation", Level::Problem)
            ]
        );
        assert!(
            findings
                .iter()
                .all(|finding| finding.level == Level::Good || finding.to_do.is_some() || finding.check == "ports")
        );
        let activation = &findings.last().unwrap().what;
        assert!(activation.contains("start of r-1") && !activation.contains("long ago"), "{activation}");
    }

    #[test]
    fn the_difference_of_clocks_is_told() {
        let check = |clock: Value| {
            let finding = check_clock(&status(&json!({ "clock": clock })));
            (finding.level, finding.what)
        };
        let (level, what) = check(json!({ "sites": 4, "ahead_ms": 61_000 }));
        assert_eq!(level, Level::Problem);
        assert_eq!(what, "this machine's clock is some 1m 1s behind the median clock of 4 other sites");
        assert!(
            check(json!({ "sites": 1, "ahead_ms": -9_000 }))
                .1
                .contains("some 9s ahead of the median clock of 1 other site")
        );
        let (level, what) = check(json!({ "sites": 2, "ahead_ms": -40 }));
        assert_eq!((level, what.as_str()), (Level::Good, "it is within 40 ms of the median clock of 2 other sites"));
        assert_eq!(check(Value::Null).0, Level::Good, "there is no other site");
        assert_eq!(check_clock(&status(&json!({ "known_sites": 3 }))).level, Level::Note);
        let others_are_wrong =
            json!({ "clock": { "sites": 2, "ahead_ms": 4 }, "counters": { "dropped_from_future": 5 } });
        assert_eq!(check_clock(&status(&others_are_wrong)).level, Level::Good);
    }

    #[test]
    fn a_node_that_does_not_run_is_no_problem() {
        let (client, server) = serve(vec![("401 Unauthorized", String::new())]);
        assert_eq!(
            check(Ok(client), Time(90_000), &TimeZone::UTC)[0].level,
            Level::Problem,
            "something else listens there"
        );
        let _ = server.join().unwrap();
        assert_eq!(check(Err(CliError::failed("no node")), Time(90_000), &TimeZone::UTC)[0].level, Level::Note);
    }

    #[test]
    fn a_clock_that_is_not_believed_is_a_problem_with_a_way_out() {
        let finding = check_clock(&status(&json!({ "clock_ahead_s": -259_200 })));
        assert!(finding.what.contains("3d behind what the node believes"), "{}", finding.what);
        assert!(finding.level == Level::Problem && finding.to_do.unwrap().contains("--clock-is-right"));
    }

    #[test]
    fn a_port_that_another_program_has_is_a_problem_with_its_user() {
        assert_eq!(check_api(&status(&json!({}))), None);
        let taken = json!({ "api": "127.0.0.1:7740", "api_holder": "a program of user eve (uid 1001)" });
        let finding = check_api(&status(&taken)).unwrap();
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.what.starts_with("a program of user eve (uid 1001) has the port"), "{}", finding.what);
        assert!(finding.what.contains("127.0.0.1:7740") && finding.to_do.unwrap().contains("--api"));
        let moved = json!({ "api": "127.0.0.1:40001", "api_displaced_by": "a program of user eve (uid 1001)" });
        let finding = check_api(&status(&moved)).unwrap();
        assert_eq!(finding.level, Level::Note);
        assert!(finding.what.contains("eve") && finding.what.contains("127.0.0.1:40001"), "{}", finding.what);
    }

    #[test]
    fn a_full_disk_is_a_problem_that_ends_by_itself() {
        assert_eq!(check_room(&status(&json!({}))), None);
        let finding = check_room(&status(&json!({ "lacks_room": true }))).unwrap();
        assert!(finding.level == Level::Problem && finding.to_do.unwrap().contains("--free"));
    }

    #[test]
    fn a_ban_is_told_with_its_reason_and_its_end() {
        let ban = BanView { site: SiteId::new("12D3").unwrap(), why: "lies".to_owned(), until: Time(86_400), times: 2 };
        let shown = check_bans(&[ban], &TimeZone::UTC);
        assert_eq!(shown.level, Level::Note);
        assert!(shown.what.ends_with("12D3 until 1970-01-02 00:00:00+00:00 (time 2): lies"), "{}", shown.what);
        assert_eq!(check_bans(&[], &TimeZone::UTC).level, Level::Good);
    }
}
