//! An invented next version of this program forms a grid with this one, over TCP on this machine, and with real ledgers:
//! its nodes speak version 8 of direct requests among themselves, ask in version 7 what this one does not know, and say
//! more in their adverts. One node speaks version 99 and nothing else, another one version 6, as nodes of before do.

use broker::{
    features::{Feature, Features},
    ids::SeatNumber,
    ledger::{Event, Ledger, LedgerLimits, Output, ReplyToken},
    plan::Place,
    protocol::{Grant, HoldRequest, RefusalReason},
    request::Request,
    time::{Now, Span},
    trust::{Authorization, Rule, testing},
};

use super::*;
use crate::{
    AskError, Constraint, InboundRequest,
    start::start_speaking,
    wire::{ASK_VERSIONS, AskVersion, DIALECT, DecodeError, Dialect, Extra, WireAnswer, WireRequest, Written},
};

/// The kind of request that this program does not know. What it asks is what [`WireRequest::DialBack`] does.
const LATER_KIND: u16 = 99;
/// What stands behind every body in another version.
const BEHIND: u8 = 0xaa;

/// Version 7 with one kind more, or a later version, whose bodies are longer.
#[derive(Debug)]
struct Later(u16);

static NEXT: &[&dyn AskVersion] = &[&Later(8), &Later(DIALECT)];
static FAR: &[&dyn AskVersion] = &[&Later(99)];
static BEFORE: &[&dyn AskVersion] = &[&Before];

impl Later {
    fn write(&self, (kind, mut body): (u16, Vec<u8>)) -> Written {
        if self.0 > DIALECT {
            body.push(BEHIND);
        }
        Ok((kind, body))
    }

    fn read<'a>(&self, body: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        if self.0 == DIALECT {
            return Ok(body);
        }
        body.strip_suffix(&[BEHIND]).ok_or(DecodeError::Trailing(0))
    }
}

impl AskVersion for Later {
    fn number(&self) -> u16 {
        self.0
    }

    fn knows_request(&self, kind: u16) -> bool {
        kind == LATER_KIND || ASK_VERSIONS[0].knows_request(kind)
    }

    fn answer_bytes_max(&self, kind: u16) -> Option<usize> {
        ASK_VERSIONS[0].answer_bytes_max(kind)
    }

    fn write_request(&self, request: &WireRequest) -> Written {
        match request {
            WireRequest::DialBack => self.write((LATER_KIND, Vec::new())),
            request => self.write(ASK_VERSIONS[0].write_request(request)?),
        }
    }

    fn read_request(&self, kind: u16, body: &[u8]) -> Result<WireRequest, DecodeError> {
        let body = self.read(body)?;
        if kind == LATER_KIND { Ok(WireRequest::DialBack) } else { ASK_VERSIONS[0].read_request(kind, body) }
    }

    fn write_answer(&self, answer: &WireAnswer) -> Written {
        self.write(ASK_VERSIONS[0].write_answer(answer)?)
    }

    fn read_answer(&self, kind: u16, body: &[u8]) -> Result<WireAnswer, DecodeError> {
        ASK_VERSIONS[0].read_answer(kind, self.read(body)?)
    }
}

/// Version 6 as far as it matters here: how it writes a hold that this program does not read, and reads a refusal.
#[derive(Debug)]
struct Before;

impl AskVersion for Before {
    fn number(&self) -> u16 {
        6
    }

    fn knows_request(&self, kind: u16) -> bool {
        ASK_VERSIONS[0].knows_request(kind)
    }

    fn answer_bytes_max(&self, kind: u16) -> Option<usize> {
        ASK_VERSIONS[0].answer_bytes_max(kind)
    }

    fn write_request(&self, request: &WireRequest) -> Written {
        Ok((ASK_VERSIONS[0].write_request(request)?.0, b"as it was".to_vec()))
    }

    fn read_request(&self, kind: u16, body: &[u8]) -> Result<WireRequest, DecodeError> {
        ASK_VERSIONS[0].read_request(kind, body)
    }

    fn write_answer(&self, answer: &WireAnswer) -> Written {
        ASK_VERSIONS[0].write_answer(answer)
    }

    fn read_answer(&self, kind: u16, body: &[u8]) -> Result<WireAnswer, DecodeError> {
        ASK_VERSIONS[0].read_answer(kind, body)
    }
}

fn next() -> Dialect {
    let later = Feature::try_from("requests/2".to_owned()).unwrap();
    let features = [Feature::try_from("requests/1".to_owned()).unwrap(), later].into_iter().collect();
    Dialect { asks: NEXT, features, extra: Extra::from([("later".to_owned(), vec![1; 100])]) }
}

/// A ledger that a node serves.
#[derive(Clone)]
struct Books(Arc<Mutex<Ledger>>);

impl ScheduleSource for Books {
    fn snapshot(&self) -> ScheduleSnapshot {
        self.0.lock().unwrap().snapshot(now())
    }
}

fn now() -> Now {
    Now { monotonic: Millis(1_000), utc: Time(3_000_000_000) }
}

/// A node with its ledger.
struct Site {
    discovery: Discovery,
    books: Books,
}

impl Site {
    async fn start(bootstrap: &[Multiaddr], dialect: Dialect) -> Site {
        let identity = Identity::generate().unwrap();
        let hosts = vec![(host("h1", 4, "x86_64"), Schedule::default())];
        let (site, gate) = (identity.site_id().clone(), testing::open_gate());
        let ledger = Ledger::open(site, LedgerLimits::default(), 1, gate, hosts, Vec::new(), now()).0;
        let books = Books(Arc::new(Mutex::new(ledger)));
        let (mut config, _) = config(&identity);
        config.schedules = Arc::new(books.clone());
        config.transport = TransportKind::TcpAndQuic;
        config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        config.bootstrap = bootstrap.to_vec();
        let (discovery, inbound) = start_speaking(identity, config, dialect).await.unwrap();
        discovery.publish_advert(offer("a site".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
        tokio::spawn(serve(inbound, books.clone()));
        Site { discovery, books }
    }

    fn id(&self) -> &SiteId {
        self.discovery.site_id()
    }

    fn bookings(&self) -> usize {
        let ledger = self.books.0.lock().unwrap();
        ledger.sanity_check().unwrap();
        ledger.bookings().count()
    }

    async fn ask(&self, of: &Site, request: SiteRequest) -> SiteAnswer {
        self.discovery.ask(of.id(), request, Millis(5_000)).await.unwrap()
    }

    /// Holds and confirms an hour of a host of the other site, as a coordinator does.
    async fn reserve(&self, of: &Site, name: &str) {
        let hold = self.hold(of, name);
        let attempt = hold.attempt.clone();
        let before = of.bookings();
        let held = self.ask(of, SiteRequest::Hold(hold)).await;
        let SiteAnswer::Held { version, .. } = held else { panic!("{name}: {held:?}") };
        let confirm = SiteRequest::Confirm { attempt: attempt.clone(), held_in: version.incarnation };
        let confirmed = self.ask(of, confirm).await;
        assert!(matches!(confirmed, SiteAnswer::Confirmed { .. }), "{name}: {confirmed:?}");
        assert_eq!(self.ask(of, SiteRequest::Settle(attempt)).await, SiteAnswer::Settled);
        assert_eq!(of.bookings(), before + 1);
    }

    fn hold(&self, of: &Site, name: &str) -> HoldRequest {
        let id = RequestId::new(name).unwrap();
        let request = r#"{"hosts":1,"duration":3600,"per_host":{"cpu":1000}}"#;
        let request: Request = serde_json::from_str(request).unwrap();
        HoldRequest {
            variant: Default::default(),
            attempt: AttemptId { entry_point: self.id().clone(), request: id.clone(), attempt: 1 },
            grants: vec![Grant {
                seat: SeatNumber(0),
                place: Place::Host(HostId::new("h1").unwrap()),
                window: Window::starting(Time(now().utc.0 + 7_200), Span(3_600)),
                amounts: amounts(1000),
                agreed: Default::default(),
            }],
            participants: vec![of.id().clone()],
            hold_for: Millis(60_000),
            may_substitute: true,
            authorization: Arc::new(testing::authorize(1, self.id(), &id, &request)),
        }
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.discovery.status().counters[counter.name()]
    }

    fn features(&self, of: &Site) -> Option<Features> {
        let sites = self.discovery.view().sites(self.discovery.now());
        sites.into_iter().find(|site| site.advert.site == *of.id()).map(|site| site.advert.features)
    }
}

async fn serve(mut inbound: Inbound, books: Books) {
    while let Some(InboundRequest { from, request, reply, .. }) = inbound.next().await {
        let mut ledger = books.0.lock().unwrap();
        ledger.handle(now(), Event::Request { from, network: None, token: ReplyToken(0), request });
        let outputs = std::iter::from_fn(|| ledger.poll_output());
        let answers = outputs.filter_map(|output| match output {
            Output::Reply { answer, .. } => Some(answer),
            _ => None,
        });
        let mut answers: Vec<SiteAnswer> = answers.collect();
        reply.answer(answers.pop().unwrap());
    }
}

async fn know_each_other(sites: &[&Site]) {
    let knows_all = |one: &&Site| sites.iter().all(|other| one.features(other).is_some());
    eventually("all sites are known to all", || sites.iter().all(knows_all)).await;
}

fn assert_nobody_is_blamed(sites: &[&Site]) {
    for site in sites {
        let status = site.discovery.status();
        assert!(status.bans.is_empty() && site.counted(Counter::Offences) == 0, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_version_and_the_next_form_a_grid_and_reserve_from_each_other() {
    let here = Site::start(&[], Dialect::default()).await;
    let bootstrap = here.discovery.listen_addresses();
    let (next_one, next_two) = (Site::start(&bootstrap, next()).await, Site::start(&bootstrap, next()).await);
    let sites = [&here, &next_one, &next_two];
    know_each_other(&sites).await;
    assert!(here.features(&next_one).unwrap().contains("requests/2"));
    assert_eq!(next_two.features(&here), Some(Features::own()));

    here.reserve(&next_one, "to-the-next").await;
    next_one.reserve(&here, "from-the-next").await;
    next_one.reserve(&next_two, "among-the-next").await;

    // More than would ban a peer, if it were an offence.
    for _ in 0..30 {
        let asked = next_one.discovery.core().request(here.id(), WireRequest::DialBack, Millis(5_000)).await;
        assert!(matches!(asked, Ok(WireAnswer::NotUnderstood { kind: LATER_KIND })), "{asked:?}");
    }
    assert_eq!(here.counted(Counter::AsksInNotUnderstood), 30);
    let among_next = next_one.discovery.core().request(next_two.id(), WireRequest::DialBack, Millis(5_000)).await;
    assert!(matches!(among_next, Ok(WireAnswer::DialedBack(_) | WireAnswer::Busy)), "{among_next:?}");

    let found = here.discovery.find(query(3), 1).await;
    assert_eq!((found.hosts.len(), found.cut), (3, Vec::new()));
    assert_nobody_is_blamed(&sites);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_the_next_version_is_refused_by_the_name_of_its_key() {
    let here = Site::start(&[], Dialect::default()).await;
    let next = Site::start(&here.discovery.listen_addresses(), next()).await;
    know_each_other(&[&here, &next]).await;
    let mut hold = next.hold(&here, "dear");
    let text = hold.authorization.request.text.replace(r#""hosts""#, r#""carbon":7,"hosts""#);
    let request = testing::sign_text(text, &testing::key(1));
    hold.authorization = Arc::new(Authorization { request, user: None, entry_point: None });
    let answer = next.ask(&here, SiteRequest::Hold(hold)).await;
    let SiteAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
    let RefusalReason::NotAllowed(denial) = &refusal.reason else { panic!("{refusal:?}") };
    assert_eq!(denial.rule, Rule::Understood);
    assert!(denial.detail.contains("the key `request.carbon`"), "{denial}");
    assert_eq!(here.bookings(), 0);
    assert_nobody_is_blamed(&[&here, &next]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_99_is_refused_by_its_number_and_nothing_is_held() {
    let here = Site::start(&[], Dialect::default()).await;
    let far = Dialect { asks: FAR, features: Features::default(), extra: Extra::new() };
    let far = Site::start(&here.discovery.listen_addresses(), far).await;
    know_each_other(&[&here, &far]).await;
    for (from, to, words) in [(&here, &far, "this node's program is too old"), (&far, &here, "its program is too old")]
    {
        let answer = from.ask(to, SiteRequest::Hold(from.hold(to, "never"))).await;
        let SiteAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
        let RefusalReason::NotUnderstood(why) = &refusal.reason else { panic!("{refusal:?}") };
        assert!(why.starts_with(words) && why.contains("99") && why.contains("7"), "{why}");
        let told = from.discovery.status().apart;
        assert!(told.iter().any(|(site, why)| site == to.id() && why.starts_with(words)), "{told:?}");
        assert_eq!(to.bookings(), 0);
        let fetched = from.discovery.fetch_schedule(to.id(), Millis(5_000)).await;
        assert!(matches!(fetched, Err(AskError::NotUnderstood(_))), "{fetched:?}");
    }
    let found = here.discovery.find(query(2), 1).await;
    let base = Feature::try_from("requests/1".to_owned()).unwrap();
    assert_eq!((found.hosts.len(), found.cut), (1, vec![(Constraint::Feature(base), 1)]));
    assert_nobody_is_blamed(&[&here, &far]);
}

/// What a node of before says of itself does not name the versions that it speaks, so they are those of its direct requests; this test's
/// says it. Either way both are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_before_is_told_that_its_program_is_too_old() {
    let here = Site::start(&[], Dialect::default()).await;
    let old = Dialect { asks: BEFORE, features: Features::default(), extra: Extra::new() };
    let old = Site::start(&here.discovery.listen_addresses(), old).await;
    know_each_other(&[&here, &old]).await;
    let core = old.discovery.core();
    let request = WireRequest::Site(SiteRequest::Hold(old.hold(&here, "of-before")));
    let answered = core.request(here.id(), request, Millis(5_000)).await;
    let Ok(WireAnswer::Site(SiteAnswer::Refused(refusal))) = answered else { panic!("{answered:?}") };
    let RefusalReason::NotUnderstood(why) = &refusal.reason else { panic!("{refusal:?}") };
    assert!(why.contains("too old: it speaks version 6 of the protocol between nodes, this site 7"), "{why}");
    let asked = core.request(here.id(), WireRequest::Schedules(None), Millis(5_000)).await;
    assert!(matches!(asked, Ok(WireAnswer::NotUnderstood { kind: 1 })), "{asked:?}");
    assert_eq!(here.bookings(), 0);
    for (site, other, words) in
        [(&here, &old, "its program is too old"), (&old, &here, "this node's program is too old")]
    {
        let told = site.discovery.status().apart;
        assert!(told.iter().any(|(of, why)| of == other.id() && why.starts_with(words)), "{told:?}");
    }
    assert_nobody_is_blamed(&[&here, &old]);
}
