//! Finding hosts, above all those of sites that were never heard of.

use broker::{
    features::Images,
    needs::{ImageName, Lack, Need},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::*;
use crate::Constraint;

fn without_gossip(config: &mut DiscoveryConfig) {
    config.gossip = false;
}

/// Waits until every node has put everything into the DHT.
async fn published(nodes: &[Node]) {
    // One advert, and index keys for: present, one attribute, one capacity, one host.
    eventually("all puts are done", || nodes.iter().all(|node| counter(node, Counter::DhtPuts) >= 5)).await;
}

fn ids(found: &crate::Found) -> BTreeSet<String> {
    found.hosts.iter().map(|found| found.host.id.to_string()).collect()
}

/// What a node finds, once it is so many: a record just put may be missing for a reader in the first moments.
async fn found_by(node: &Node, query: &Query, hosts: usize) -> BTreeSet<String> {
    let (deadline, mut seed) = (Instant::now() + DEADLINE, 0);
    loop {
        let found = ids(&node.discovery.find(query.clone(), seed).await);
        if found.len() == hosts || Instant::now() > deadline {
            return found;
        }
        seed += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_of_sites_never_heard_of_are_found() {
    let nodes = grid(12, without_gossip).await;
    published(&nodes).await;
    for node in &nodes {
        assert_eq!(node.discovery.view().site_count(), 1, "nothing was gossiped");
    }
    let all = found_by(&nodes[7], &query(12), 12).await;
    assert_eq!(all, (0..12).map(|number| format!("h{number}")).collect());

    let mut by_attribute = query(6);
    let attributes = BTreeMap::from([("arch".to_owned(), "aarch64".to_owned())]);
    by_attribute.demand = demand(RequestDocument { attributes, ..RequestDocument::default() });
    let found = nodes[4].discovery.find(by_attribute, 1).await;
    assert!(!found.hosts.is_empty(), "{found:?}");
    assert!(found.hosts.iter().all(|found| found.host.attributes["arch"] == "aarch64"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_candidates_are_found_by_their_names() {
    let nodes = grid(6, without_gossip).await;
    published(&nodes).await;
    let mut named = query(1);
    let qualified = HostId::new(&format!("{}/h2", nodes[2].discovery.site_id())).unwrap();
    let naming = |candidates| RequestDocument { candidates: Some(candidates), ..RequestDocument::default() };
    named.demand = demand(naming(["h3", "h4", "none"].map(|id| HostId::new(id).unwrap()).to_vec()));
    let found = found_by(&nodes[0], &named, 2).await;
    assert_eq!(found, BTreeSet::from(["h3".to_owned(), "h4".to_owned()]));
    named.demand = demand(naming(vec![qualified]));
    let found = nodes[2].discovery.find(named, 1).await;
    assert_eq!(ids(&found), BTreeSet::from(["h2".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_of_a_class_are_found_by_their_names() {
    let nodes = grid(6, without_gossip).await;
    let class = (1..=40).map(|number| host(&format!("n-{number}"), 4, "x86_64")).collect();
    nodes[2].discovery.publish_advert(offer("cluster".to_owned(), class)).unwrap();
    let candidates = ["n-7", "n-39", "n-41", "n-07"].map(|id| HostId::new(id).unwrap()).to_vec();
    let mut named = query(1);
    named.demand = demand(RequestDocument { candidates: Some(candidates), ..RequestDocument::default() });
    assert_eq!(found_by(&nodes[0], &named, 2).await, BTreeSet::from(["n-39".to_owned(), "n-7".to_owned()]));
    let own = nodes[2].discovery.find(named, 1).await;
    assert_eq!((ids(&own).len(), own.cut), (2, vec![(Constraint::Need(broker::demand::Unmet::Candidates), 38)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_is_known_with_a_schedule_is_found_and_what_was_cut_is_told() {
    let mut hosts: Vec<Host> = (0..20).map(|number| host(&format!("h-{number}"), 4, "x86_64")).collect();
    hosts.extend((20..25).map(|number| host(&format!("h-{number}"), 4, "aarch64")));
    hosts.extend((25..28).map(|number| host(&format!("h-{number}"), 1, "x86_64")));
    let node = node(&[]).await;
    node.discovery.publish_advert(offer("a".to_owned(), hosts)).unwrap();
    let mut query = query(5);
    let attributes = BTreeMap::from([("arch".to_owned(), "x86_64".to_owned())]);
    query.demand = demand(RequestDocument { per_host: amounts(2000), attributes, ..RequestDocument::default() });
    let (one, again, other) = (
        node.discovery.find(query.clone(), 1).await,
        node.discovery.find(query.clone(), 1).await,
        node.discovery.find(query.clone(), 2).await,
    );
    let in_order = |found: &crate::Found| found.hosts.iter().map(|found| found.host.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&one).len(), one.left_out), (20, 0), "their schedules cost no message");
    assert_eq!(in_order(&one), in_order(&again));
    assert_eq!(ids(&one), ids(&other));
    assert_eq!(one.known_hosts, 28);
    let cut: Vec<(String, usize)> =
        one.cut.iter().map(|(constraint, hosts)| (constraint.to_string(), *hosts)).collect();
    assert_eq!(cut, [("attribute arch=x86_64".to_owned(), 5), ("per_host cpu>=2".to_owned(), 3)]);

    query.exclude.sites.insert(node.discovery.site_id().clone());
    let found = node.discovery.find(query, 1).await;
    assert!(found.hosts.is_empty());
    assert_eq!(found.cut, [(Constraint::NotExcluded, 28)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sites_that_do_not_allow_what_commands_need_are_left_out_and_so_are_those_that_break_their_word() {
    let nodes = grid(4, |_| ()).await;
    published(&nodes).await;
    let image = |name: &str| ImageName::try_from(name.to_owned()).unwrap();
    let offers: [(&[Need], &[&str]); 4] =
        [(&[], &[]), (&[Need::Run], &[]), (&[Need::Run, Need::Network], &[]), (&[Need::Run], &["a:1"])];
    for (number, (node, (allows, images))) in nodes.iter().zip(offers).enumerate() {
        let plain = offer(format!("site-{number}"), vec![host(&format!("h{number}"), 4, "x86_64")]);
        let images = Images::of(images.iter().map(|name| image(name)).collect());
        node.discovery.publish_advert(Offer { allows: allows.iter().copied().collect(), images, ..plain }).unwrap();
    }
    let asking = |needs: &[Need], image: Option<&str>| {
        let image = image.map(|name| ImageName::try_from(name.to_owned()).unwrap());
        let needs = needs.iter().copied().collect();
        Query { demand: demand(RequestDocument { needs, image, ..RequestDocument::default() }), ..query(4) }
    };
    assert_eq!(found_by(&nodes[0], &asking(&[Need::Run], Some("a:1")), 1).await, BTreeSet::from(["h3".to_owned()]));
    assert_eq!(found_by(&nodes[0], &asking(&[Need::Run], None), 2).await, ["h1", "h2"].map(str::to_owned).into());
    let networked = asking(&[Need::Run, Need::Network], None);
    assert_eq!(found_by(&nodes[0], &networked, 1).await, BTreeSet::from(["h2".to_owned()]));
    let [run, network] = [Need::Run, Need::Network].map(Lack::Need);
    let cut = nodes[0].discovery.find(networked.clone(), 1).await.cut;
    assert_eq!(cut, [(Constraint::Allows(run.clone()), 1), (Constraint::Allows(network.clone()), 2)]);
    let other = nodes[0].discovery.find(asking(&[Need::Run], Some("b")), 1).await;
    assert_eq!(other.cut, [(Constraint::Allows(run.clone()), 1), (Constraint::Allows(Lack::Image(image("b"))), 3)]);
    assert_eq!(nodes[0].discovery.find(query(4), 1).await.hosts.len(), 4, "who needs nothing is served by all");
    assert_eq!(nodes[0].discovery.view().image_names(1), [image("a:1")].into());
    assert!(nodes[0].discovery.view().image_names(0).is_empty());

    let (honest, liar) = (nodes[0].discovery.site_id(), nodes[2].discovery.site_id());
    nodes[0].discovery.note_refusal(honest, run);
    nodes[0].discovery.note_refusal(liar, network.clone());
    assert_eq!(counter(&nodes[0], Counter::ClaimsRefused), 1, "the other one claims nothing");
    let found = nodes[0].discovery.find(networked, 1).await;
    assert!(found.hosts.is_empty() && found.cut.contains(&(Constraint::KeepsWord(network), 1)), "{found:?}");
    let found = nodes[0].discovery.find(asking(&[Need::Run], None), 1).await;
    assert_eq!(ids(&found), ["h1", "h2"].map(str::to_owned).into(), "it may still run what needs no network");
}

/// Waits until schedules that were confirmed before are older than nothing: their age is in whole milliseconds.
async fn a_later_millisecond() {
    let began = Instant::now();
    eventually("the clock goes on", || began.elapsed() >= Duration::from_millis(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_schedules_that_are_not_current_a_sample_is_asked_for() {
    let nodes = grid(8, |config| config.intervals.recheck = Duration::from_secs(3600)).await;
    eventually("all know all", || {
        let knows = |at: &Node, of: &Node| at.discovery.view().version(of.discovery.site_id()).is_some();
        nodes.iter().all(|at| nodes.iter().all(|of| knows(at, of)))
    })
    .await;
    let node = &nodes[0].discovery;
    // Its own may have been confirmed in this very millisecond.
    a_later_millisecond().await;
    let old = Query { ask_after: Millis(0), ..query(2) };
    let found = node.find(old.clone(), 1).await;
    assert_eq!((found.hosts.len(), found.left_out, found.without_schedule), (8, 0, 0), "old ones are known as well");
    a_later_millisecond().await;
    let unusable = Query { max_schedule_age: Millis(0), ..old };
    let [one, again, other] = [1, 1, 2].map(|seed| (seed, unusable.clone()));
    let mut samples = Vec::new();
    for (seed, query) in [one, again, other] {
        let found = node.find(query, seed).await;
        assert_eq!((found.hosts.len(), found.left_out, found.without_schedule), (2, 6, 0), "{found:?}");
        samples.push(ids(&found));
        a_later_millisecond().await;
    }
    assert_eq!(samples[0], samples[1], "the same seed asks the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_site_is_left_out_and_counted() {
    let mut nodes = grid(3, |config| config.intervals.recheck = Duration::from_secs(3600)).await;
    eventually("all know all", || nodes.iter().all(|node| node.discovery.view().host_count() == 3)).await;
    // Stopped without a farewell: its advert is still believed.
    let gone = nodes.remove(2);
    let site = gone.discovery.site_id().clone();
    drop(gone);
    eventually("it is gone", || !nodes[0].discovery.status().connected.contains(&site)).await;
    let mut query = query(3);
    query.ask_after = Millis(0);
    query.timeout = Millis(1_000);
    let found = nodes[0].discovery.find(query, 1).await;
    assert_eq!((found.hosts.len(), found.without_schedule), (2, 1), "{found:?}");
}

/// Phase I of the node against what a request means, written out: also with totals only, and with named candidates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_are_found_that_could_serve_and_no_others() {
    let mut random = StdRng::seed_from_u64(7);
    let names = ["cpu", "gpu"].map(|name| ResourceName::new(name).unwrap());
    let node = node(&[]).await;
    let site = node.discovery.site_id().clone();
    let mut hosts: Vec<Host> = (0..30).map(|number| host(&format!("h{number}"), 1, "x86_64")).collect();
    for host in &mut hosts {
        host.capacity = names.iter().map(|name| (name.clone(), Amount(random.random_range(0..4)))).collect();
    }
    node.discovery.publish_advert(offer("a".to_owned(), hosts.clone())).unwrap();
    let mut with_totals_only = 0;
    for seed in 0..200 {
        let mut some = |most: u64| -> Amounts {
            let named = names.iter().filter(|_| random.random_bool(0.5)).cloned().collect::<Vec<_>>();
            named.into_iter().map(|name| (name, Amount(random.random_range(0..most)))).collect()
        };
        let (per_host, total) = (some(3), some(8));
        let n = random.random_range(1..4_u32);
        let candidates = random.random_bool(0.3).then(|| {
            let name = |number: usize| {
                if number.is_multiple_of(2) { format!("h{number}") } else { format!("{site}/h{number}") }
            };
            (0..12).map(|number| HostId::new(&name(number)).unwrap()).collect::<Vec<HostId>>()
        });
        let fits = |(number, host): &(usize, &Host)| {
            let least = |name: &ResourceName| match (per_host.get(name), total.get(name)) {
                (Some(least), _) => least.0,
                (None, Some(total)) if total.0 >= u64::from(n) => 1,
                _ => 0,
            };
            names.iter().all(|name| host.capacity[name].0 >= least(name)) && (candidates.is_none() || *number < 12)
        };
        let expected: BTreeSet<String> =
            hosts.iter().enumerate().filter(fits).map(|(_, host)| host.id.to_string()).collect();
        with_totals_only += usize::from(per_host.is_empty() && expected.len() < hosts.len());
        let document = RequestDocument {
            hosts: n,
            per_host: per_host.clone(),
            total: total.clone(),
            candidates: candidates.clone(),
            ..RequestDocument::default()
        };
        let query = Query { demand: demand(document), enough: 0, ..query(100) };
        assert_eq!(
            ids(&node.discovery.find(query, seed).await),
            expected,
            "{n} hosts, {per_host:?} each, {total:?} in all"
        );
    }
    assert!(with_totals_only > 10, "{with_totals_only}");
}
