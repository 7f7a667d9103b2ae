//! All keys of the configuration.
//!
//! Invariant: a key is defined here and nowhere else; what relations its value must keep is checked in `load`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use broker::{
    ledger::LedgerLimits,
    negotiation::NegotiationSettings,
    phases,
    request::Effort,
    resources::{Attributes, ResourceName},
    time::{Millis, Span},
    trust::{Limits, OwnerPolicy},
};
use discovery::Intervals;
use kolo_seat::{Runner, uids::RunUids};

use super::{
    hosts::HostTable,
    keys::settings,
    offered::OfferedTable,
    prices::PriceTable,
    values::{Binding, LogFormat, Loss, Percent, Program, Rate, WebUrl},
};

/// Where the local API listens unless told otherwise.
pub const DEFAULT_API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7740);
/// Loopback only: who may reach the node from outside is the owner's decision.
const DEFAULT_LISTEN: [&str; 2] = ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"];
/// The libraries below write lines at "info" that only their developers want.
const DEFAULT_LOG_FILTER: &str = "info,libp2p_swarm=warn,libp2p_kad=error";

settings! {
    /// The keys at the top.
    pub struct Settings {
        /// Where identity, ledger and tokens are kept.
        data_dir: Option<PathBuf> = None, "DIR", unset "$XDG_DATA_HOME/kolo or ~/.local/share/kolo";
        /// The site's name for people; not unique.
        name: Option<String> = None, "NAME", unset "the name that the site was invited by, else the host name";
        /// Id of the grid to belong to (a-z 0-9 -).
        grid: Option<String> = None, "ID", unset "the one kept in the data directory, else a new one", example "\"...\"";
        /// Multiaddrs to listen on; port 0 lets the system choose.
        listen: Vec<String> = DEFAULT_LISTEN.map(str::to_owned).to_vec(), "MULTIADDR", unset "loopback, TCP and QUIC";
        /// Multiaddrs that the node gives to others in place of those it listens on, such as that of a port forward.
        announce: Vec<String> = Vec::new(), "MULTIADDR";
        /// Private addresses that are dialled when other sites advertise them, beside those of the node's own networks.
        dial_ranges: Vec<String> = Vec::new(), "RANGE", example "[\"10.0.0.0/8\"]";
        /// Multiaddrs of nodes of the grid.
        bootstrap: Vec<String> = Vec::new(), "MULTIADDR";
        /// How users reach the hosts; {host}, {user} and {request} are filled in.
        contact: Option<String> = None, "TEXT", unset "none", example "\"ssh {user}@{host}.example.org\"";
        /// Where the local API listens; loopback only; port 0 lets the system choose. While another program has the port the node goes without.
        api: Option<SocketAddr> = None, "URL|ADDR", unset "127.0.0.1:7740, or any other port while another program has that", example "\"127.0.0.1:7740\"";
        /// Snapshot (kolo-grid/1) with this site's hosts and the owner's own occupancy.
        hosts_file: Option<PathBuf> = None, "GRID.json", unset "none";
        /// A host as an inline TOML table, such as '{ id = "h1", resources = { cpu = "4", memory = "8GiB" } }'.
        hosts: Option<Vec<HostTable>> = None, "TABLE", unset "this machine";
        /// What the site's link to all others carries; requests whose hosts talk to each other never get more of it.
        uplink: Option<Rate> = None, "RATE", unset "no limit", example "\"1Gbit/s\"";
        /// Whether other sites may measure the link to this one (kolo doctor --link-with).
        uplink_tests: bool = false, "BOOL";
        /// What runs the commands of users on the seats that they have reserved (docs/run.md): none (no sandbox), bubblewrap, systemd (units), or podman (containers).
        runner: Option<Runner> = None, "RUNNER", unset "no command is run", example "\"bubblewrap\"";
        /// User of this machine that commands run as; a node that runs as root needs one.
        runner_user: Option<String> = None, "USER", unset "the user of the node, who must not be root, in a sandbox", example "\"nobody\"";
        /// Range of user ids of this machine, of which each seat has one for its commands (as root, but for runner podman), so that those of two users are strangers to the machine; their group is that of runner_user.
        runner_uids: Option<RunUids> = None, "FIRST-LAST|off", unset "2013265920-2147483647 where the node is root and the machine can, else off; off with runner_paths and with runner podman", example "\"2013265920-2147483647\"";
        /// Directories beside the scratch directory of a command that it may read and write, as far as its user may.
        runner_paths: Vec<String> = Vec::new(), "DIR", example "[\"/srv/data\"]";
        /// Whether commands in a sandbox have the network of the machine; without a sandbox they always have.
        runner_network: bool = false, "BOOL";
        /// Images that containers are made of, as podman names them; they are in the store of the user of commands, and never pulled.
        runner_images: Vec<String> = Vec::new(), "IMAGE", example "[\"docker.io/library/debian:stable\"]";
        /// Directory of these images (podman --root).
        runner_image_store: Option<PathBuf> = None, "DIR", unset "the user's own, .local/share/containers/storage", example "\"/srv/images\"";
        /// Most processes and threads of the commands' user beside those that he has when a command starts.
        runner_processes: u64 = 512, "COUNT";
        /// Most output of a run that is kept, of each of its two outputs, in MiB; at least 8.
        runner_spool_mib: u64 = 64, "MIB";
        /// Where scratch directories of commands are made.
        runner_scratch: Option<PathBuf> = None, "DIR", unset "the system's directory for temporary files", example "\"/scratch\"";
        /// When hosts may be reserved, as an inline TOML table, such as '{ hours = "18:00-08:00", days = "mon-fri", zone = "Europe/Berlin" }'; what any table offers is offered.
        offered: Option<Vec<OfferedTable>> = None, "TABLE", unset "at all times";
        /// Prices and conditions of hosts as an inline TOML table, such as '{ per_hour = { cpu = "6.00" } }'; of tables that hold at the same time the later counts.
        price: Option<Vec<PriceTable>> = None, "TABLE", unset "everything is free";
        /// How far ahead prices that change with the hour are published; a later start has the highest.
        price_reach: Span = Span(60 * 86_400), "DURATION";
        [machine]: MachineSettings;
        [planner]: PlannerSettings;
        [negotiation]: CoordinatorSettings;
        [ledger]: LedgerSettings;
        [policy]: PolicySettings;
        [activation]: ActivationSettings;
        [notices]: NoticesSettings;
        [local]: LocalSettings;
        [batch]: BatchSettings;
        [remote]: RemoteSettings;
        [gossip]: GossipSettings;
        [storage]: StorageSettings;
        [log]: LogSettings;
        [audit]: AuditSettings;
    }
}

settings! {
    /// This machine is the site's host, unless hosts_file or [[hosts]] list others.
    pub struct MachineSettings {
        /// Share of cpu, memory and disk that is offered.
        share: Percent = Percent::HALF, "PERCENT";
        /// Attributes beside arch and os.
        attributes: Attributes = Attributes::new(), "KEY=VALUE";
    }
}

settings! {
    /// How requests are planned.
    pub struct PlannerSettings {
        /// Planning effort for requests that ask for none: fast, balanced or thorough.
        effort: Effort = phases::Settings::default().effort, "EFFORT";
        /// Of hosts whose schedules are not known so many are asked for them first, as a multiple of the hosts of the request (M_init).
        /// Those whose schedules are known are all planned on.
        m_init: u32 = phases::Settings::default().m_init, "M";
        /// The same at most (M_max).
        m_max: u32 = phases::Settings::default().m_max, "M";
        /// How far behind the earliest start the latest one is, when a request names none.
        default_reach: Span = phases::Settings::default().default_reach, "DURATION";
        /// Whether, of nearly equal plans, one at the sites with most processors free is taken; else any, so that requests do not collide.
        spread: bool = phases::Settings::default().spread, "BOOL";
    }
}

settings! {
    /// How reservations are made for users of this node.
    pub struct CoordinatorSettings {
        /// How long sites are asked to hold; longer than twice answer_timeout.
        hold: Millis = NegotiationSettings::default().hold_for, "DURATION";
        /// How long the node waits for a site's answer.
        answer_timeout: Millis = NegotiationSettings::default().answer_timeout, "DURATION";
        /// How long the node works on a request in all.
        patience: Millis = NegotiationSettings::default().patience, "DURATION";
        /// Most attempts for a request.
        attempts: u32 = NegotiationSettings::default().max_attempts, "COUNT";
        /// Shortest time between two checks that a reservation is still whole; longer than answer_timeout.
        check_min: Millis = NegotiationSettings::default().check_min, "DURATION";
        /// Longest time between two such checks.
        check_max: Millis = NegotiationSettings::default().check_max, "DURATION";
        /// How long a site may leave such checks unanswered before its hosts count as lost.
        lost_after: Millis = NegotiationSettings::default().lost_after, "DURATION";
    }
}

settings! {
    /// What this site grants.
    pub struct LedgerSettings {
        /// When a seat on one of a class ([[hosts]] with count) is bound to a host: late (when it begins) or early (when it is held).
        binding: Binding = Binding::Late, "WHEN";
        /// Most holds at a time.
        max_holds: usize = LedgerLimits::default().max_holds, "COUNT";
        /// Most holds at a time of one entry point.
        max_holds_per_entry_point: usize = LedgerLimits::default().max_holds_per_entry_point, "COUNT";
        /// How far ahead a reservation may end.
        farthest_future: Span = LedgerLimits::default().farthest_future, "DURATION";
        /// Longest hold granted; not below negotiation.hold.
        hold_max: Millis = LedgerLimits::default().hold_max, "DURATION";
    }
}

/// The limits of users whose credential has none.
fn user_limits() -> Limits {
    OwnerPolicy::default().limits
}

settings! {
    /// Which users this site grants what. A hold that breaks a rule is refused, and the refusal names the rule.
    pub struct PolicySettings {
        /// The only users who may book here, by name or key.
        allow: Option<BTreeSet<String>> = None, "USER", unset "everybody", example "[\"ada\"]";
        /// Users who may never book here, by name or key.
        deny: BTreeSet<String> = BTreeSet::new(), "USER";
        /// Longest reservation.
        max_duration: Option<Span> = None, "DURATION", unset "12h in an open grid, else any", example "\"12h\"";
        /// How far ahead a reservation may end.
        max_reach: Option<Span> = None, "DURATION", unset "7d in an open grid, else ledger.farthest_future", example "\"30d\"";
        /// Share of the site, at any time and of all until max_reach, that one user, one node or one network may have, but one host at least.
        site_share: Option<Percent> = None, "PERCENT", unset "25% in an open grid, else all of it", example "\"50%\"";
        /// Share of each host that one user may have at any time, as in { cpu = "50%" }.
        user_share: BTreeMap<ResourceName, Percent> = BTreeMap::new(), "RESOURCE=PERCENT", unset "all of it";
        /// Most holds at a time of one user whose credential has no limit.
        max_holds: Option<u32> = user_limits().max_holds, "COUNT";
        /// Most reservations at a time of one user whose credential has no limit.
        max_reservations: Option<u32> = user_limits().max_reservations, "COUNT";
        /// Most hours, summed over hosts, of one user whose credential has no limit.
        max_host_hours: Option<u64> = user_limits().max_host_hours, "HOURS", unset "any", example "500";
        /// Most credits, in sum for the reservations that have not ended, of one user whose credential has no limit.
        max_credits: Option<u32> = user_limits().max_credits, "CREDITS", unset "any", example "100";
        /// How much all holds together may cost own jobs that wait (kolo local queue): of the jobs in time, and of their mean slowdown.
        quality_loss: Loss = Loss::default(), "PERCENT";
        /// Own jobs that would begin within this time count for that.
        quality_horizon: Span = OwnerPolicy::default().quality_horizon, "DURATION";
        /// Whether other sites see who has reserved what here; else they see how much is free.
        tell_bookings: bool = OwnerPolicy::default().publishes_bookings, "BOOL";
    }
}

settings! {
    /// The owner's hook, which makes reservations usable (docs/activation.md).
    pub struct ActivationSettings {
        /// Program to run when reservations come, begin, change and go, and its arguments.
        hook: Program = Program::default(), "WORD", unset "none", example "[\"/usr/share/kolo/hooks/systemd-slice\"]";
        /// How long a run may take.
        timeout: Duration = Duration::from_mins(1), "DURATION";
        /// How often it is run again for an event for which it has failed.
        tries: u32 = 3, "COUNT";
        /// How long before its window a reservation is started.
        early: Option<Span> = None, "DURATION", unset "at its start", example "\"30s\"";
        /// Log of the runs.
        log: Option<PathBuf> = None, "FILE", unset "activation.log in the data directory";
    }
}

settings! {
    /// Where this node sends notices about its requests (docs/notices.md).
    pub struct NoticesSettings {
        /// Program to run with each notice, and its arguments.
        command: Program = Program::default(), "WORD", unset "none", example "[\"/usr/local/bin/tell\"]";
        /// Web server to send each notice to instead, by POST.
        url: Option<WebUrl> = None, "URL", unset "none", example "\"https://hooks.example.org/kolo\"";
        /// Longest time for sending a notice.
        timeout: Duration = Duration::from_secs(30), "DURATION";
        /// How often a notice that failed is sent again.
        tries: u32 = 8, "COUNT";
    }
}

settings! {
    /// The program that reports the owner's own work (docs/slurm.md).
    pub struct LocalSettings {
        /// The program and its arguments.
        feed: Program = Program::default(), "WORD", unset "none", example "[\"/usr/share/kolo/feeds/slurm\"]";
        /// How often it is run.
        every: Duration = Duration::from_secs(30), "DURATION";
        /// How long a run may take.
        timeout: Duration = Duration::from_secs(20), "DURATION";
        /// How far ahead work counts, and how long if its end is not known; up to twice this.
        reach: Span = Span(7 * 86_400), "DURATION";
    }
}

settings! {
    /// Requests that wait for a batch (kolo batch add).
    pub struct BatchSettings {
        /// How often those that wait are planned together.
        every: Option<Duration> = None, "DURATION", unset "only when kolo batch run asks for it", example "\"10min\"";
        /// How they are planned: in-order, slices:K, or another policy of kolo plan --batch.
        policy: String = "slices:1".to_owned(), "POLICY";
    }
}

settings! {
    /// The page and the API for browsers of other machines, over TLS, beside the local API.
    pub struct RemoteSettings {
        /// Address and port.
        listen: Option<SocketAddr> = None, "ADDRESS:PORT", unset "none", example "\"0.0.0.0:7743\"";
        /// Chain of certificates (PEM).
        cert: Option<PathBuf> = None, "FILE", unset "none", example "\"cert.pem\"";
        /// Private key (PEM).
        key: Option<PathBuf> = None, "FILE", unset "none", example "\"key.pem\"";
        /// Names of this node that browsers may use beside its addresses.
        names: Vec<String> = Vec::new(), "NAME";
    }
}

settings! {
    /// How schedules are sent and asked for.
    pub struct GossipSettings {
        /// Time between two messages with schedule changes, on average; after a quiet time some go at once.
        interval: Duration = Duration::from_millis(500), "DURATION";
        /// Time between two checks of the schedules with the oldest news.
        recheck: Duration = Intervals::default().recheck, "DURATION";
        /// Most sites that are asked for their schedules when they are met; of a larger grid the others one by one.
        asked_when_met: usize = discovery::Limits::default().sites_eager_max, "COUNT";
    }
}

settings! {
    /// What is kept on disk.
    pub struct StorageSettings {
        /// How long requests that have ended are remembered.
        history_keep: Duration = Duration::from_hours(90 * 24), "DURATION";
    }
}

settings! {
    /// What is logged, on standard error.
    pub struct LogSettings {
        /// How log lines look: human, or json for one object a line.
        format: LogFormat = LogFormat::Human, "FORMAT";
        /// Which log lines are written: a level, or levels by module as in discovery=debug,info.
        filter: String = DEFAULT_LOG_FILTER.to_owned(), "FILTER", unset "Kolo's own at info";
    }
}

settings! {
    /// Where the lines of the audit log go beside its files in the data directory.
    pub struct AuditSettings {
        /// Whether the machine's syslog gets each line too.
        syslog: bool = false, "BOOL";
    }
}
