//! What an attacker says: messages that are wrong in one way each, and valid ones of sites that do not exist.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use broker::{
    amount::Amount,
    features::Features,
    host::Host,
    ids::{HostId, RequestId, SeatNumber, SiteId},
    plan::Place,
    protocol::{Advert, AttemptId, Grant, HoldRequest, SiteAnswer, SiteRequest},
    request::{Request, RequestDocument},
    resources::{Amounts, ResourceName},
    time::{Millis, Time, Window},
    trust::{Authorization, Labels, RequestStatement, SignedText},
};
use discovery::{
    GridId, Identity,
    wire::{self, Payload, Stamp, WireAnswer, WireRequest},
};
use ed25519_dalek::SigningKey;

/// Made-up things to say, numbered so that no two are the same.
pub struct Words {
    grid: GridId,
    foreign: GridId,
    pub own: Identity,
    number: u64,
}

const TIME_TO_LIVE: Millis = Millis(600_000);
/// How long a hold's window is.
const HOLD_SECONDS: i64 = 3600;
/// Adverts of made-up sites in one lying answer.
const LIES_AT_ONCE: usize = 64;

fn utc_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

impl Words {
    /// Words of `own` in `grid`; `None` when the name of another grid cannot be made of the grid's.
    pub fn new(grid: GridId, own: Identity) -> Option<Words> {
        let tail: String = grid.as_str().chars().take(60).collect();
        Some(Words { foreign: GridId::new(&format!("x-{tail}")).ok()?, grid, own, number: 0 })
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        utc_ms().wrapping_add(self.number)
    }

    /// Bytes without meaning, no two the same.
    pub fn garbage(&mut self, bytes: usize) -> Vec<u8> {
        let mut garbage: Vec<u8> = (0..bytes).map(|_| rand::random()).collect();
        let number = self.next().to_be_bytes();
        for (place, byte) in garbage.iter_mut().zip(number) {
            *place = byte;
        }
        garbage
    }

    /// Many bytes of little meaning, cheap to make.
    pub fn large(&mut self, bytes: usize) -> Vec<u8> {
        let mut large = vec![1; bytes];
        large.splice(..8.min(bytes), self.next().to_be_bytes());
        large
    }

    /// A valid advert of the attacker itself.
    pub fn own_advert(&mut self) -> Vec<u8> {
        let sequence = self.next();
        let own = self.own.clone();
        self.sealed(&own, own.site_id(), sequence, utc_ms(), false)
    }

    /// A valid advert of a site that nobody has heard of.
    pub fn fresh_advert(&mut self) -> Vec<u8> {
        let sequence = self.next();
        match Identity::generate() {
            Ok(fresh) => self.sealed(&fresh, fresh.site_id(), sequence, utc_ms(), false),
            Err(_) => self.own_advert(),
        }
    }

    /// An envelope with something wrong in it, in turn: signature, grid, time, author.
    pub fn forged(&mut self) -> Vec<u8> {
        let sequence = self.next();
        let own = self.own.clone();
        match self.number % 4 {
            0 => {
                let mut envelope = self.own_advert();
                if let Some(last) = envelope.last_mut() {
                    *last ^= 1;
                }
                envelope
            }
            1 => self.sealed(&own, own.site_id(), sequence, utc_ms(), true),
            2 => self.sealed(&own, own.site_id(), sequence, utc_ms().saturating_sub(2 * TIME_TO_LIVE.0), false),
            _ => {
                let other =
                    Identity::generate().map_or_else(|_| own.site_id().clone(), |other| other.site_id().clone());
                self.sealed(&own, &other, sequence, utc_ms(), false)
            }
        }
    }

    fn sealed(&self, by: &Identity, site: &SiteId, sequence: u64, sent_ms: u64, is_foreign: bool) -> Vec<u8> {
        let advert = Advert {
            site: site.clone(),
            name: "made up".to_owned(),
            sequence,
            time_to_live_s: u32::try_from(TIME_TO_LIVE.0 / 1000).unwrap_or(u32::MAX),
            contact: None,
            hosts: made_up_host().into_iter().collect(),
            uplink: None,
            quotes: false,
            addresses: vec!["/ip4/127.0.0.1/tcp/9".to_owned()],
            features: Features::own(),
            offer: Default::default(),
        };
        let grid = if is_foreign { &self.foreign } else { &self.grid };
        let stamp = Stamp { sequence, sent_ms, time_to_live: TIME_TO_LIVE };
        wire::seal(by, grid, stamp, Payload::Advert(advert)).unwrap_or_default()
    }

    /// A well-formed direct request, in turn: schedules, an advert, an inquiry.
    pub fn ask(&mut self) -> Vec<u8> {
        let number = self.next();
        let request = match number % 3 {
            0 => Some(WireRequest::Schedules(None)),
            1 => Some(WireRequest::Advert),
            _ => self.attempt(number).map(|attempt| WireRequest::Site(SiteRequest::Inquire(attempt))),
        };
        request.as_ref().map(wire::request_bytes).unwrap_or_default()
    }

    /// A question for all adverts, from whose answer [`hosts_in`] reads what there is to hold.
    pub fn ask_for_advert() -> Vec<u8> {
        wire::request_bytes(&WireRequest::Advert)
    }

    /// A hold on a little of each of `hosts`, signed by a user made up for it (an open grid takes it, a closed one looks at
    /// the signature before it refuses), to be forgotten.
    pub fn hold(&mut self, of: &SiteId, hosts: &[Host]) -> Vec<u8> {
        let hold = self.hold_request(of, hosts).map(|hold| WireRequest::Site(SiteRequest::Hold(hold)));
        hold.as_ref().map(wire::request_bytes).unwrap_or_default()
    }

    fn hold_request(&mut self, of: &SiteId, hosts: &[Host]) -> Option<HoldRequest> {
        let resource = hosts.first()?.capacity.keys().next()?.clone();
        let wanted: Vec<(&Host, Amounts)> =
            hosts.iter().map(|host| (host, [(resource.clone(), Amount(1))].into())).collect();
        let delay = HOLD_SECONDS * i64::try_from(1 + self.number % 100).ok()?;
        self.hold_of(of, &wanted, (delay, HOLD_SECONDS), Millis(60_000))
    }

    /// A hold on all of a host from `delay` seconds from now on, for so many seconds and by another user each time.
    pub fn whole(&mut self, of: &SiteId, host: &Host, when: (i64, i64), hold_for: Millis) -> Option<HoldRequest> {
        self.hold_of(of, &[(host, host.capacity.clone())], when, hold_for)
    }

    fn hold_of(
        &mut self,
        of: &SiteId,
        wanted: &[(&Host, Amounts)],
        (delay, duration): (i64, i64),
        hold_for: Millis,
    ) -> Option<HoldRequest> {
        let number = self.next();
        let attempt = self.attempt(number)?;
        let now = Time(i64::try_from(utc_ms() / 1000).ok()?);
        let window = Window { start: Time(now.0 + delay), end: Time(now.0 + delay + duration) };
        let document = RequestDocument {
            id: Some(attempt.request.clone()),
            hosts: u32::try_from(wanted.len()).ok()?,
            duration: Some(duration),
            per_host: wanted.first()?.1.clone(),
            ..RequestDocument::default()
        };
        let statement = RequestStatement {
            grid: self.grid.as_str().to_owned(),
            entry_point: self.own.site_id().clone(),
            id: attempt.request.clone(),
            request: Request::try_from(document).ok()?,
            term: RequestStatement::FIRST_TERM,
            issued: now,
            expires: window.end,
            labels: Labels::default(),
        };
        let request = SignedText::sign(&statement, &SigningKey::from_bytes(&rand::random())).ok()?;
        let grant = |(seat, (host, amounts)): (SeatNumber, &(&Host, Amounts))| {
            let place = Place::Host(host.id.clone());
            Grant { seat, place, window, amounts: amounts.clone(), agreed: Default::default() }
        };
        Some(HoldRequest {
            variant: Default::default(),
            attempt,
            grants: (0..).map(SeatNumber).zip(wanted).map(grant).collect(),
            participants: vec![of.clone()],
            hold_for,
            may_substitute: false,
            authorization: Arc::new(Authorization { request, user: None, entry_point: None }),
        })
    }

    fn attempt(&self, number: u64) -> Option<AttemptId> {
        let request = RequestId::new(&format!("x{number}")).ok()?;
        Some(AttemptId { entry_point: self.own.site_id().clone(), request, attempt: 1 })
    }

    /// An answer that nobody asked for in this form.
    pub fn lie(&mut self) -> Vec<u8> {
        if self.next().is_multiple_of(2) {
            return self.garbage(64);
        }
        let envelopes = (0..LIES_AT_ONCE).map(|_| self.fresh_advert()).collect();
        wire::answer_bytes(&WireAnswer::Adverts { envelopes, is_complete: false })
    }
}

/// A machine that is too good to be true, within all limits.
fn made_up_host() -> Option<Host> {
    let name = ResourceName::new("cpu").ok()?;
    let capacity: Amounts = [(name, Amount(1 << 40))].into();
    Some(Host {
        id: HostId::new("x").ok()?,
        capacity,
        attributes: BTreeMap::new(),
        speed: broker::host::Speed::REFERENCE,
        tariff: Default::default(),
    })
}

/// Whether a site has granted something, and the incarnation of its ledger, in its answer to a hold.
pub fn granted_in(answer: &[u8]) -> Option<(bool, u64)> {
    let WireAnswer::Site(answer) = wire::answer_in(answer)? else { return None };
    match answer {
        SiteAnswer::Held { version, .. } | SiteAnswer::Confirmed { version, .. } => Some((true, version.incarnation)),
        SiteAnswer::Refused(refusal) => Some((false, refusal.version.incarnation)),
        _ => None,
    }
}

/// The site and its hosts in an answer to [`Words::ask_for_advert`].
pub fn hosts_in(answer: &[u8], grid: &GridId) -> Option<(SiteId, Vec<Host>)> {
    let WireAnswer::Adverts { envelopes, .. } = wire::answer_in(answer)? else { return None };
    let terms = wire::Terms { grid, utc_ms: utc_ms(), skew_max: TIME_TO_LIVE };
    match wire::open(envelopes.first()?, terms).ok()?.payload {
        Payload::Advert(advert) => Some((advert.site, advert.hosts.iter().collect())),
        Payload::Update(_) => None,
    }
}
