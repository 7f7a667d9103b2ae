//! What one hostile message costs an honest node, in CPU. A measurement, not a test: it takes a while and only prints.
//!
//! `cargo test --release -p discovery cost -- --ignored --nocapture`

use libp2p::{PeerId, gossipsub, request_response::Codec as _};

use super::{
    hostile::{advert, conduct, gossip, message, sealed},
    *,
};
use crate::{behaviour::adverts_topic, codec::Codec, swarm_task::Gossip};

const MESSAGES: usize = 20_000;

/// Nanoseconds a message, over all `messages`.
fn time<T>(what: &str, messages: &[T], mut hear: impl FnMut(&T)) {
    let start = Instant::now();
    messages.iter().for_each(&mut hear);
    let nanos = start.elapsed().as_nanos() / messages.len() as u128;
    println!("{what:48} {nanos:>8} ns");
}

#[test]
#[ignore = "a measurement; run by hand: cargo test --release -p discovery cost -- --ignored --nocapture"]
fn nanoseconds_a_hostile_message() {
    let now = gossip().1.clock.utc_ms();
    let author = Identity::generate().unwrap();
    let envelope = |sequence: usize, grid: &str| sealed(&author, grid, now, advert(&author, sequence as u64));
    let many = |make: &dyn Fn(usize) -> Vec<u8>| -> Vec<gossipsub::Message> {
        let topic = adverts_topic(&GridId::new("test").unwrap());
        (1..=MESSAGES).map(|number| message(make(number), &topic)).collect()
    };
    let measure = |what: &str, messages: &[gossipsub::Message]| {
        let (mut gossip, shared) = gossip();
        let conduct = conduct(&shared);
        let hear = |gossip: &mut Gossip, message: &gossipsub::Message| {
            // Another neighbour each time: none is refused for having brought too much.
            std::hint::black_box(gossip.hear(PeerId::random(), message, &conduct));
        };
        time(what, messages, |message| hear(&mut gossip, message));
    };
    measure("gossip: garbage of 200 bytes", &many(&|number| [number.to_be_bytes(); 25].concat()));
    measure("gossip: of another grid", &many(&|number| envelope(number, "other")));
    measure("gossip: an author above its share (in the end)", &many(&|number| envelope(number, "test")));
    measure(
        "gossip: stale",
        &vec![message(envelope(1, "test"), &adverts_topic(&GridId::new("test").unwrap())); MESSAGES],
    );
    measure(
        "gossip: broken signature",
        &many(&|number| {
            let mut envelope = envelope(number, "test");
            let last = envelope.len() - 1;
            envelope[last] ^= 1;
            envelope
        }),
    );
    let strangers: Vec<Identity> = (0..2000).map(|_| Identity::generate().unwrap()).collect();
    let fresh = many(&|number| {
        let stranger = &strangers[number % strangers.len()];
        sealed(stranger, "test", now, advert(stranger, number as u64))
    });
    measure("gossip: made-up sites (above the limit)", &fresh);
    time("nothing but a random neighbour's name", &fresh, |_| {
        std::hint::black_box(PeerId::random());
    });

    let protocol = libp2p::StreamProtocol::new("/test");
    let mut codec = Codec::new(Arc::default(), Duration::from_secs(5));
    let garbage: Vec<Vec<u8>> = (0..MESSAGES).map(|number| [number.to_be_bytes(); 12].concat()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    time("direct request: garbage, without its stream", &garbage, |bytes| {
        let mut stream = futures::io::Cursor::new(bytes);
        runtime.block_on(codec.read_request(&protocol, &mut stream)).unwrap();
    });
}
