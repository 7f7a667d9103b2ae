use broker::{amount::*, host::*, ids::*, protocol::*, resources::*, schedule::*, time::*};
use discovery::*;
use std::{collections::*, sync::*, time::*};
struct L(SiteId, Mutex<u64>);
impl ScheduleSource for L {
    fn snapshot(&self) -> ScheduleSnapshot {
        ScheduleSnapshot {
            site: self.0.clone(),
            version: LedgerVersion { incarnation: 1, change: *self.1.lock().unwrap() },
            hosts: (0..15).map(|i| (HostId::new(&format!("h{i}")).unwrap(), Schedule::default())).collect(),
        }
    }
    fn version(&self) -> LedgerVersion {
        LedgerVersion { incarnation: 1, change: *self.1.lock().unwrap() }
    }
}
fn cpu_ms() -> u64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<u64>().unwrap() + f[12].parse::<u64>().unwrap()) * 10
}
fn pct(mut v: Vec<u128>) -> String {
    v.sort();
    format!("p50 {} p99 {} max {}", v[v.len() / 2], v[v.len() * 99 / 100], v[v.len() - 1])
}
#[tokio::main]
async fn main() {
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let kept: usize = std::env::args().nth(2).map_or(32, |k| k.parse().unwrap());
    let t0 = Instant::now();
    let mut nodes: Vec<(Discovery, Arc<L>)> = vec![];
    for i in 0..n {
        let id = Identity::generate().unwrap();
        let led = Arc::new(L(id.site_id().clone(), Mutex::new(0)));
        let mut c = DiscoveryConfig::new(GridId::new("m").unwrap(), led.clone());
        c.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        c.limits.connections_kept = kept;
        c.intervals.gossip = Duration::from_millis(200);
        if let Some((d, ..)) = nodes.first() {
            let d: &Discovery = d;
            c.bootstrap = d.listen_addresses();
        }
        let (d, mut inb) = start(id, c).await.unwrap();
        tokio::spawn(async move {
            while let Some(r) = inb.next().await {
                r.reply.answer(SiteAnswer::Settled);
            }
        });
        let hosts = (0..15)
            .map(|h| Host {
                id: HostId::new(&format!("h{h}")).unwrap(),
                capacity: [("cpu", 4000 + i as u64 * 100), ("mhz", 2400), ("memory", 4096)]
                    .into_iter()
                    .map(|(k, v)| (ResourceName::new(k).unwrap(), Amount(v)))
                    .collect(),
                attributes: BTreeMap::from([("arch".into(), "x86_64".into())]),
                speed: 1000,
                price: 0,
            })
            .collect();
        d.publish_advert(format!("s{i}"), hosts).unwrap();
        nodes.push((d, led));
    }
    println!("started {:?}", t0.elapsed());
    loop {
        let all = nodes.iter().filter(|(d, _)| d.view().site_count() == n).count();
        let cur = nodes
            .iter()
            .filter(|(d, _)| {
                d.view().site_count() == n && d.view().sites(d.now()).iter().all(|s| s.version.is_some() && !s.has_gap)
            })
            .count();
        if cur == n {
            println!("formed {:?} cpu {} ms", t0.elapsed(), cpu_ms());
            break;
        }
        if t0.elapsed().as_millis() % 2000 < 60 {
            println!("{:?} sites {all} current {cur}", t0.elapsed());
        }
        if t0.elapsed() > Duration::from_secs(60) || std::env::args().nth(3).is_some() && t0.elapsed() > Duration::from_secs(40) {
            println!("NOT formed");
            println!("{:#?}", nodes[n / 2].0.status().counters);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    println!("conns: {:?}", pct(nodes.iter().map(|(d, _)| d.status().connected.len() as u128).collect()));
    let (c0, i0) = (cpu_ms(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!("idle cpu {:.1} %", (cpu_ms() - c0) as f64 / i0.elapsed().as_millis() as f64 * 100.0);
    let (mut conn, mut fresh, mut finds) = (vec![], vec![], vec![]);
    for i in 0..200usize {
        let (d, _) = &nodes[i % n];
        let to = nodes[(i * 7 + 1) % n].0.site_id().clone();
        if to == *d.site_id() {
            continue;
        }
        let was = d.status().connected.contains(&to);
        let req = SiteRequest::Inquire(AttemptId {
            entry_point: d.site_id().clone(),
            request: RequestId::new("r").unwrap(),
            attempt: 1,
        });
        let t = Instant::now();
        let r = d.ask(&to, req, Millis(5000)).await;
        if r.is_err() {
            println!("ask {r:?}");
        }
        if was {
            conn.push(t.elapsed().as_micros())
        } else {
            fresh.push(t.elapsed().as_micros())
        }
        let q = Query {
            count: 40,
            enough: 5,
            per_host: [(ResourceName::new("cpu").unwrap(), Amount(1000))].into(),
            attributes: BTreeMap::new(),
            candidates: None,
            max_schedule_age: Millis(120_000),
            timeout: Millis(2000),
            exclude: BTreeSet::new(),
        };
        let t = Instant::now();
        let f = d.find(q, i as u64).await;
        finds.push(t.elapsed().as_micros());
        if f.hosts.len() != 40.min(n * 15) {
            println!("found {} without {}", f.hosts.len(), f.without_schedule);
        }
    }
    if !conn.is_empty() {
        println!("ask connected us {}", pct(conn));
    }
    if !fresh.is_empty() {
        println!("ask fresh us {}", pct(fresh));
    }
    println!("find us {}", pct(finds));
    // gossip delay
    let mut delays = vec![];
    for i in 0..10 {
        let (d, led) = &nodes[i * 3 % n];
        let from = {
            let mut v = led.1.lock().unwrap();
            *v += 1;
            LedgerVersion { incarnation: 1, change: *v - 1 }
        };
        let t = Instant::now();
        d.publish_changes(ScheduleUpdate {
            site: d.site_id().clone(),
            from,
            changes: vec![ScheduleChange {
                host: HostId::new("h1").unwrap(),
                window: Window { start: Time(4_000_000_000), end: Time(4_000_000_060) },
                amounts: [(ResourceName::new("cpu").unwrap(), Amount(1))].into(),
                kind: ChangeKind::Added,
            }],
        });
        loop {
            if nodes.iter().all(|(o, _)| o.view().version(d.site_id()).unwrap().change > from.change) {
                break;
            }
            if t.elapsed() > Duration::from_secs(10) {
                println!("gossip late");
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        delays.push(t.elapsed().as_millis());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    println!("gossip to all ms {}", pct(delays));
    let fetched: u64 = nodes.iter().map(|(d, _)| d.status().counters["schedules_fetched"]).sum();
    println!("fetched total {fetched}");
    println!("{:?}", nodes[n / 2].0.status().counters.iter().filter(|(_, v)| **v > 0).collect::<Vec<_>>());
}
