//! The tariffs of a site's hosts, as an extra entry of its advert: a reader that does not know it takes the hosts as free, and their
//! site refuses its holds.
//!
//! Invariant: classes of one tariff share it in memory, so what a message takes there is bounded by its bytes.

use std::sync::Arc;

use broker::{
    classes::{HostClass, Hosts},
    tariff::Tariff,
};

use super::{
    check,
    encoding::{DecodeError, decode, encode},
    envelope::{EXTRA_VALUE_BYTES_MAX, Extra},
};

/// Its key.
const KEY: &str = "tariffs";

/// So many classes of hosts in a row, and which tariff they have; from 1 on, 0 is none.
type Run = (u32, u32);

/// The tariffs of hosts do not fit into an advert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tariffs of all hosts take more than {EXTRA_VALUE_BYTES_MAX} bytes: fewer changes of price, or fewer different hosts"
)]
pub struct TooLarge;

/// The entry of these hosts; none when all are free.
///
/// # Errors
/// [`TooLarge`].
pub fn entry(hosts: &Hosts) -> Result<Option<(String, Vec<u8>)>, TooLarge> {
    let mut tariffs: Vec<&Tariff> = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    for HostClass { host, .. } in hosts.classes() {
        let number = match tariffs.iter().position(|known| **known == *host.tariff) {
            _ if host.tariff.is_empty() => 0,
            Some(at) => at + 1,
            None => {
                tariffs.push(&host.tariff);
                tariffs.len()
            }
        };
        // A site has far fewer than 2^32 classes.
        match runs.last_mut().filter(|(_, last)| *last as usize == number) {
            Some((count, _)) => *count += 1,
            None => runs.push((1, number as u32)),
        }
    }
    if tariffs.is_empty() {
        return Ok(None);
    }
    let bytes = encode(&(tariffs, runs)).map_err(|_| TooLarge)?;
    if bytes.len() > EXTRA_VALUE_BYTES_MAX { Err(TooLarge) } else { Ok(Some((KEY.to_owned(), bytes))) }
}

/// Gives the hosts of an advert the tariffs that its extra entries name.
///
/// # Errors
/// [`DecodeError`] when the entry is malformed, or breaks a limit.
pub fn put_into(hosts: &mut Hosts, extra: &Extra) -> Result<(), DecodeError> {
    let Some(bytes) = extra.get(KEY) else { return Ok(()) };
    let (tariffs, runs): (Vec<Arc<Tariff>>, Vec<Run>) = decode::<_, EXTRA_VALUE_BYTES_MAX>(bytes)?;
    let malformed = |what: &str| DecodeError::Malformed(format!("tariffs: {what}"));
    if let Some(error) = tariffs.iter().find_map(|tariff| check::check_tariff(tariff).err()) {
        return Err(malformed(&error.to_string()));
    }
    let mut classes = hosts.classes_mut().iter_mut();
    for (count, number) in runs {
        let tariff = match number.checked_sub(1) {
            None => None,
            Some(at) => Some(tariffs.get(at as usize).ok_or_else(|| malformed("an unknown one"))?),
        };
        for _ in 0..count {
            let class = classes.next().ok_or_else(|| malformed("more than classes"))?;
            class.host.tariff = tariff.cloned().unwrap_or_default();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use broker::{host::Host, ids::HostId, tariff::Conditions, time::Span};

    use super::*;

    fn tariff(prices: &str) -> Tariff {
        let conditions = Conditions { notice_min: Span(9), ..Conditions::default() };
        Tariff { prices: serde_json::from_str(prices).unwrap(), conditions }
    }

    /// Hosts that are alike but for this, one behind the other.
    fn hosts(tariffs: &[Option<&str>]) -> Hosts {
        let host = |(at, prices): (usize, &Option<&str>)| Host {
            id: HostId::new(&format!("h-{at}")).unwrap(),
            capacity: Default::default(),
            attributes: Default::default(),
            speed: Default::default(),
            tariff: prices.map(|prices| Arc::new(tariff(prices))).unwrap_or_default(),
        };
        tariffs.iter().enumerate().map(host).collect()
    }

    fn received(sent: &Hosts, bytes: Vec<u8>) -> Result<Hosts, DecodeError> {
        let mut hosts = sent.clone();
        hosts.classes_mut().iter_mut().for_each(|class| class.host.tariff = Default::default());
        put_into(&mut hosts, &Extra::from([(KEY.to_owned(), bytes)])).map(|()| hosts)
    }

    #[test]
    fn hosts_have_the_tariffs_that_their_site_has_given_them() {
        let steps = r#"[[0,{"cpu":1}],[9,{}]]"#;
        let sent = hosts(&[Some(r#"{"cpu":5}"#), Some(r#"{"cpu":5}"#), None, Some(steps), Some(r#"{"cpu":5}"#)]);
        let (_, bytes) = entry(&sent).unwrap().unwrap();
        let got = received(&sent, bytes).unwrap();
        assert_eq!(got, sent);
        let counts: Vec<usize> = got.classes().iter().map(HostClass::count).collect();
        assert_eq!(counts, [2, 1, 1, 1], "hosts of unlike tariffs are unlike");
        let [first, .., last] = got.classes() else { panic!() };
        assert!(Arc::ptr_eq(&first.host.tariff, &last.host.tariff), "one in memory");
        assert_eq!(entry(&hosts(&[None, None])), Ok(None));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let sent = hosts(&[Some(r#"{"cpu":5}"#)]);
        let of = |tariffs: &[Tariff], runs: &[Run]| received(&sent, encode(&(tariffs, runs)).unwrap()).map(drop);
        assert!(of(&[tariff("{}")], &[(1, 1)]).is_ok());
        assert!(of(&[tariff("{}")], &[(1, 2)]).is_err(), "an unknown tariff");
        assert!(of(&[tariff("{}")], &[(2, 1)]).is_err(), "more than hosts");
        assert!(of(&[tariff(r#"[[9,{}],[9,{}]]"#)], &[(1, 1)]).is_err(), "steps out of order");
        assert!(received(&sent, vec![255; 9]).is_err());
        let endless: Vec<String> =
            (0..9_000).map(|at| format!(r#"[{},{{"cpu":{at}}}]"#, 1_000_000_000_i64 + at)).collect();
        assert_eq!(entry(&hosts(&[Some(&format!("[{}]", endless.join(",")))])), Err(TooLarge));
    }
}
