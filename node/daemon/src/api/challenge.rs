//! Calls that their user has signed: the node gives a nonce for one method and path, the user's key signs them together with
//! the node's name, and the node believes that once, and soon.
//!
//! Invariants: a nonce is good for one call, whether that succeeds or not. At most [`NONCES_MAX`] are open, and none that is
//! open makes room for another. What a signed call hands over in its
//! body carries a signature of its own.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use broker::{ids::SiteId, trust::PublicKey};
use data_encoding::HEXLOWER;
use kolo_api::signed_call::SignedCall;
use kolo_runtime::lock::locked;
use kolo_trust::{TrustFileError, random_bytes};

/// How long a nonce may be used.
pub const NONCE_LIFE: Duration = Duration::from_secs(30);
/// Most nonces that wait to be used; more than [`super::rates`] lets out within their life.
const NONCES_MAX: usize = 4_096;

/// The nonces that wait to be used.
#[derive(Default)]
pub struct Challenges(Mutex<BTreeMap<String, Open>>);

struct Open {
    method: String,
    path: String,
    until: Instant,
}

impl Challenges {
    /// A nonce for one call; none when too many are open.
    ///
    /// # Errors
    /// [`TrustFileError::Random`].
    pub fn give(&self, method: &str, path: &str, now: Instant) -> Result<Option<String>, TrustFileError> {
        let nonce = HEXLOWER.encode(&random_bytes::<16>()?);
        let mut open = locked(&self.0);
        if open.len() >= NONCES_MAX {
            open.retain(|_, one| one.until > now);
        }
        if open.len() >= NONCES_MAX {
            return Ok(None);
        }
        let (method, path) = (method.to_owned(), path.to_owned());
        open.insert(nonce.clone(), Open { method, path, until: now + NONCE_LIFE });
        Ok(Some(nonce))
    }

    /// Who has signed the call with this header; none when nobody has. The nonce is used up.
    pub fn check(&self, header: &str, method: &str, path: &str, site: &SiteId, now: Instant) -> Option<PublicKey> {
        let call = SignedCall::read(header)?;
        let open = locked(&self.0).remove(call.nonce)?;
        if open.until <= now || open.method != method || open.path != path {
            return None;
        }
        call.signer(&open.method, &open.path, site)
    }
}

#[cfg(test)]
mod tests {
    use kolo_api::signed_call::sign;
    use kolo_trust::UserKey;

    use super::*;

    const PATH: &str = "/v1/requests?limit=20";

    fn site(name: &str) -> SiteId {
        SiteId::new(name).unwrap()
    }

    #[test]
    fn a_signed_call_counts_once_soon_and_for_nothing_else() {
        let (challenges, now) = (Challenges::default(), Instant::now());
        let key = UserKey::from(ed25519_dalek::SigningKey::from_bytes(&[7; 32]));
        let signed = |site_name: &str| {
            let nonce = challenges.give("GET", PATH, now).unwrap().unwrap();
            sign(&key, "GET", PATH, &nonce, &site(site_name)).unwrap()
        };
        let check = |header: &str, method: &str, path: &str, at: Instant| {
            challenges.check(header, method, path, &site("s"), at).is_some()
        };
        let good = signed("s");
        assert_eq!(challenges.check(&good, "GET", PATH, &site("s"), now), Some(key.public()));
        assert!(!check(&good, "GET", PATH, now), "a second time");
        assert!(!check(&signed("s"), "DELETE", PATH, now) && !check(&signed("s"), "GET", "/v1/requests", now));
        assert!(!check(&signed("other"), "GET", PATH, now), "signed for another node");
        assert!(!check(&signed("s"), "GET", PATH, now + NONCE_LIFE));
        let made_up = sign(&key, "GET", PATH, &"0".repeat(32), &site("s")).unwrap();
        assert!(!check(&made_up, "GET", PATH, now));
        let of_other = signed("s").replace(&key.public().to_string(), &"1".repeat(64));
        assert!(!check(&of_other, "GET", PATH, now));
        for damaged in ["", "Kolo-Signature ", "Kolo-Signature key=1", &format!("{}, more=1", signed("s"))] {
            assert!(!check(damaged, "GET", PATH, now), "{damaged}");
        }
    }

    #[test]
    fn open_nonces_are_bounded_and_old_ones_make_room() {
        let (challenges, now) = (Challenges::default(), Instant::now());
        for _ in 0..NONCES_MAX {
            assert!(challenges.give("GET", PATH, now).unwrap().is_some());
        }
        assert!(challenges.give("GET", PATH, now).unwrap().is_none());
        assert!(challenges.give("GET", PATH, now + NONCE_LIFE).unwrap().is_some());
    }
}
