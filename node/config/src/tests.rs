//! Rules of the configuration, tested through files and flags as a user writes them.

use std::{collections::BTreeSet, fs, path::Path};

use broker::{
    features::{IMAGES_MAX, Images},
    ledger::LedgerLimits,
    needs::{ImageName, Need},
    negotiation::NegotiationSettings,
    request::Effort,
    schedule::Schedule,
    time::{Millis, Span},
    trust::{OwnerPolicy, Role},
};
use clap::Parser;
use kolo_storage::data_dir::IDENTITY_FILE;
use kolo_trust::{GridFile, Wallet, found, testing as credentials};

use super::{settings::Settings, *};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    node: NodeArgs,
}

fn surroundings(home: &Path) -> Surroundings {
    Surroundings { home: Some(home.to_owned()), host_name: Some("tester".to_owned()), ..Surroundings::default() }
}

/// Loads `file` (written to `site.toml` in a fresh directory) under `flags`.
fn load_in(directory: &Path, file: &str, flags: &[&str]) -> Result<NodeConfig, String> {
    let path = directory.join("site.toml");
    fs::write(&path, file).unwrap();
    let path = path.display().to_string();
    let line = ["node", "--config", &path].into_iter().chain(flags.iter().copied());
    let args = Line::try_parse_from(line).map_err(|error| error.to_string())?.node;
    load(&args, None, None, &surroundings(directory)).map_err(|error| error.to_string())
}

fn load_file(file: &str) -> Result<NodeConfig, String> {
    let directory = tempfile::tempdir().unwrap();
    load_in(directory.path(), file, &[])
}

const ONE_HOST: &str = "[[hosts]]\nid = \"h1\"\nresources = { cpu = \"4\" }\n";

#[test]
fn without_any_configuration_this_machine_is_offered_to_a_grid_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let config = load(&NodeArgs::default(), None, None, &surroundings(directory.path())).unwrap();
    assert_eq!(config.data_dir, directory.path().join(".local/share/kolo"));
    assert_eq!(config.name, "tester");
    assert_eq!(config.grid, None);
    assert!(config.settings.listen.iter().all(|address| address.starts_with("/ip4/127.0.0.1/")));
    assert_eq!((config.settings.api, DEFAULT_API.to_string().as_str()), (None, "127.0.0.1:7740"));
    assert_eq!(config.hosts.len(), 1);
    assert_eq!(config.hosts[0].host.id.as_str(), "tester");
    assert_eq!(config.negotiation, NegotiationSettings::default());
    assert_eq!(config.ledger, LedgerLimits::default());
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!(
        "name = \"from-file\"\ndata_dir = \"state\"\n[negotiation]\nhold = \"20s\"\npatience = \"5min\"\n{ONE_HOST}"
    );
    let config =
        load_in(directory.path(), &file, &["--negotiation-hold", "30s", "--planner-effort", "thorough"]).unwrap();
    assert_eq!(config.name, "from-file");
    assert_eq!(config.data_dir, directory.path().join("state"), "relative to the file");
    assert_eq!(config.negotiation.hold_for, Millis(30_000));
    assert_eq!(config.negotiation.patience, Millis(300_000));
    assert_eq!(config.negotiation.max_attempts, 32);
    assert_eq!(config.negotiation.planner.effort, Effort::Thorough);
}

/// Checks that each of these files is refused with words that contain these.
fn assert_refused(files: &[(&str, &str)]) {
    for (file, expected) in files {
        let error = load_file(file).unwrap_err();
        assert!(error.contains(expected), "{file}:\n{error}");
    }
}

#[test]
fn complaints_about_offered_times_name_file_and_key() {
    assert_refused(&[
        (
            "[policy]\nhours = \"18:00-08:00\"",
            "site.toml: policy.hours: is written as a table of its own now, which knows days, zones and dates too (docs/policies.md). \
             Write instead:\n\n[[offered]]\nhours = \"18:00-08:00\"\n",
        ),
        (
            "[[offered]]\nhours = \"18-8\"",
            "site.toml:2: offered[0].hours: \"18-8\": expected hours of the day, such as",
        ),
        ("[[offered]]\nzone = \"Europe/Atlantis\"", "\"Europe/Atlantis\" is no time zone that this machine knows"),
        ("[[offered]]\nexcept = \"12-26 to 12-44\"", "\"12-26 to 12-44\": expected dates, such as"),
        ("[[offered]]\n", "site.toml: offered[0]: expected hours, days, dates or except"),
    ]);
}

#[test]
fn every_complaint_names_file_and_key() {
    assert_refused(&[
        ("nmae = \"x\"", "site.toml:1: nmae: unknown field"),
        ("[planner]\nm_inti = 3", "site.toml:2: planner.m_inti: unknown field"),
        ("[planner]\nm_init = \"3\"", "site.toml:2: planner.m_init: invalid type"),
        ("[planner]\nm_init = 0", "site.toml: planner.m_init: expected at least 1"),
        ("[planner]\nm_init = 9\nm_max = 8", "site.toml: planner.m_max: expected m_init (9)"),
        ("[planner]\neffort = \"lazy\"", "planner.effort: unknown variant"),
        ("[planner]\ndefault_reach = \"24\"", "site.toml:2: planner.default_reach: \"24\" has no unit"),
        ("[negotiation]\nhold = 10", "site.toml:2: negotiation.hold: invalid type"),
        (
            "[negotiation]\nhold = \"4s\"",
            "negotiation.hold (4s) must be longer than twice negotiation.answer_timeout (4s)",
        ),
        ("[negotiation]\npatience = \"2s\"", "negotiation.patience (2s) must be longer"),
        ("[negotiation]\nattempts = 0", "site.toml: negotiation.attempts: expected 1 to"),
        ("[negotiation]\nhold = \"0s\"", "site.toml:2: negotiation.hold: expected 1ms to"),
        ("[ledger]\nhold_max = \"9s\"", "site.toml: ledger.hold_max: ledger.hold_max (9s) must not be below"),
        ("[negotiation]\nhold = \"2min\"", "ledger.hold_max (1m) must not be below negotiation.hold (2m)"),
        ("[ledger]\nmax_holds = 5", "max_holds_per_entry_point (default): expected 1 to ledger.max_holds (5)"),
        ("[ledger]\nmax_holds = 0", "site.toml: ledger.max_holds: expected 1 to"),
        ("api = \"0.0.0.0:7740\"", "site.toml: api: 0.0.0.0:7740 is no loopback address"),
        ("api = \"localhost\"", "site.toml:1: api: \"localhost\" is no address"),
        ("listen = []", "site.toml: listen: expected at least one"),
        ("announce = [\"example.org:7741\"]", "site.toml: announce: \"example.org:7741\" is no multiaddr"),
        ("listen = [\"127.0.0.1:4001\"]", "site.toml: listen: \"127.0.0.1:4001\" is no multiaddr"),
        ("bootstrap = [\"/ip4/1.2.3/tcp/1\"]", "site.toml: bootstrap: \"/ip4/1.2.3/tcp/1\" is no multiaddr"),
        ("[remote]\nlisten = \"0.0.0.0:7743\"", "site.toml: remote.listen: wants remote.cert and remote.key"),
        ("[remote]\nlisten = \"all\"", "site.toml:2: remote.listen: \"all\" is no address"),
        ("[remote]\ncert = \"/c.pem\"", "site.toml: remote.cert: is of no use without remote.listen"),
        ("[policy]\nallow = []", "site.toml: policy.allow: nobody could book"),
        ("[policy]\ndeny = [\" \"]", "site.toml: policy.deny: \" \" is no user"),
        ("[policy]\nmax_holds = 0", "site.toml: policy.max_holds: expected at least 1"),
        ("[policy]\nmax_duration = \"12\"", "site.toml:2: policy.max_duration: \"12\" has no unit"),
        (
            "[policy]\nuser_share = { cpu = \"half\" }",
            "site.toml:2: policy.user_share: cpu: \"half\": expected 1% to 100%",
        ),
        ("[local]\nfeed = [\"absent\"]", "absent: No such file"),
        ("[local]\nfeed = [\".\"]", "is no program: expected a file that may be run"),
        ("[local]\nevery = \"10ms\"", "site.toml: local.every: expected at least 1s"),
        ("[local]\nreach = \"200d\"", "site.toml: local.reach: expected 1min to half of ledger.farthest_future"),
        ("[policy]\nshare = 1", "site.toml:2: policy.share: unknown field"),
        ("contact = \"ssh {hots}\"", "site.toml: contact: {hots} is no place"),
        ("contact = \"a\\tb\"", "site.toml: contact: expected 1 to 256 bytes"),
        ("[activation]\nhok = []", "site.toml:2: activation.hok: unknown field"),
        ("[activation]\nhook = [\"/no/such\"]", "site.toml: activation.hook: /no/such: No such file"),
        ("[activation]\nhook = [\"site.toml\"]", "site.toml is no program: expected a file that may be run"),
        ("[activation]\ntimeout = \"60\"", "site.toml:2: activation.timeout: \"60\" has no unit"),
        ("[activation]\ntries = 101", "site.toml: activation.tries: expected 0 to 100"),
        ("[activation]\nearly = \"2d\"", "site.toml: activation.early: expected at most 24h"),
        ("[log]\nfilter = \"=loud=\"", "site.toml: log.filter: "),
        ("grid = \"My Grid\"", "site.toml: grid: \"My Grid\" is no grid id"),
        ("bootstrap = [\"/ip4/127.0.0.1/tcp/1\"]", "prints it in its join line"),
        ("uplink = \"0Mbit/s\"", "site.toml:1: uplink: \"0Mbit/s\": expected 1Mbit/s to"),
        ("uplink = \"fast\"", "site.toml:1: uplink: \"fast\": expected whole Mbit/s"),
        ("[[hosts]]\nid = \"a,b\"", "hosts: host \"a,b\": a comma, a blank or a / in a name would split it"),
        ("[[hosts]]\nid = \"c d\"", "hosts: host \"c d\": a comma, a blank or a /"),
        ("[[hosts]]\nid = \"e/f\"", "hosts: host \"e/f\": a comma, a blank or a /"),
        ("[[hosts]]\nid = \"uplink\"", "hosts: host uplink: this name stands for the site's link to others"),
        ("[[hosts]]\nid = \"h\"\nresources = { mbps = 1 }", "hosts: host h: the resource mbps is of the uplink"),
        ("name = \"\"", "site.toml: name: expected 1 to"),
        ("name = \"a\\u001b[31m\"", "site.toml: name: expected"),
        ("[machine]\nshare = \"half\"", "site.toml:2: machine.share: \"half\": expected 1% to 100%"),
        ("[log]\nformat = \"xml\"", "log.format: unknown variant"),
        ("hosts_file = \"absent.json\"", "absent.json: No such file"),
        ("hosts_file = \"a\"\n[[hosts]]\nid = \"h\"", "site.toml: hosts: hosts are listed in"),
        ("[[hosts]]\nid = \"h\"\n[machine]\nshare = \"10%\"", "site.toml: machine.share: hosts are listed in"),
        ("name = ", "site.toml:1"),
    ]);
}

#[test]
fn runners_that_there_are_not_are_named_with_those_that_there_are() {
    let error = load_file("runner = \"docker\"").unwrap_err();
    assert!(error.contains("expected one of \"none\", \"bubblewrap\", \"podman\", \"systemd\""), "{error}");
}

#[test]
fn what_the_owner_allows_of_commands_follows_from_the_runner() {
    let image = ImageName::try_from("a:1".to_owned()).unwrap();
    let images = Images::of([image].into());
    let (run, all) = (BTreeSet::from([Need::Run]), BTreeSet::from([Need::Run, Need::Network]));
    for (keys, needs, images) in [
        ("runner_network = true\nrunner_images = [\"a:1\"]", BTreeSet::new(), Images::default()),
        ("runner = \"none\"", all.clone(), Images::default()),
        ("runner = \"bubblewrap\"\nrunner_images = [\"a:1\"]", run.clone(), Images::default()),
        ("runner = \"systemd\"\nrunner_network = true", all, Images::default()),
        ("runner = \"podman\"\nrunner_images = [\"a:1\", \"a:1\"]", run, images),
    ] {
        assert_eq!(load_file(&format!("{keys}\n{ONE_HOST}")).unwrap().allowed(), (needs, images), "{keys}");
    }
    let many: Vec<String> = (0..=IMAGES_MAX).map(|number| format!("\"a:{number}\"")).collect();
    let error =
        load_file(&format!("runner = \"podman\"\nrunner_images = [{}]\n{ONE_HOST}", many.join(","))).unwrap_err();
    assert!(error.contains("runner_images: 1025 images, and at most 1024"), "{error}");
}

#[test]
fn a_receiver_of_notices_is_one_command_or_one_web_server() {
    for (file, expected) in [
        ("[notices]\nurl = \"ftp://a/\"", "notices.url: \"ftp://a/\" is no URL of a web server"),
        ("[notices]\nurl = \"https://a/\"\ncommand = [\"/bin/sh\"]", "name one of the two"),
    ] {
        let error = load_file(file).unwrap_err();
        assert!(error.contains(expected), "{file}:\n{error}");
    }
}

#[test]
fn a_wrong_flag_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = load_in(directory.path(), "", &["--negotiation-hold", "3s"]).unwrap_err();
    assert!(error.starts_with("--negotiation-hold: negotiation.hold (3s)"), "{error}");
    let error = load_in(directory.path(), "", &["--hosts", "{ id = 1 }"]).unwrap_err();
    assert!(error.starts_with("--hosts: [0].id: "), "{error}");
    for (flag, value, expected) in [
        ("--negotiation-patience", "60", "--negotiation-patience: \"60\" has no unit"),
        ("--planner-m-max", "many", "--planner-m-max: \"many\": expected a whole number"),
        ("--policy-user-share", "cpu=half", "--policy-user-share: cpu: \"half\": expected 1% to 100%"),
        ("--policy-user-share", "=5%", "--policy-user-share: \"=5%\": expected key=value"),
        ("--hosts", "[\"h1\"]", "--hosts: [0]: "),
        ("--hosts", "{ id = }", "--hosts: "),
        ("--machine-attributes", "rack", "--machine-attributes: \"rack\": expected key=value"),
        ("--planner-effort", "lazy", "possible values: fast, balanced, thorough"),
        ("--gossip-recheck", "0s", "--gossip-recheck: expected 1ms to"),
    ] {
        let error = load_in(directory.path(), "", &[flag, value]).unwrap_err();
        assert!(error.contains(expected), "{flag} {value}: {error}");
    }
    let config = load_in(directory.path(), "", &["--hosts", r#"{ id = "a" }"#, "--hosts", r#"{ id = "b" }"#]).unwrap();
    assert_eq!(config.hosts.len(), 2);
}

#[test]
fn the_grid_kept_in_the_data_directory_counts_and_must_not_be_contradicted() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join(".local/share/kolo");
    fs::create_dir_all(&data_dir).unwrap();
    GridFile::new("kept-1".to_owned(), None, vec!["/ip4/192.0.2.9/tcp/9".to_owned()]).create(&data_dir).unwrap();
    let bootstrap = format!("bootstrap = [\"/ip4/127.0.0.1/tcp/1\"]\n{ONE_HOST}");
    let config = load_in(directory.path(), &bootstrap, &[]).unwrap();
    assert!(print_config(&config).contains("\ngrid = \"kept-1\"\n"), "what is printed names the grid in force");
    assert_eq!(config.grid.map(|grid| grid.id).as_deref(), Some("kept-1"));
    assert_eq!(config.settings.bootstrap, ["/ip4/127.0.0.1/tcp/1"], "what is configured wins");
    assert_eq!(load_in(directory.path(), ONE_HOST, &[]).unwrap().settings.bootstrap, ["/ip4/192.0.2.9/tcp/9"]);
    let error = load_in(directory.path(), &bootstrap, &["--grid", "other"]).unwrap_err();
    assert!(error.contains("belongs to grid kept-1"), "{error}");
    fs::write(GridFile::path(&data_dir), "not a grid").unwrap();
    assert!(load_in(directory.path(), ONE_HOST, &[]).unwrap_err().contains("grid.json: "));
}

#[test]
fn an_open_grid_limits_strangers_unless_the_owner_says_otherwise_and_a_closed_one_does_not() {
    let open = load_file(ONE_HOST).unwrap().policy;
    assert_eq!(open, OwnerPolicy::of_open_grid());
    let written =
        load_file(&format!("[policy]\nmax_reach = \"30d\"\nsite_share = \"100%\"\n{ONE_HOST}")).unwrap().policy;
    assert_eq!(written.max_reach, Some(Span(30 * 86_400)));
    assert_eq!((written.site_share_percent, written.max_duration), (Some(100), open.max_duration));
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join(".local/share/kolo");
    fs::create_dir_all(&data_dir).unwrap();
    credentials::grid().0.create(&data_dir).unwrap();
    assert_eq!(load_in(directory.path(), ONE_HOST, &[]).unwrap().policy, OwnerPolicy::default());
}

#[test]
fn a_hosts_file_brings_hosts_and_the_owners_own_work() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = r#"{"format":"kolo-grid/1","hosts":[{"id":"h1","site":"ignored","resources":{"cpu":4000},
        "attributes":{},"occupancy":{"cpu":[[0,1200]]}}]}"#;
    fs::write(directory.path().join("grid.json"), snapshot).unwrap();
    let config = load_in(directory.path(), "hosts_file = \"grid.json\"", &[]).unwrap();
    assert_eq!(config.hosts.len(), 1);
    assert_ne!(config.hosts[0].own_work, Schedule::default());
    fs::write(directory.path().join("grid.json"), "{}").unwrap();
    let error = load_in(directory.path(), "hosts_file = \"grid.json\"", &[]).unwrap_err();
    assert!(error.contains("grid.json"), "{error}");
}

#[test]
fn urls_are_those_of_web_servers() {
    for text in ["https://a.example/x?y=z", "http://127.0.0.1:80/"] {
        assert!(WebUrl::parse(text).is_ok(), "{text}");
    }
    for text in ["", "a.example", "ftp://a/", "/x", "https://", "file:///etc/passwd", "http://a b/"] {
        assert!(WebUrl::parse(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_printed_gives_the_same_configuration() {
    for file in [
        String::new(),
        "name = \"a \\\"quoted\\\" name\"\n[machine]\nshare = \"25%\"\nattributes = { rack = \"7\" }".to_owned(),
        format!(
            "grid = \"g-1\"\nuplink = \"1.5Gbit/s\"\ncontact = \"ssh {{user}}@{{host}}\"\nbootstrap = [\"/dns/example.org/tcp/1\"]\napi = \"[::1]:0\"\n[planner]\neffort = \"fast\"\nm_init = \
             1\n[negotiation]\nhold = \"4500ms\"\n[gossip]\ninterval = \"90s\"\nrecheck = \"20s\"\nasked_when_met = 16\n[policy]\nallow = [\"ada\", \"00112233aabbccdd\"]\ndeny = [\"bob\"]\n\
             max_duration = \"12h\"\nmax_reach = \"30d\"\nuser_share = {{ cpu = \"50%\" }}\n\
             max_host_hours = 500\nsite_share = \"40%\"\nquality_loss = \"0%\"\nquality_horizon = \"2d\"\ntell_bookings = false\n[remote]\nlisten = \"0.0.0.0:7743\"\ncert = \"/c.pem\"\nkey = \"/k.pem\"\nnames = [\"kolo.example.org\"]\n[activation]\nhook = [\"/bin/sh\", \"-c\", \"exit 0\"]\ntries = 0\nearly = \"30s\"\n[audit]\nsyslog = true\n[notices]\nurl = \"https://hooks.example.org/kolo\"\ntries = 3\n[log]\nformat = \"json\"\nfilter = \
             \"debug\"\n{ONE_HOST}attributes = {{ \"odd key\" = \"x\" }}\n[[hosts]]\nid = \"h2\"\nresources = {{ memory = \
             \"1.5GiB\", mhz = 2400 }}"
        ),
        "[[hosts]]\nid = \"h1\"\n[[offered]]\nhours = [\"8:00-12:00\", \"18:00-2:00\"]\ndays = \"fri-mon\"\nzone = \"Europe/Berlin\"\n\
         dates = \"2026-12-01 to 2026-12-31\"\n[[offered]]\nexcept = \"12-24 to 12-26, 01-01\"".to_owned(),
        "price_reach = \"30d\"\n[[hosts]]\nid = \"h1\"\nresources = { cpu = \"4\", \"odd.name\" = 2 }\n[[price]]\nhosts = [\"h1\"]\nper_hour = { cpu = \"6.00\", \"odd.name\" = \"0.001\" }\nhours = \
             \"8:00-18:00\"\ndays = \"sat-sun\"\nzone = \"Europe/Berlin\"\n[[price]]\nconditions = { surcharge = [{ within = \"1h\", percent = \
             50 }], refund = [{ notice = \"24h\", percent = 100 }], horizon = \"30d\", notice = \"10min\", share = 50 }".to_owned(),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = load_in(directory.path(), &file, &[]).unwrap();
        let text = print_config(&config);
        let mut again = load_in(directory.path(), &text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
        // Frequency and free disk space of a detected machine are not the same a moment later.
        if config.settings.hosts.is_none() {
            config.hosts.clear();
            again.hosts.clear();
        }
        assert_eq!(config, again, "{text}");
    }
}

#[test]
fn every_key_is_printed_with_a_comment() {
    let text = print_config(&load_file("").unwrap());
    let lines: Vec<&str> = text.lines().collect();
    for key in Settings::default()
        .keys("")
        .iter()
        .filter(|key| !["hosts", "hosts_file", "offered", "price"].contains(&key.name))
    {
        let is_key = |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{} = ", key.name));
        let at = lines.iter().position(is_key).unwrap_or_else(|| panic!("{}: {text}", key.path()));
        assert!(lines[at - 1].starts_with("# "), "{}", key.path());
    }
}

#[test]
fn prices_are_the_tariffs_of_the_hosts_as_far_as_they_can_be_published() {
    let prices = "[[price]]\nper_hour = { cpu = \"6.00\" }\n[[price]]\nconditions = { horizon = \"30d\" }";
    let config = load_file(&format!("{ONE_HOST}{prices}")).unwrap();
    let tariff = &config.hosts[0].host.tariff;
    assert_eq!(serde_json::to_string(&tariff.prices).unwrap(), r#"{"cpu":6000}"#);
    assert_eq!(tariff.conditions.horizon, Some(Span(30 * 86_400)));
    assert!(load_file(ONE_HOST).unwrap().hosts[0].host.tariff.prices.is_empty());
    let directory = tempfile::tempdir().unwrap();
    let flag = "{ per_hour = { cpu = \"1\" } }";
    let flagged = load_in(directory.path(), ONE_HOST, &["--price", flag]).unwrap();
    assert!(!flagged.hosts[0].host.tariff.prices.is_empty());
    for (file, expected) in [
        ("price_reach = \"1h\"", "site.toml: price_reach: expected 1d to 366d"),
        (
            "[[price]]\nhosts = [\"h9\"]\nper_hour = {}",
            "site.toml: price[0].hosts: h9 is no host of this site (it has tester)",
        ),
        ("[[price]]\nper_hour = { cpu = 6 }", "site.toml:2: price[0].per_hour.cpu: write \"6.00\", with quotes"),
        ("[[price]]\nhours = \"8:00-9:00\"", "site.toml: price[0]: expected per_hour"),
    ] {
        let error = load_file(file).unwrap_err();
        assert!(error.contains(expected), "{file}: {error}");
    }
    // Ten hosts whose prices change twice a day, each at its own price.
    let hosts: String =
        (0..10).map(|at| format!("[[hosts]]\nid = \"h{at}\"\nresources = {{ cpu = \"4\" }}\n")).collect();
    let each = |at: u32| {
        format!("[[price]]\nhosts = [\"h{at}\"]\nper_hour = {{ cpu = \"{at}.5\" }}\nhours = \"8:00-18:00\"\n")
    };
    let file = format!("{hosts}{}", (0..10).map(each).collect::<String>());
    let error = load_file(&file).unwrap_err();
    assert!(
        error.contains("site.toml: price: the prices of all hosts change 12") && error.contains("lower price_reach"),
        "{error}"
    );
    assert!(load_file(&format!("price_reach = \"30d\"\n{file}")).is_ok());
}

#[test]
fn no_table_is_a_list() {
    for section in Settings::default().keys("").iter().map(|key| key.section).filter(|section| !section.is_empty()) {
        let error = load_file(&format!("{section} = [1]")).unwrap_err();
        assert!(error.contains(&format!("site.toml:1: {section}: invalid type: a list")), "{error}");
    }
}

#[test]
fn every_key_has_a_flag_with_the_same_default() {
    let command = <NodeArgs as clap::Args>::augment_args(clap::Command::new("node"));
    for key in Settings::default().keys("") {
        let flag = key.path().replace(['.', '_'], "-");
        let known = command.get_arguments().find(|argument| argument.get_long() == Some(flag.as_str()));
        let is_global = ["data-dir", "api"].contains(&flag.as_str());
        assert_eq!(known.is_none(), is_global, "{flag}");
        let help = known.and_then(|argument| argument.get_help()).map(ToString::to_string).unwrap_or_default();
        assert!(is_global || help.ends_with(&format!("[default: {}]", key.default_text())), "{help}");
    }
}

#[test]
fn a_site_is_called_what_it_was_invited_as_unless_the_configuration_says_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join(".local/share/kolo");
    fs::create_dir_all(&data_dir).unwrap();
    let (grid, _) = credentials::grid();
    grid.create(&data_dir).unwrap();
    assert_eq!(load_in(directory.path(), ONE_HOST, &[]).unwrap().name, "tester");
    let site = discovery::Identity::load_or_create(&data_dir.join(IDENTITY_FILE)).unwrap().site_id().clone();
    let user = broker::trust::PublicKey::of(&credentials::key(2));
    let now = credentials::NOW;
    let (of_site, _) = found(&grid, &credentials::key(1), (&site, "maribor"), (&user, "ada"), now).unwrap();
    Wallet::at(&data_dir).keep(&grid, Role::Site, &of_site, now).unwrap();
    assert_eq!(load_in(directory.path(), ONE_HOST, &[]).unwrap().name, "maribor");
    assert_eq!(load_in(directory.path(), ONE_HOST, &["--name", "celje"]).unwrap().name, "celje");
}
