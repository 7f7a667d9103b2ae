//! What a stream to a seat is opened for: to start a run, or to come back to one.
//!
//! Its user has signed it, so that nodes on the way can neither make nor change it; who shows it again within its life comes to the same
//! run, and starts nothing twice.

use broker::{
    document::{Misfit, read_object},
    ids::{RequestId, SeatNumber, SiteId},
    time::{Span, Time},
    trust::{PublicKey, SignedText, Statement, TrustError},
};
use discovery::{opening::OPENING_BYTES_MAX, wire};
use kolo_trust::{TrustFileError, UserKey};
use serde::{Deserialize, Serialize};

use super::{
    RunNumber, RunOrder,
    files::order::{FilesOrder, FilesOrderError},
    order::{NONCE_BYTES_MAX, OrderError},
};

/// How long an opening may be used after it was signed; more than clocks may be apart.
pub const OPENING_LIFE: Span = Span(180);
/// Most text that is read of somebody who may have nothing here; no [`AttachOrder`] has more.
pub const OF_STRANGER_BYTES_MAX: usize = 64 << 10;
/// How far the clocks of user and site may be apart.
const CLOCKS_APART_MAX: Span = Span(120);

/// Brings a user back to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachOrder {
    /// In this grid.
    pub grid: String,
    /// The site.
    pub site: SiteId,
    /// The reservation.
    pub request: RequestId,
    /// The seat.
    pub seat: SeatNumber,
    /// Which run of the seat; the last one when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNumber>,
    /// When it was signed, on the user's clock.
    pub issued: Time,
    /// From this second on it is worth nothing.
    pub expires: Time,
    /// Random, so that no two are the same.
    pub nonce: String,
}

impl Statement for AttachOrder {
    const KIND: &'static str = "attach";
    const TEXT_BYTES_MAX: usize = 4 * 1024;
}

/// What a stream is opened for; signed by the user of the reservation where it is a user's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// A [`RunOrder`]: starts the run, or comes back to it when it was started.
    Start(SignedText),
    /// An [`AttachOrder`].
    Attach(SignedText),
    /// A [`FilesOrder`].
    Files(SignedText),
    /// What a node wants for a seat of its own: no user opens it.
    Peer(PeerOpening),
}

/// A connection from one seat of a run to another one. The site that asks is proven by its connection, and the site that is asked has both
/// seats in the order that the user has signed for its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerOpening {
    /// The user of the run.
    pub user: PublicKey,
    /// The reservation.
    pub request: RequestId,
    /// Which run.
    pub run: RunNumber,
    /// The seat of the site that asks.
    pub from: SeatNumber,
    /// The seat that is to be reached.
    pub to: SeatNumber,
    /// The port there.
    pub port: u16,
}

/// What a user hands to the entry point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromUser {
    /// To be passed on as it stands.
    Signed(Opening),
    /// The user has no key, and the node signs for its operator: a [`RunOrder`], as JSON.
    PlainStart(String),
    /// The same of an [`AttachOrder`].
    PlainAttach(String),
    /// The same of a [`FilesOrder`].
    PlainFiles(String),
}

impl FromUser {
    /// What the node is to sign.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn plain(wish: &Wish) -> Result<FromUser, serde_json::Error> {
        Ok(match wish {
            Wish::Start(order) => FromUser::PlainStart(serde_json::to_string(order)?),
            Wish::Attach(order) => FromUser::PlainAttach(serde_json::to_string(order)?),
            Wish::Files(order) => FromUser::PlainFiles(serde_json::to_string(order)?),
        })
    }
}

/// What is to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// To start a run.
    Start(Box<RunOrder>),
    /// To come back to one.
    Attach(AttachOrder),
    /// To bring files, or take them.
    Files(FilesOrder),
}

impl Wish {
    /// Reads what a user hands over to be signed.
    ///
    /// # Errors
    /// [`OpeningError::Plain`].
    pub fn start(json: &str) -> Result<Wish, OpeningError> {
        Ok(Wish::Start(Box::new(read_object(json.as_bytes())?)))
    }

    /// The same of an [`AttachOrder`].
    ///
    /// # Errors
    /// [`OpeningError::Plain`].
    pub fn attach(json: &str) -> Result<Wish, OpeningError> {
        Ok(Wish::Attach(read_object(json.as_bytes())?))
    }

    /// The same of a [`FilesOrder`].
    ///
    /// # Errors
    /// [`OpeningError::Plain`].
    pub fn files(json: &str) -> Result<Wish, OpeningError> {
        Ok(Wish::Files(read_object(json.as_bytes())?))
    }

    /// To come back to what this one has started.
    #[must_use]
    pub fn again(&self) -> Wish {
        match self {
            Wish::Attach(_) | Wish::Files(_) => self.clone(),
            Wish::Start(order) => Wish::Attach(AttachOrder {
                grid: order.grid.clone(),
                site: order.site.clone(),
                request: order.request.clone(),
                seat: order.seat,
                run: Some(order.run),
                issued: order.issued,
                expires: order.expires,
                nonce: order.nonce.clone(),
            }),
        }
    }

    /// The site that it is for.
    pub fn site(&self) -> &SiteId {
        match self {
            Wish::Start(order) => &order.site,
            Wish::Attach(order) => &order.site,
            Wish::Files(order) => &order.site,
        }
    }

    /// The reservation.
    pub fn request(&self) -> &RequestId {
        match self {
            Wish::Start(order) => &order.request,
            Wish::Attach(order) => &order.request,
            Wish::Files(order) => &order.request,
        }
    }

    /// The same, valid from now on.
    #[must_use]
    pub fn issued(mut self, now: Time) -> Wish {
        let (issued, expires) = match &mut self {
            Wish::Start(order) => (&mut order.issued, &mut order.expires),
            Wish::Attach(order) => (&mut order.issued, &mut order.expires),
            Wish::Files(order) => (&mut order.issued, &mut order.expires),
        };
        (*issued, *expires) = (now, now + OPENING_LIFE);
        self
    }

    /// Signs it.
    ///
    /// # Errors
    /// [`TrustFileError::Trust`] when no site would accept it, [`TrustFileError::Agent`] when an agent does not sign it.
    pub fn sign(&self, key: &UserKey) -> Result<Opening, TrustFileError> {
        Ok(match self {
            Wish::Start(order) => Opening::Start(key.sign(&**order)?),
            Wish::Attach(order) => Opening::Attach(key.sign(order)?),
            Wish::Files(order) => Opening::Files(key.sign(order)?),
        })
    }
}

/// Why an opening is not looked at further.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// It is no opening.
    #[error("what was sent cannot be read: {0}")]
    Malformed(#[from] wire::DecodeError),
    /// What is to be signed is no order.
    #[error("the order: {0}")]
    Plain(#[from] Misfit),
    /// It is not signed as it should be.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// No site could run it.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// No site could do this with files.
    #[error(transparent)]
    Files(#[from] FilesOrderError),
    /// It is not a user's to open.
    #[error("only the node of a seat opens this")]
    OfNode,
    /// It is for another site or grid.
    #[error("it is for site {site} of grid {grid}")]
    Elsewhere {
        /// The site that it is for.
        site: SiteId,
        /// Its grid.
        grid: String,
    },
    /// It is too old, or from the future.
    #[error(
        "it was signed at {issued} s and holds until {expires} s, and the clock here says {now} s; check the clocks"
    )]
    Time {
        /// When it was signed.
        issued: i64,
        /// Until when it holds.
        expires: i64,
        /// The present here.
        now: i64,
    },
}

impl Opening {
    /// Reads what a node passes on.
    ///
    /// # Errors
    /// [`OpeningError::Malformed`].
    pub fn read(bytes: &[u8]) -> Result<Opening, OpeningError> {
        Ok(wire::decode::<Opening, OPENING_BYTES_MAX>(bytes)?)
    }

    /// The key that is said to have signed what takes long to verify and read: whoever has nothing here is refused by that alone.
    pub fn claimed_author(&self) -> Option<&PublicKey> {
        match self {
            Opening::Start(text) | Opening::Attach(text) | Opening::Files(text) => {
                (text.text.len() > OF_STRANGER_BYTES_MAX).then_some(&text.author)
            }
            Opening::Peer(_) => None,
        }
    }

    /// Its user and what is wanted, once the signature was verified.
    ///
    /// # Errors
    /// [`OpeningError::Trust`] or [`OpeningError::Order`].
    pub fn open(&self) -> Result<(PublicKey, Wish), OpeningError> {
        match self {
            Opening::Start(text) => {
                let order: RunOrder = text.open()?;
                order.check()?;
                Ok((text.author, Wish::Start(Box::new(order))))
            }
            Opening::Attach(text) => {
                let order: AttachOrder = text.open()?;
                check_nonce(&order.nonce)?;
                Ok((text.author, Wish::Attach(order)))
            }
            Opening::Files(text) => {
                let order: FilesOrder = text.open()?;
                check_nonce(&order.nonce)?;
                order.check()?;
                Ok((text.author, Wish::Files(order)))
            }
            Opening::Peer(_) => Err(OpeningError::OfNode),
        }
    }

    /// The same for `site` of `grid` at `now`, where it must hold.
    ///
    /// # Errors
    /// [`OpeningError`].
    pub fn open_at(&self, site: &SiteId, grid: &str, now: Time) -> Result<(PublicKey, Wish), OpeningError> {
        let (user, wish) = self.open()?;
        let (of_grid, issued, expires) = match &wish {
            Wish::Start(order) => (&order.grid, order.issued, order.expires),
            Wish::Attach(order) => (&order.grid, order.issued, order.expires),
            Wish::Files(order) => (&order.grid, order.issued, order.expires),
        };
        if wish.site() != site || of_grid != grid {
            return Err(OpeningError::Elsewhere { site: wish.site().clone(), grid: of_grid.clone() });
        }
        let is_timely = issued <= now + CLOCKS_APART_MAX && now < expires && expires <= issued + OPENING_LIFE;
        if !is_timely {
            return Err(OpeningError::Time { issued: issued.0, expires: expires.0, now: now.0 });
        }
        Ok((user, wish))
    }
}

fn check_nonce(nonce: &str) -> Result<(), OrderError> {
    let bytes = nonce.len();
    let too_long = || OrderError::TooLong { what: "the nonce".to_owned(), bytes, limit: NONCE_BYTES_MAX };
    if bytes > NONCE_BYTES_MAX { Err(too_long()) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use broker::trust::testing;

    use super::{
        super::{
            files::order::{FilesWish, tests::order as files},
            testing::order,
        },
        *,
    };

    /// Comes back to the last run of seat 2.
    pub fn attach() -> AttachOrder {
        let order = order(&["true"]);
        AttachOrder {
            grid: order.grid,
            site: order.site,
            request: order.request,
            seat: order.seat,
            run: None,
            issued: order.issued,
            expires: order.expires,
            nonce: order.nonce,
        }
    }

    #[test]
    fn an_opening_counts_here_and_now_and_for_its_signer() {
        let site = SiteId::new("s").unwrap();
        let get = files(FilesWish::Get { patterns: vec!["a".to_owned()], forgets: false });
        for wish in [Wish::Start(Box::new(order(&["true"]))), Wish::Attach(attach()), Wish::Files(get)] {
            let opening = wish.clone().issued(Time(1000)).sign(&testing::key(1).into()).unwrap();
            let bytes = wire::encode(&opening).unwrap();
            let read = Opening::read(&bytes).unwrap();
            let (user, opened) = read.open_at(&site, testing::GRID, Time(1000)).unwrap();
            assert_eq!((user, opened), (PublicKey::of(&testing::key(1)), wish.issued(Time(1000))));
            // Clocks that are apart by less than two minutes do not matter.
            for (now, is_good) in [(880, true), (879, false), (1179, true), (1180, false)] {
                assert_eq!(read.open_at(&site, testing::GRID, Time(now)).is_ok(), is_good, "{now}");
            }
            let other = SiteId::new("x").unwrap();
            assert!(matches!(read.open_at(&other, testing::GRID, Time(1000)), Err(OpeningError::Elsewhere { .. })));
            assert!(matches!(read.open_at(&site, "x", Time(1000)), Err(OpeningError::Elsewhere { .. })));
            for cut in 0..bytes.len() {
                assert!(Opening::read(&bytes[..cut]).is_err());
            }
            let text = match read {
                Opening::Start(text) | Opening::Attach(text) | Opening::Files(text) => text,
                Opening::Peer(_) => panic!("nobody has signed it"),
            };
            let forged = SignedText { text: text.text.replace("\"seat\":2", "\"seat\":3"), ..text.clone() };
            assert!(Opening::Start(forged.clone()).open().is_err() && Opening::Attach(forged).open().is_err());
            let kinds = [Opening::Start(text.clone()), Opening::Attach(text.clone()), Opening::Files(text)];
            let readable = kinds.iter().filter(|opening| opening.open().is_ok()).count();
            assert_eq!(readable, 1, "one kind is never read as another");
        }
    }

    #[test]
    fn the_bytes_are_those_that_other_versions_read() {
        let key = testing::key(1);
        let text = SignedText::sign(&attach(), &key).unwrap();
        let expected = format!(
            "kolo-attach/1\n{{\"grid\":\"{}\",\"site\":\"s\",\"request\":\"r\",\"seat\":2,\"issued\":1000,\"expires\":1060,\"nonce\":\"n\"}}",
            testing::GRID
        );
        assert_eq!(text.text, expected);
        let numbers =
            [(Opening::Start(text.clone()), 0), (Opening::Attach(text.clone()), 1), (Opening::Files(text.clone()), 2)];
        for (opening, number) in numbers {
            let bytes = wire::encode(&opening).unwrap();
            assert_eq!((bytes[0], usize::from(bytes[1])), (number, expected.len()));
            assert_eq!(&bytes[2..2 + expected.len()], expected.as_bytes());
            let plain = wire::encode(&FromUser::Signed(opening)).unwrap();
            assert_eq!(plain, [&[0][..], &bytes].concat());
        }
        let user = PublicKey::of(&key);
        let peer = Opening::Peer(PeerOpening {
            user,
            request: attach().request,
            run: RunNumber(300),
            from: SeatNumber(1),
            to: SeatNumber(2),
            port: 29500,
        });
        let bytes = wire::encode(&peer).unwrap();
        assert_eq!(bytes, [&[3][..], &wire::encode(&user).unwrap(), b"\x01r\xfb\x2c\x01\x01\x02\xfb\x3c\x73"].concat());
        assert_eq!(Opening::read(&bytes).unwrap(), peer);
        assert!(matches!(peer.open(), Err(OpeningError::OfNode)), "a user cannot have it passed on");
        let get = files(FilesWish::Get { patterns: vec!["a".to_owned()], forgets: false });
        let wishes = [(Wish::Start(Box::new(order(&["true"]))), 1), (Wish::Attach(attach()), 2), (Wish::Files(get), 3)];
        for (wish, number) in wishes {
            let bytes = wire::encode(&FromUser::plain(&wish).unwrap()).unwrap();
            assert_eq!(bytes[0], number);
            let read = match wire::decode::<FromUser, OPENING_BYTES_MAX>(&bytes).unwrap() {
                FromUser::PlainStart(json) => Wish::start(&json).unwrap(),
                FromUser::PlainAttach(json) => Wish::attach(&json).unwrap(),
                FromUser::PlainFiles(json) => Wish::files(&json).unwrap(),
                FromUser::Signed(_) => panic!("nobody has signed it"),
            };
            assert_eq!(read, wish);
        }
        assert!(Wish::start("{}").is_err() && Wish::attach("[]").is_err());
    }

    #[test]
    fn what_lives_for_longer_than_it_may_is_not_taken() {
        let site = SiteId::new("s").unwrap();
        let long = AttachOrder { expires: Time(1181), ..attach() };
        let opening = Wish::Attach(long).sign(&testing::key(1).into()).unwrap();
        assert!(matches!(opening.open_at(&site, testing::GRID, Time(1000)), Err(OpeningError::Time { .. })));
    }
}
