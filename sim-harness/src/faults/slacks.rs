//! Requests of some seeds whose users may wait: their reservations may begin later for own jobs of their sites.
//!
//! Invariant: drawn from generators of their own, by the number of the request, so that other seeds run as they would.

use broker::{
    request::{Request, RequestDocument},
    time::{Span, Time},
};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How much later requests may begin.
const SLACKS: [Span; 4] = [Span(20), Span(120), Span(600), Span(3_600)];
/// Of 100 requests, so many have some.
const PERCENT: u64 = 80;

/// How long after their earliest start some of them begin, or would end if that was their start, at the latest: it may cut the wait.
const ROOMS: [Span; 4] = [Span(0), Span(15), Span(90), Span(400)];
/// No host takes longer for work than so many times its length.
const SLOWEST: i64 = 2;

/// What sets the generators of requests apart from that of the seed.
const REQUESTS: u64 = 0x51ac_6000_0000;

/// The slacks of a seed.
#[derive(Debug, Clone)]
pub struct Slacks {
    seed: u64,
}

impl Slacks {
    /// Those of a seed.
    pub fn of(seed: u64) -> Slacks {
        Slacks { seed }
    }

    /// The request with this number, of a user who may wait for some of them. All is at one site for most of these.
    pub fn vary(&self, number: u64, request: Request) -> Request {
        let mut random = Xoshiro256PlusPlus::seed_from_u64((self.seed ^ REQUESTS).wrapping_add(number));
        if random.random_range(0..100) >= PERCENT {
            return request;
        }
        let mut asked = RequestDocument::from(request.clone());
        asked.slack = SLACKS.choose(&mut random).copied().unwrap_or_default();
        if random.random_bool(0.75) {
            asked.sites_max = Some(1);
        }
        let mut room = |share| ROOMS.choose(&mut random).copied().filter(|_| random.random_bool(share));
        if let (Some(earliest), Some(room)) = (asked.earliest, room(0.4)) {
            asked.latest = asked.latest.map(|latest| latest.min(earliest + room));
        }
        let length = asked.duration.or(asked.work.map(|work| SLOWEST * work));
        if let (Some(earliest), Some(length), None, Some(room)) = (asked.earliest, length, asked.deadline, room(0.4)) {
            asked.deadline = Some(Time(earliest.0 + length) + room);
        }
        Request::try_from(asked).unwrap_or(request)
    }
}
