//! The exact bytes of everything that travels: every kind of direct request and answer, every reason of a refusal, gossip,
//! adverts, and what is signed. A change of any of them shuts out the nodes that run now, so it must be meant.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use broker::{
    classes::Hosts,
    classes::Members,
    cost::Cost,
    features::Features,
    ids::SeatNumber,
    offered::{Offered, Spans},
    plan::Place,
    protocol::{
        AttemptStatus, ClassChange, ClassSchedules, FoundBooking, Grant, HoldRequest, HostState, PublicBooking, Quote,
        Refusal, RefusalReason, ShareLeft, Standing, TakeOverStep,
    },
    schedule::ClassOccupancy,
    tariff::{Agreement, Before, Conditions, Parts, Tariff},
    time::Span,
    trust::{Authorization, Denial, Labels, RequestStatement, Role, Rule, SignedText, Subject, testing},
};

use super::*;
use crate::{
    index,
    membership::Badge,
    wire::{
        Asked, Codec, DIALECT, Dropped, Extra, SinceThen, Terms, WireAnswer, WireRequest, WireSchedules, answer_bytes,
        answer_in, bundle, frame::unframed, names, request_bytes,
    },
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/golden.txt");
const ADVICE: &str = "\
The bytes of what travels between nodes have changed, or there is something new that travels.
Nodes that run today do not understand a change of what is there: give it a new number (a kind, a version of direct requests, a topic
of gossip, a version of envelopes or statements: docs/protocol.md, \"How it grows\") and keep the one before until nobody needs it.
When you know that nobody runs it, or only added lines: KOLO_BLESS=1 cargo test -p discovery golden, and read the diff.";

type Lines = Vec<(String, Vec<u8>)>;

fn version() -> LedgerVersion {
    LedgerVersion { incarnation: 1_800_000_000_000, change: 300 }
}

fn site_id() -> SiteId {
    SiteId::new("s").unwrap()
}

fn attempt() -> AttemptId {
    AttemptId { entry_point: SiteId::new("e").unwrap(), request: RequestId::new("r").unwrap(), attempt: 3 }
}

fn agreement() -> Agreement {
    Agreement { cost: Cost(12_500), refunds: vec![Before { start: Span(3600), part: Parts(500) }] }
}

/// The advert's hosts have two tariffs.
fn tariff(prices: &str) -> Arc<Tariff> {
    let refunds = agreement().refunds;
    let surcharges = vec![Before { start: Span(60), part: Parts(250) }];
    let conditions = Conditions {
        surcharges,
        refunds,
        horizon: Some(Span(86_400)),
        notice_min: Span(5),
        share_max: Some(Parts(800)),
    };
    Arc::new(Tariff { prices: serde_json::from_str(prices).unwrap(), conditions })
}

fn grants() -> Vec<Grant> {
    let place = Place::Host(HostId::new("h1").unwrap());
    vec![Grant { seat: SeatNumber(2), place, window: hour(), amounts: amounts(70_000), agreed: agreement() }]
}

fn schedule() -> Schedule {
    let mut schedule = Schedule::default();
    schedule.add(hour(), &amounts(1500));
    schedule
}

fn statement() -> SignedText {
    let request = serde_json::from_str(r#"{"hosts":1,"duration":60}"#).unwrap();
    let labels = BTreeMap::from([("project".to_owned(), "weather".to_owned())]);
    let statement = testing::statement(&attempt().entry_point, &attempt().request, &request);
    let statement = RequestStatement { labels: Labels::try_from(labels).unwrap(), ..statement };
    testing::sign(&statement, &testing::key(1))
}

fn authorization() -> Arc<Authorization> {
    let user = testing::member(Subject::Key(testing::public(1)), Role::User, "ada");
    let entry_point = testing::member(Subject::Site(attempt().entry_point), Role::Site, "lab");
    Arc::new(Authorization { request: statement(), user: Some(user), entry_point: Some(entry_point) })
}

fn requests() -> Vec<WireRequest> {
    let hold = HoldRequest {
        variant: Default::default(),
        attempt: attempt(),
        grants: grants(),
        participants: vec![site_id()],
        hold_for: Millis(10_000),
        may_substitute: false,
        authorization: authorization(),
    };
    let site = [
        SiteRequest::Hold(hold.clone()),
        SiteRequest::Book { hold: hold.clone(), incarnation: version().incarnation },
        SiteRequest::Confirm { attempt: attempt(), held_in: version().incarnation },
        SiteRequest::Release(attempt()),
        SiteRequest::Settle(attempt()),
        SiteRequest::Inquire(attempt()),
        SiteRequest::Inspect(attempt()),
        SiteRequest::Lookup(attempt().request),
        SiteRequest::TakeOver { attempt: attempt(), authorization: authorization(), step: TakeOverStep::Prepare },
        SiteRequest::TakeOver { attempt: attempt(), authorization: authorization(), step: TakeOverStep::Commit },
        SiteRequest::TakeOver { attempt: attempt(), authorization: authorization(), step: TakeOverStep::Abort },
        SiteRequest::Bookings { after: Some(attempt()) },
    ];
    let others = [
        WireRequest::Schedules(Some(version())),
        WireRequest::Schedules(None),
        WireRequest::SchedulesPart { version: version(), number: 9 },
        WireRequest::Advert,
        WireRequest::Adverts(vec![(1, 2), (u64::MAX, 70_000)]),
        WireRequest::Revocations { from: 300 },
        WireRequest::DialBack,
    ];
    let hold = HoldRequest { may_substitute: true, ..hold };
    let elsewhere = [
        SiteRequest::Hold(hold.clone()),
        SiteRequest::Book { hold: hold.clone(), incarnation: version().incarnation },
        SiteRequest::Quote(hold),
        SiteRequest::Standing(authorization()),
    ];
    let elsewhere = elsewhere.map(WireRequest::Site);
    let many = WireRequest::Many(vec![SiteRequest::Release(attempt()), SiteRequest::Settle(attempt())]);
    site.into_iter().map(WireRequest::Site).chain(others).chain(elsewhere).chain([many]).collect()
}

fn offer() -> Arc<Offered> {
    let spans = Spans::try_from(vec![(0, 60), (3_600, 7_200)]).unwrap();
    Arc::new(Offered { spans: Some(Arc::new(spans)), longest: Some(Span(60)), asks: true, ..Offered::default() })
}

fn reasons() -> Vec<RefusalReason> {
    let (host, resource) = (HostId::new("h1").unwrap(), cpu());
    vec![
        RefusalReason::NotEnough { host: host.clone(), resource: resource.clone(), asked: Amount(2), free: Amount(1) },
        RefusalReason::HeldByAnother { host: host.clone(), resource },
        RefusalReason::UnknownHost(host.clone()),
        RefusalReason::NoSuchHold,
        RefusalReason::AttemptIsOver,
        RefusalReason::WindowPassed,
        RefusalReason::TooFarAhead(9),
        RefusalReason::TooManyHolds(9),
        RefusalReason::NotYours,
        RefusalReason::HandedOver(Arc::new(statement())),
        RefusalReason::Malformed("why".to_owned()),
        RefusalReason::OtherAttempt,
        RefusalReason::Busy,
        RefusalReason::PriceChanged { host, tariff: tariff(r#"{"cpu":6000}"#) },
        RefusalReason::NotUnderstood("what".to_owned()),
        RefusalReason::UplinkFull { asked: Amount(700), free: Amount(300) },
        RefusalReason::NotOffered { denial: Denial::new(Rule::OwnerHours, ""), offer: offer() },
    ]
}

/// The schedules of a host, and of a class of which five hosts are in use.
fn snapshot() -> ScheduleSnapshot {
    let mut used = ClassOccupancy::default();
    used.exchange(hour(), Amount(5), (&Amounts::new(), &amounts(4))).unwrap();
    let class = (HostId::new("n").unwrap(), ClassSchedules { members: Members { first: 1, count: 64 }, used });
    let schedules = SiteSchedules::new([(HostId::new("h1").unwrap(), schedule())], [class]);
    ScheduleSnapshot { site: site_id(), version: version(), schedules }
}

fn first_part(coarse_from: Option<Time>) -> WireAnswer {
    WireAnswer::Schedules(Arc::new(WireSchedules::parts_of(&snapshot(), coarse_from).remove(0)))
}

/// Of a host, and of a class.
fn changes() -> Vec<ScheduleChange> {
    let change = |kind| {
        let host = HostId::new("h1").unwrap();
        ScheduleChange::Host(HostChange { host, window: hour(), amounts: amounts(1), kind })
    };
    let of_class = ClassChange {
        class: HostId::new("n").unwrap(),
        window: hour(),
        hosts: 3,
        before: Amounts::new(),
        after: amounts(4),
    };
    vec![change(ChangeKind::Added), change(ChangeKind::Removed), ScheduleChange::Class(of_class)]
}

/// Rules that came when answers were recorded already: theirs follow all others.
const LATER_RULES: [Rule; 3] = [Rule::Needs, Rule::Clock, Rule::Disk];

/// Answers of a ledger, the first that there were.
fn site_answers() -> Vec<SiteAnswer> {
    let host = HostId::new("h1").unwrap();
    let (attempt, window, grants) = (attempt(), hour(), grants());
    let statuses = [AttemptStatus::Pending, AttemptStatus::Confirmed, AttemptStatus::Aborted, AttemptStatus::Unknown];
    let state = HostState { host: host.clone(), schedule: schedule(), held: vec![(window, amounts(5))] };
    let refused = |reason| SiteAnswer::Refused(Refusal { reason, version: version(), hosts: vec![state.clone()] });
    let first_rules = Rule::ALL.iter().filter(|rule| !LATER_RULES.contains(rule));
    let rules = first_rules.map(|rule| RefusalReason::NotAllowed(Denial::new(*rule, "")));
    let site = [
        SiteAnswer::Held { version: version(), hold_for: Millis(10_000), places: Vec::new() },
        SiteAnswer::Confirmed { places: Vec::new(), version: version(), receipt: Some(Arc::new(statement())) },
        SiteAnswer::Released { version: version(), charged: Cost(12_500) },
        SiteAnswer::Settled,
        SiteAnswer::Booked {
            seats: vec![SeatNumber(2)],
            places: vec![
                (SeatNumber(2), Place::Floating { class: host.clone(), host: host.clone() }),
                (SeatNumber(3), Place::Bound { class: host.clone(), host: host.clone() }),
            ],
            is_settled: true,
            before: Some(site_id()),
            others: vec![attempt.clone()],
            charged: Cost(12_500),
            version: version(),
            receipt: Some(Arc::new(statement())),
            wait: Span(600),
        },
        SiteAnswer::Found {
            parts: vec![FoundBooking {
                wait: Span(600),
                variant: Default::default(),
                attempt: attempt.clone(),
                grants: grants.clone(),
                participants: vec![site_id()],
                statement: Arc::new(statement()),
            }],
            is_coordinated: true,
            version: version(),
        },
        SiteAnswer::Bookings {
            bookings: vec![PublicBooking { attempt, grants, user: "ada".to_owned(), load: Amount(300) }],
            is_complete: true,
            is_withheld: false,
            version: version(),
        },
    ];
    let statuses = statuses.map(|booking| SiteAnswer::Status { decision: Some(booking), booking });
    let refusals = reasons().into_iter().chain(rules).map(refused);
    site.into_iter().chain(statuses).chain(refusals).collect()
}

/// Answers of a ledger that came later.
fn later_site_answers() -> Vec<SiteAnswer> {
    let host = HostId::new("h1").unwrap();
    let state = HostState { host: host.clone(), schedule: schedule(), held: vec![(hour(), amounts(5))] };
    let places = vec![(SeatNumber(2), Place::Host(host.clone()))];
    vec![
        SiteAnswer::Held { version: version(), hold_for: Millis(10_000), places: places.clone() },
        SiteAnswer::Confirmed { places, version: version(), receipt: None },
        SiteAnswer::Quoted {
            quote: Quote { late: 2, slowdown_millionths: 1_500_000 },
            hosts: vec![state.clone()],
            version: version(),
        },
        SiteAnswer::Standing(Box::new(Standing {
            denial: None,
            longest: Some(Span(3_600)),
            reach: Some(Span(86_400)),
            host_percent: BTreeMap::from([(cpu(), 50)]),
            on_hosts: vec![(host, schedule())],
            of_site: vec![ShareLeft {
                most: amounts(9_000),
                used: schedule(),
                left: BTreeMap::from([(cpu(), 86_400_000)]),
            }],
            credits: Some(Cost(7_500)),
            version: version(),
        })),
    ]
}

fn answers() -> Vec<WireAnswer> {
    let others = [
        first_part(None),
        first_part(Some(hour().end)),
        WireAnswer::Changes(SinceThen { from: version(), changes: changes(), is_complete: true }),
        WireAnswer::PartsGone,
        WireAnswer::Adverts { envelopes: vec![vec![1, 2, 3]], is_complete: false },
        WireAnswer::Unchanged(version()),
        WireAnswer::Revocations { revocations: vec![vec![4, 5]], total: 7 },
        WireAnswer::DialedBack(true),
        WireAnswer::Busy,
        WireAnswer::NotUnderstood { kind: 99 },
    ];
    let many = WireAnswer::Many(vec![Some(SiteAnswer::Settled), None]);
    let last = LATER_RULES.map(|rule| {
        let reason = RefusalReason::NotAllowed(Denial::new(rule, ""));
        WireAnswer::Site(SiteAnswer::Refused(Refusal { reason, version: version(), hosts: Vec::new() }))
    });
    let (first, later) = (site_answers().into_iter(), later_site_answers().into_iter());
    let later = later.map(WireAnswer::Site).chain([many]).chain(last);
    first.map(WireAnswer::Site).chain(others).chain(later).collect()
}

/// An advert and an update, signed and in a bundle.
fn gossip(lines: &mut Lines) {
    let me = Identity::from_secret(&[7; 32]).unwrap();
    let grid = GridId::new("test").unwrap();
    let stamp = Stamp { sequence: 9, sent_ms: 1_800_000_000_000, time_to_live: Millis(60_000) };
    let advert = Advert { contact: Some("ssh {user}@{host}".to_owned()), ..advert(&me, 9) };
    let advert = Advert { uplink: Some(Amount(1000)), quotes: true, ..advert };
    let advert = Advert { features: Features::own(), addresses: vec!["/ip4/192.0.2.1/tcp/7741".to_owned()], ..advert };
    let badge = Badge { credential: vec![1, 2, 3], revocations_digest: 4 };
    let extra = Extra::from([("later".to_owned(), vec![5, 6])]);
    let update = ScheduleUpdate { site: me.site_id().clone(), from: version(), changes: changes() };
    let mut advert = advert;
    advert.hosts = ["h1", "n-1", "n-2"].map(|id| host(id, 4, "x86_64")).into_iter().collect();
    advert.offer = offer();
    advert.hosts.classes_mut()[0].host.tariff = tariff(r#"[[0,{"cpu":6000}],[3600,{}]]"#);
    let advert = wire::seal_with_badge(&me, &grid, stamp, Payload::Advert(advert), (badge, &extra)).unwrap();
    let update = wire::seal(&me, &grid, stamp, Payload::Update(update)).unwrap();
    lines.push(("envelope of an advert".to_owned(), advert));
    lines.push(("bundle of an update".to_owned(), bundle::bundle_of(7, &update)));
}

/// Under which names nodes and records find each other.
fn names(lines: &mut Lines) {
    let grid = GridId::new("test").unwrap();
    let mut protocols = names::ask_protocols(&grid, wire::ASK_VERSIONS).unwrap();
    protocols.push(names::kad_protocol(&grid).unwrap());
    let topics = [names::adverts_topic(&grid), names::schedules_topic(&grid)].map(|topic| topic.to_string());
    let others = [names::identify_protocol(&grid), names::gossip_prefix(&grid)];
    let protocols = protocols.iter().map(ToString::to_string);
    lines.extend(protocols.chain(topics).chain(others).map(|name| ("name".to_owned(), name.into_bytes())));
    lines.push(("key of an advert".to_owned(), index::advert_key(&grid, &site_id()).to_vec()));
    let keys =
        index::keys_of_site(&grid, &site_id(), &Hosts::from_iter(["h1", "n-1", "n-2"].map(|id| host(id, 4, "x86_64"))));
    lines.extend(keys.iter().map(|key| ("key of an index entry".to_owned(), key.to_vec())));
}

fn statements(lines: &mut Lines) {
    let revocation = testing::revoke(Subject::Key(testing::public(1)));
    let signed = [
        ("request", serde_json::to_vec(&*authorization())),
        ("credential", serde_json::to_vec(&testing::member(Subject::Site(site_id()), Role::Site, "lab"))),
        ("revocation", serde_json::to_vec(&revocation)),
    ];
    lines.extend(signed.map(|(kind, bytes)| (format!("statement: {kind}"), bytes.unwrap())));
}

fn everything() -> Lines {
    let mut lines = Lines::new();
    let mut kinds: [BTreeSet<u16>; 2] = Default::default();
    for (number, request) in requests().iter().enumerate() {
        let bytes = request_bytes(request);
        kinds[0].insert(unframed(&bytes).unwrap().0);
        lines.push((format!("request {number}"), bytes));
    }
    for (number, answer) in answers().iter().enumerate() {
        let bytes = answer_bytes(answer);
        kinds[1].insert(unframed(&bytes).unwrap().0);
        lines.push((format!("answer {number}"), bytes));
    }
    let known = wire::ASK_VERSIONS[0];
    let all = [
        (0..=u16::MAX).filter(|kind| known.knows_request(*kind)).collect(),
        (0..=u16::MAX).filter(|kind| known.answer_bytes_max(*kind).is_some()).collect(),
    ];
    assert_eq!(kinds, all, "every kind has a line");
    let verdict = wire::Verdict { is_member: false, revocations: vec![vec![4, 5]] };
    lines.push(("verdict".to_owned(), verdict.to_bytes().unwrap()));
    gossip(&mut lines);
    names(&mut lines);
    statements(&mut lines);
    lines
}

#[test]
fn golden_bytes_of_what_travels() {
    let mut found = String::new();
    for (name, bytes) in everything() {
        writeln!(found, "{name}: {}", bytes.escape_ascii()).unwrap();
    }
    if std::env::var_os("KOLO_BLESS").is_some() {
        fs::write(Path::new(FILE), &found).unwrap();
    }
    let kept = fs::read_to_string(FILE).unwrap_or_default();
    let differs = found.lines().zip(kept.lines().chain(std::iter::repeat(""))).find(|(found, kept)| found != kept);
    if let Some((found, kept)) = differs {
        panic!("{ADVICE}\nfound: {found}\nkept:  {kept}");
    }
    assert_eq!(found.lines().count(), kept.lines().count(), "{ADVICE}\nsomething is gone");
}

/// What was recorded under this name.
fn recorded(of: &str, name: &str) -> Vec<Vec<u8>> {
    let lines = of.lines().filter_map(|line| line.strip_prefix(name)?.split_once(": "));
    lines.map(|(_, escaped)| unescaped(escaped)).collect()
}

/// Undoes [`slice::escape_ascii`].
fn unescaped(text: &str) -> Vec<u8> {
    let mut rest = text.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
            (_, Some(b'x')) => {
                let digits: String = [rest.next(), rest.next()].into_iter().flatten().map(char::from).collect();
                u8::from_str_radix(&digits, 16).unwrap()
            }
            (_, Some(b'n')) => b'\n',
            (_, Some(b'r')) => b'\r',
            (_, Some(b't')) => b'\t',
            (_, Some(escaped)) => escaped,
            (byte, None) => byte,
        });
    }
    bytes
}

#[test]
fn what_was_recorded_is_read_as_what_was_said() {
    let kept = fs::read_to_string(FILE).unwrap();
    let version = wire::ASK_VERSIONS[0];
    let said = recorded(&kept, "request ");
    assert_eq!(said.len(), requests().len());
    for (request, bytes) in requests().into_iter().zip(said) {
        let (kind, body) = unframed(&bytes).unwrap();
        assert_eq!(version.read_request(kind, body).unwrap(), request);
    }
    let said = recorded(&kept, "answer ");
    assert_eq!(said.len(), answers().len());
    for (answer, bytes) in answers().into_iter().zip(said) {
        assert_eq!(format!("{:?}", answer_in(&bytes).unwrap()), format!("{answer:?}"));
    }
}

fn terms(grid: &GridId) -> Terms<'_> {
    Terms { grid, utc_ms: 1_800_000_000_000, skew_max: Millis(0) }
}

#[tokio::test]
async fn what_was_recorded_of_the_version_before_is_answered_with_which_program_is_too_old() {
    use futures::io::Cursor;
    use libp2p::{StreamProtocol, request_response::Codec as _};

    let before = include_str!("golden_of_before.txt");
    let old = StreamProtocol::new("/kolo/test/ask/6");
    assert!(names::ask_protocols(&GridId::new("test").unwrap(), wire::ASK_VERSIONS).unwrap().contains(&old));
    let counters = Arc::new(Counters::default());
    let mut codec = Codec::new(wire::ASK_VERSIONS, Arc::clone(&counters), Duration::from_secs(5));
    let said = recorded(before, "request ");
    assert!(said.len() > 20);
    for bytes in said {
        let (kind, _) = unframed(&bytes).unwrap();
        let asked = codec.read_request(&old, &mut Cursor::new(bytes.clone())).await.unwrap();
        assert_eq!(asked, Asked::NotUnderstood(kind));
        let mut answer = Cursor::new(Vec::new());
        codec.write_response(&old, &mut answer, WireAnswer::NotUnderstood { kind }).await.unwrap();
        let answer = answer.into_inner();
        // As version 6 reads it: the kind 7 names the kind that is not understood, the kind 23 refuses with a reason in bytes and in words.
        let (answered, body) = unframed(&answer).unwrap();
        if kind < 16 {
            assert_eq!((answered, body), (7, &[kind as u8][..]));
            continue;
        }
        let (reason, words, version, hosts): (Vec<u8>, String, LedgerVersion, Vec<HostState>) =
            wire::decode::<_, 4096>(body).unwrap();
        assert_eq!((answered, reason, version, hosts.len()), (23, vec![250], LedgerVersion::default(), 0));
        assert!(
            words.len() < 300
                && words.contains(&format!("version 6 of the protocol between nodes, this site {DIALECT}"))
        );
    }
    assert_eq!(counters.get(Counter::AskDecodeFailures), 0, "nobody is blamed");
    let grid = GridId::new("test").unwrap();
    let advert = recorded(before, "envelope of an advert").remove(0);
    let bundle = recorded(before, "bundle of an update").remove(0);
    let update = bundle::unbundle(&bundle).unwrap()[0];
    for envelope in [&advert[..], update] {
        let dropped = wire::open(envelope, terms(&grid)).unwrap_err();
        assert_eq!(dropped, Dropped::UnknownVersion(4));
        assert!(!dropped.is_forwarders_fault() && dropped.to_string().contains("version 4"));
    }
    let now = fs::read_to_string(FILE).unwrap();
    let advert = recorded(&now, "envelope of an advert").remove(0);
    assert!(matches!(wire::open(&advert, terms(&grid)).unwrap().payload, Payload::Advert(_)));
}
