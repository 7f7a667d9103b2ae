//! Direct requests, the queue behind them, and addresses.

use broker::{
    cost::Cost,
    protocol::{HostState, PublicBooking, Refusal, RefusalReason},
};

use super::*;
use crate::{
    AskError, InboundRequest, StartError,
    wire::{WireAnswer, WireRequest},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_ask_and_answer() {
    let mut a = node(&[]).await;
    let b = node(&a.discovery.listen_addresses()).await;
    a.discovery.publish_advert(offer("a".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
    let site = a.discovery.site_id().clone();
    eventually("b knows a and its schedules", || b.discovery.view().version(&site).is_some()).await;

    let version = LedgerVersion { incarnation: 1, change: 9 };
    let (asked, from) = tokio::join!(
        b.discovery.ask(&site, inquiry(&b), Millis(5000)),
        answer_next(&mut a, SiteAnswer::Confirmed { places: Vec::new(), version, receipt: None })
    );
    assert_eq!(asked, Ok(SiteAnswer::Confirmed { places: Vec::new(), version, receipt: None }));
    assert_eq!(from, *b.discovery.site_id());
    let sees_gap =
        b.discovery.view().with_site(&site, |view| view.fresh_schedules(Millis(0), Millis(u64::MAX)).is_none());
    assert_eq!(sees_gap, Some(true), "an answer with a later version shows that changes were missed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_asks_itself_through_its_own_queue() {
    let mut a = node(&[]).await;
    let (discovery, request) = (a.discovery.clone(), inquiry(&a));
    let site = discovery.site_id().clone();
    let (asked, from) =
        tokio::join!(discovery.ask(&site, request, Millis(5000)), answer_next(&mut a, SiteAnswer::Settled));
    assert_eq!(asked, Ok(SiteAnswer::Settled));
    assert_eq!(from, site);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_answers_busy_at_once() {
    let a = node_with(&[], |config| config.limits.inbound_queue = 1).await;
    let b = node(&a.discovery.listen_addresses()).await;
    let site = a.discovery.site_id().clone();
    eventually("connected", || !b.discovery.status().connected.is_empty()).await;
    // Nobody takes from the queue: one of two requests fills it, and the other is refused. They are of kinds that do not share a message.
    let asks = [inquiry(&b), SiteRequest::Bookings { after: None }].map(|request| {
        let (discovery, site) = (b.discovery.clone(), site.clone());
        tokio::spawn(async move { discovery.ask(&site, request, Millis(10_000)).await })
    });
    let busy = Refusal { reason: RefusalReason::Busy, version: LedgerVersion::default(), hosts: Vec::new() };
    let (refused, _, mut waiting) = futures::future::select_all(asks).await;
    assert_eq!(refused.unwrap(), Ok(SiteAnswer::Refused(busy.clone())));
    assert_eq!(counter(&a, Counter::AsksInBusy), 1);
    drop(a.inbound);
    let dropped = waiting.remove(0).await.unwrap();
    assert_eq!(dropped, Ok(SiteAnswer::Refused(busy)), "a dropped request is answered as well");
}

/// On one thread the task of the swarm has its turn when all requests are there.
#[tokio::test]
async fn small_requests_to_one_site_share_a_message_and_each_has_its_answer() {
    const REQUESTS: u32 = 40;
    let mut a = node(&[]).await;
    let b = node(&a.discovery.listen_addresses()).await;
    let site = a.discovery.site_id().clone();
    eventually("connected", || !b.discovery.status().connected.is_empty()).await;
    let entry_point = b.discovery.site_id();
    let attempt =
        |attempt| AttemptId { entry_point: entry_point.clone(), request: RequestId::new("r").unwrap(), attempt };
    let version = |change: u32| LedgerVersion { incarnation: 1, change: change.into() };
    let small = (0..REQUESTS).map(|number| SiteRequest::Release(attempt(number)));
    let requests = small.chain([SiteRequest::Bookings { after: None }]);
    let asks = requests.map(|request| b.discovery.ask(&site, request, Millis(10_000)));
    let answering = async {
        for number in 0..=REQUESTS {
            let asked = tokio::time::timeout(DEADLINE, a.inbound.next()).await.unwrap().unwrap();
            match asked.request {
                // An answer that is dropped is none of the others' concern.
                SiteRequest::Release(AttemptId { attempt: 7, .. }) => drop(asked.reply),
                SiteRequest::Release(AttemptId { attempt, .. }) => {
                    asked.reply.answer(SiteAnswer::Released { version: version(attempt), charged: Cost(0) });
                }
                other => asked.reply.answer(SiteAnswer::Refused(Refusal {
                    reason: RefusalReason::NotUnderstood(format!("{number}: {other:?}")),
                    version: version(number),
                    hosts: Vec::new(),
                })),
            }
        }
    };
    let (answers, ()) = tokio::join!(futures::future::join_all(asks), answering);
    for (number, answer) in (0..REQUESTS).zip(&answers) {
        let is_busy = matches!(answer, Ok(SiteAnswer::Refused(Refusal { reason: RefusalReason::Busy, .. })));
        let expected = Ok(SiteAnswer::Released { version: version(number), charged: Cost(0) });
        assert!(if number == 7 { is_busy } else { *answer == expected }, "{number}: {answer:?}");
    }
    assert!(matches!(answers.last(), Some(Ok(SiteAnswer::Refused(_)))), "large answers go alone");
    assert_eq!(counter(&b, Counter::AsksShared), u64::from(REQUESTS), "32 in one message, 8 in another");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_had_large_answers_waits_before_the_next() {
    let mut a = node_with(&[], |config| config.limits.answers_per_peer_kib_per_s = 1).await;
    let (b, c) = (node(&a.discovery.listen_addresses()).await, node(&a.discovery.listen_addresses()).await);
    let connected = || !b.discovery.status().connected.is_empty() && !c.discovery.status().connected.is_empty();
    eventually("connected", connected).await;
    let attempt =
        AttemptId { entry_point: b.discovery.site_id().clone(), request: RequestId::new("r").unwrap(), attempt: 1 };
    let booking = PublicBooking { attempt, grants: Vec::new(), user: "ada".to_owned(), load: Amount(0) };
    let large = SiteAnswer::Bookings {
        bookings: vec![booking; 1_000],
        is_complete: true,
        is_withheld: false,
        version: LedgerVersion::default(),
    };
    let site = a.discovery.site_id().clone();
    let ask = |from: &Node, request| {
        let (discovery, site) = (from.discovery.clone(), site.clone());
        tokio::spawn(async move { discovery.ask(&site, request, Millis(10_000)).await })
    };
    for from in [&b, &c] {
        let first = ask(from, SiteRequest::Bookings { after: None });
        answer_next(&mut a, large.clone()).await;
        assert_eq!(first.await.unwrap(), Ok(large.clone()));
    }
    for request in [SiteRequest::Bookings { after: None }, SiteRequest::Lookup(RequestId::new("r").unwrap())] {
        let refused = ask(&b, request).await.unwrap();
        assert!(matches!(refused, Ok(SiteAnswer::Refused(Refusal { reason: RefusalReason::Busy, .. }))), "{refused:?}");
    }
    let small = ask(&b, inquiry(&b));
    answer_next(&mut a, SiteAnswer::Settled).await;
    assert_eq!(small.await.unwrap(), Ok(SiteAnswer::Settled), "what finishes an attempt is not held up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_had_large_refusals_is_shown_no_more() {
    let mut a = node_with(&[], |config| config.limits.answers_per_peer_kib_per_s = 1).await;
    let b = node(&a.discovery.listen_addresses()).await;
    let (discovery, site) = (b.discovery.clone(), a.discovery.site_id().clone());
    eventually("connected", || !discovery.status().connected.is_empty()).await;
    let host = |number: u32| HostState {
        host: HostId::new(&format!("h{number}")).unwrap(),
        schedule: Schedule::default(),
        held: Vec::new(),
    };
    let refused = |hosts: Vec<HostState>| {
        let reason = RefusalReason::HeldByAnother { host: HostId::new("h0").unwrap(), resource: cpu() };
        SiteAnswer::Refused(Refusal { reason, version: LedgerVersion::default(), hosts })
    };
    let shown = refused((0..1_000).map(host).collect());
    let ask = || discovery.ask(&site, inquiry(&b), Millis(10_000));
    let (first, _) = tokio::join!(ask(), answer_next(&mut a, shown.clone()));
    assert_eq!(first, Ok(shown.clone()));
    let (second, _) = tokio::join!(ask(), answer_next(&mut a, shown.clone()));
    assert_eq!(second, Ok(refused(Vec::new())));
    let twice = async {
        for _ in 0..2 {
            answer_next(&mut a, shown.clone()).await;
        }
    };
    let (third, fourth, ()) = tokio::join!(ask(), ask(), twice);
    assert_eq!((third, fourth), (Ok(refused(Vec::new())), Ok(refused(Vec::new()))), "also in one message");
}

/// One peer asks more at once than one may have open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_asks_too_much_at_once_keeps_nobody_waiting() {
    const ASKED: usize = 150;
    const OPEN_MAX: usize = 64;
    let mut a = node(&[]).await;
    let known = a.discovery.listen_addresses();
    let greedy = |config: &mut DiscoveryConfig| {
        (config.limits.asks_per_peer_max, config.limits.streams_max) = (ASKED, 4 * ASKED);
    };
    let (greedy, honest) = (node_with(&known, greedy).await, node(&known).await);
    let site = a.discovery.site_id().clone();
    let connected =
        || [&greedy, &honest].iter().all(|node| node.discovery.status().connected.contains(a.discovery.site_id()));
    eventually("connected", connected).await;
    let ask = |from: &Node| {
        let (discovery, site) = (from.discovery.clone(), site.clone());
        // Of a kind that has a message for itself.
        tokio::spawn(async move { discovery.ask(&site, SiteRequest::Bookings { after: None }, Millis(20_000)).await })
    };
    let waits = |of: &Node| a.discovery.core().inbound().count_of(of.discovery.site_id());
    let asked: Vec<_> = (0..ASKED).map(|_| ask(&greedy)).collect();
    let answered = || asked.iter().filter(|ask| ask.is_finished()).count();
    eventually("the rest is refused", || answered() == ASKED - OPEN_MAX).await;
    assert_eq!(waits(&greedy), OPEN_MAX);
    let theirs = ask(&honest);
    eventually("the other asks", || waits(&honest) == 1).await;
    let first: Vec<_> = std::iter::from_fn(|| a.inbound.try_next()).take(2).collect();
    let turns: Vec<&SiteId> = first.iter().map(|request| &request.from).collect();
    assert_eq!(turns, [greedy.discovery.site_id(), honest.discovery.site_id()]);
    first.into_iter().for_each(|request| request.reply.answer(SiteAnswer::Settled));
    assert_eq!(theirs.await.unwrap(), Ok(SiteAnswer::Settled));
    while let Some(InboundRequest { reply, .. }) = a.inbound.try_next() {
        reply.answer(SiteAnswer::Settled);
    }
    let answers = futures::future::join_all(asked).await;
    let settled = answers.iter().filter(|answer| matches!(answer, Ok(Ok(SiteAnswer::Settled)))).count();
    assert_eq!(settled, OPEN_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_requests_than_streams_wait_for_their_turn() {
    let mut a = node(&[]).await;
    let b = node_with(&a.discovery.listen_addresses(), |config| config.limits.asks_per_peer_max = 3).await;
    let site = a.discovery.site_id().clone();
    eventually("connected", || !b.discovery.status().connected.is_empty()).await;
    let asks: Vec<_> = (0..50)
        .map(|_| {
            let (discovery, site, request) = (b.discovery.clone(), site.clone(), inquiry(&b));
            tokio::spawn(async move { discovery.ask(&site, request, Millis(10_000)).await })
        })
        .collect();
    for _ in 0..50 {
        answer_next(&mut a, SiteAnswer::Settled).await;
    }
    for ask in asks {
        assert_eq!(ask.await.unwrap(), Ok(SiteAnswer::Settled));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_reached_or_is_silent_is_told_apart() {
    let a = node(&[]).await;
    let b = node(&a.discovery.listen_addresses()).await;
    let nobody = Identity::generate().unwrap().site_id().clone();
    assert_eq!(b.discovery.ask(&nobody, inquiry(&b), Millis(5000)).await, Err(AskError::Unreachable));
    let label = SiteId::new("s1").unwrap();
    assert_eq!(b.discovery.ask(&label, inquiry(&b), Millis(5000)).await, Err(AskError::NotASite(label)));
    eventually("connected", || !b.discovery.status().connected.is_empty()).await;
    let silent = b.discovery.ask(a.discovery.site_id(), inquiry(&b), Millis(100)).await;
    assert_eq!(silent, Err(AskError::TimedOut));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_address_is_named() {
    let tcp = |config: &mut DiscoveryConfig, address: Multiaddr| {
        config.transport = TransportKind::TcpAndQuic;
        config.listen = vec![address];
    };
    let first = node_with(&[], |config| tcp(config, "/ip4/127.0.0.1/tcp/0".parse().unwrap())).await;
    let mut taken = first.discovery.listen_addresses().remove(0);
    taken.pop();
    let identity = Identity::generate().unwrap();
    let (mut second, _) = config(&identity);
    tcp(&mut second, taken.clone());
    let error = start(identity, second).await.err().unwrap();
    assert!(matches!(&error, StartError::AddressInUse { address } if *address == taken), "{error}");
    assert!(error.to_string().contains("is in use"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_talk_over_tcp_and_over_quic() {
    for address in ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"] {
        let adjust = |config: &mut DiscoveryConfig| {
            config.transport = TransportKind::TcpAndQuic;
            config.listen = vec![address.parse().unwrap()];
        };
        let mut a = node_with(&[], adjust).await;
        let b = node_with(&a.discovery.listen_addresses(), adjust).await;
        eventually("connected", || !b.discovery.status().connected.is_empty()).await;
        let site = a.discovery.site_id().clone();
        let (asked, _) =
            tokio::join!(b.discovery.ask(&site, inquiry(&b), Millis(5000)), answer_next(&mut a, SiteAnswer::Settled));
        assert_eq!(asked, Ok(SiteAnswer::Settled), "{address}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_answers_counts_for_the_network_that_it_answers_from() {
    let at = |address: &'static str| {
        move |config: &mut DiscoveryConfig| {
            config.transport = TransportKind::TcpAndQuic;
            config.listen = vec![address.parse().unwrap()];
        }
    };
    let a = node_with(&[], at("/ip4/127.66.1.1/tcp/0")).await;
    a.discovery.publish_advert(offer("a".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
    let b = node_with(&a.discovery.listen_addresses(), at("/ip4/127.0.0.1/tcp/0")).await;
    let site = a.discovery.site_id();
    eventually("b has a's schedules", || b.discovery.view().version(site).is_some()).await;
    assert_eq!(b.discovery.view().network(site).map(String::from).as_deref(), Some("127.66.1.0/24"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_told_what_is_announced_in_the_place_of_what_is_listened_on() {
    let (listened, announced) = ("/memory/987650001", "/memory/987650002");
    let a = node_with(&[], |config| {
        config.listen = vec![listened.parse().unwrap()];
        config.announce = vec![announced.parse().unwrap()];
    })
    .await;
    let told: Vec<String> = a.discovery.listen_addresses().iter().map(ToString::to_string).collect();
    assert_eq!(told, [format!("{announced}/p2p/{}", a.discovery.site_id())]);
    let b = node(&[listened.parse().unwrap()]).await;
    eventually("b has met a", || !b.discovery.status().addresses_worth_remembering.is_empty()).await;
    let met = b.discovery.status().addresses_worth_remembering;
    assert!(met.iter().all(|address| address.to_string().starts_with(announced)), "{met:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_say_whether_they_can_reach_this_node() {
    let a = node(&[]).await;
    let known = a.discovery.listen_addresses();
    let b = node(&known).await;
    // Nobody listens where this one says it does; and this one says that it is where a is.
    let wrong = node_with(&known, |config| config.announce = vec!["/memory/987650003".parse().unwrap()]).await;
    let stolen = node_with(&known, |config| {
        config.announce = vec![known[0].iter().take(1).collect()];
    })
    .await;
    for one in [&b, &wrong, &stolen] {
        one.discovery.publish_advert(offer("x".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
        let site = one.discovery.site_id();
        eventually("a knows where it is said to be", || !a.discovery.view().addresses(site).is_empty()).await;
        eventually("it is connected", || !one.discovery.status().connected.is_empty()).await;
    }
    // The others may or may not be connected with each other; a is with all.
    let tells = |node: &Node| {
        let (discovery, site) = (node.discovery.clone(), a.discovery.site_id().clone());
        async move { discovery.core().request(&site, WireRequest::DialBack, Millis(5000)).await.unwrap() }
    };
    assert!(matches!(tells(&b).await, WireAnswer::DialedBack(true)));
    assert!(matches!(tells(&wrong).await, WireAnswer::DialedBack(false)));
    assert!(matches!(tells(&stolen).await, WireAnswer::DialedBack(false)));
    assert!(matches!(tells(&b).await, WireAnswer::Busy), "not again so soon");
    let told = node(&known).await;
    told.discovery.publish_advert(offer("y".to_owned(), vec![host("h1", 4, "x86_64")])).unwrap();
    let site = told.discovery.site_id();
    eventually("all know it", || [&a, &b].iter().all(|one| one.discovery.view().knows(site))).await;
    let reach = told.discovery.ask_reachability().await;
    assert!(reach.asked > 0 && reach.reached == reach.asked, "{reach:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_dials_into_a_network_of_others_at_anothers_word() {
    let tcp = |announce: &'static [&'static str], ranges: &'static [&'static str]| {
        move |config: &mut DiscoveryConfig| {
            config.transport = TransportKind::TcpAndQuic;
            config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
            config.announce = announce.iter().map(|address| address.parse().unwrap()).collect();
            config.dial_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        }
    };
    let careful = node_with(&[], tcp(&[], &[])).await;
    let bootstrap = careful.discovery.listen_addresses();
    let willing = node_with(&bootstrap, tcp(&[], &["192.168.0.0/16"])).await;
    let [inside, private] = ["/ip4/127.0.0.1/tcp/9", "/ip4/192.168.77.7/tcp/80"];
    let liar = node_with(&bootstrap, tcp(&["/ip4/127.0.0.1/tcp/9", "/ip4/192.168.77.7/tcp/80"], &[])).await;
    liar.discovery.publish_advert(offer("x".to_owned(), vec![host("x", 4, "x86_64")])).unwrap();
    let site = liar.discovery.site_id().clone();
    let dialled = |node: &Node| -> Vec<String> {
        let addresses = node.discovery.core().shared().addresses_of(&site);
        addresses.iter().map(|address| address.to_string().split("/p2p/").next().unwrap().to_owned()).collect()
    };
    eventually("both have its advert", || [&careful, &willing].iter().all(|node| node.discovery.view().knows(&site)))
        .await;
    assert_eq!(dialled(&careful), [inside], "it listens inside this machine itself");
    assert_eq!(dialled(&willing), [inside, private]);
    let remembered = careful.discovery.addresses_worth_remembering();
    assert!(!remembered.iter().any(|address| address.to_string().contains("192.168")), "{remembered:?}");
}
