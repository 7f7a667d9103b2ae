//! A site's receipt for a booking: what it has promised, to whom, for how much and on which conditions, signed with the key of its node.
//!
//! The site signs when the booking is on its disk, and the coordinator counts a confirmation without its receipt as no answer. What is signed
//! follows from the booking alone, and Ed25519 draws nothing random, so a site makes the same receipt again, bit for bit; also when it has
//! lost seats of it since.

use serde::{Deserialize, Serialize};

use crate::{
    cost::Cost,
    ids::{RequestId, SeatNumber, SiteId},
    plan::Place,
    protocol::{AttemptId, Grant, Places},
    request::{MAX_HOSTS, MAX_NAMES},
    resources::Amounts,
    tariff::{Agreement, Before},
    time::{Time, Window},
    trust::{PublicKey, SignedText, Statement, TrustError},
};

/// How the key with which a site's node signs follows from the site's name; none of a name that names no key.
pub type KeyOfSite = fn(&SiteId) -> Option<PublicKey>;

/// What a site says that it has booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// In this grid.
    pub grid: String,
    /// The site.
    pub site: SiteId,
    /// The node that has made the attempt.
    pub entry_point: SiteId,
    /// The request.
    pub request: RequestId,
    /// The number of the attempt at that node.
    pub attempt: u32,
    /// Who has signed the request.
    pub user: PublicKey,
    /// The seats, in the order of their numbers; neighbours that are alike are told together.
    pub seats: Vec<ReceiptSeats>,
    /// When the site confirmed them, on its clock.
    pub confirmed: Time,
}

/// Seats that have all but their places in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptSeats {
    /// Their numbers and places; of a seat on one of a class, the class in the place of the host.
    pub places: Places,
    /// From when.
    pub start: Time,
    /// Until when.
    pub end: Time,
    /// What each is given.
    pub amounts: Amounts,
    /// What each costs.
    pub cost: Cost,
    /// What the cancellation of each gives back; see [`Agreement::refunds`].
    pub refunds: Vec<Before>,
}

impl Statement for Receipt {
    const KIND: &'static str = "receipt";
    /// Leaves room for a thousand seats of which no two are alike; one message carries it.
    const TEXT_BYTES_MAX: usize = 512 * 1024;
}

impl Receipt {
    /// The receipt of a booking with these seats, as `site` signs it and its coordinator expects it.
    #[must_use]
    pub fn of(
        (grid, site): (&str, &SiteId),
        attempt: &AttemptId,
        user: PublicKey,
        grants: &[Grant],
        confirmed: Time,
    ) -> Receipt {
        let mut grants: Vec<&Grant> = grants.iter().collect();
        grants.sort_by_key(|grant| grant.seat);
        let alike = |a: &&Grant, b: &&Grant| (a.window, &a.amounts, &a.agreed) == (b.window, &b.amounts, &b.agreed);
        let AttemptId { entry_point, request, attempt } = attempt.clone();
        Receipt {
            grid: grid.to_owned(),
            site: site.clone(),
            entry_point,
            request,
            attempt,
            user,
            seats: grants.chunk_by(alike).filter_map(ReceiptSeats::of).collect(),
            confirmed,
        }
    }

    /// Reads a signed receipt and checks that it is from the site that it names.
    ///
    /// # Errors
    /// [`TrustError`] when the signature is not that of this site's node, or the text says something else.
    pub fn open(signed: &SignedText, key_of: KeyOfSite) -> Result<Receipt, TrustError> {
        let receipt: Receipt = signed.open()?;
        if key_of(&receipt.site) != Some(signed.author) {
            return Err(TrustError::BadSignature { kind: Receipt::KIND });
        }
        receipt.check(signed)?;
        Ok(receipt)
    }

    /// Whoever signs may write down little that stands for much: each seat gets the amounts and refunds of its kind. And who pads the text
    /// fills the disks of those who keep it.
    fn check(&self, signed: &SignedText) -> Result<(), TrustError> {
        let is_kind = |kind: &ReceiptSeats| {
            let agreed = Agreement { cost: kind.cost, refunds: kind.refunds.clone() };
            kind.amounts.len() <= MAX_NAMES && agreed.is_bounded()
        };
        let seats: usize = self.seats.iter().map(|kind| kind.places.len()).sum();
        let is_bounded = seats <= MAX_HOSTS as usize && self.seats.iter().all(is_kind);
        let is_plain = SignedText::text_of(self).is_ok_and(|text| text == signed.text);
        if is_bounded && is_plain {
            Ok(())
        } else {
            let detail = "expected the text as sites write it, and no more seats than a request has".to_owned();
            Err(TrustError::Malformed { kind: Receipt::KIND, detail })
        }
    }

    /// The seats one by one.
    #[must_use]
    pub fn grants(&self) -> Vec<Grant> {
        let of_kind = |kind: &ReceiptSeats| {
            let ReceiptSeats { places, start, end, amounts, cost, refunds } = kind.clone();
            let window = Window { start, end };
            let grant = move |(seat, place): (SeatNumber, Place)| Grant {
                seat,
                place,
                window,
                amounts: amounts.clone(),
                agreed: Agreement { cost, refunds: refunds.clone() },
            };
            places.into_iter().map(grant).collect::<Vec<_>>()
        };
        self.seats.iter().flat_map(of_kind).collect()
    }
}

impl ReceiptSeats {
    fn of(alike: &[&Grant]) -> Option<ReceiptSeats> {
        let Grant { window: Window { start, end }, amounts, agreed, .. } = alike.first()?;
        let Agreement { cost, refunds } = agreed.clone();
        let place = |grant: &Grant| Place::Host(grant.place.promised().clone());
        let places = alike.iter().map(|grant| (grant.seat, place(grant))).collect();
        Some(ReceiptSeats { places, start: *start, end: *end, amounts: amounts.clone(), cost, refunds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        amount::Amount,
        ids::HostId,
        resources::ResourceName,
        tariff::Parts,
        time::Span,
        trust::testing::{key, public, sign, sign_text},
    };

    fn grant(seat: u32, cpu: u64) -> Grant {
        Grant {
            seat: SeatNumber(seat),
            place: Place::Host(HostId::new(&format!("h{seat}")).unwrap()),
            window: Window::starting(Time(1_000), Span(60)),
            amounts: Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(cpu))]),
            agreed: Agreement { cost: Cost(cpu), refunds: vec![Before { start: Span(0), part: Parts(500) }] },
        }
    }

    fn receipt(grants: &[Grant]) -> Receipt {
        let site = SiteId::new("s").unwrap();
        let attempt = AttemptId { entry_point: site.clone(), request: RequestId::new("r").unwrap(), attempt: 3 };
        Receipt::of(("test", &site), &attempt, public(1), grants, Time(900))
    }

    fn key_of(site: &SiteId) -> Option<PublicKey> {
        (site.as_str() == "s").then(|| public(7))
    }

    /// What is signed is part of the grid's protocol and of what users keep: it changes with a new version only.
    #[test]
    fn the_text_is_as_it_was() {
        let text = SignedText::text_of(&receipt(&[grant(2, 9), grant(0, 5), grant(1, 5)])).unwrap();
        assert_eq!(
            text,
            concat!(
                "kolo-receipt/1\n",
                r#"{"grid":"test","site":"s","entry_point":"s","request":"r","attempt":3,"#,
                r#""user":"759155344a5246e01f06f259dfb4f4960f3b0b85a0b94a803c545e46702f6954","#,
                r#""seats":[{"places":[[0,{"host":"h0"}],[1,{"host":"h1"}]],"start":1000,"end":1060,"#,
                r#""amounts":{"cpu":5},"cost":5,"refunds":[{"start":0,"part":500}]},"#,
                r#"{"places":[[2,{"host":"h2"}]],"start":1000,"end":1060,"#,
                r#""amounts":{"cpu":9},"cost":9,"refunds":[{"start":0,"part":500}]}],"confirmed":900}"#,
            )
        );
    }

    #[test]
    fn it_is_read_again_and_only_from_its_own_site() {
        let receipt = receipt(&[grant(0, 5), grant(1, 5), grant(2, 9)]);
        let signed = sign(&receipt, &key(7));
        assert_eq!(Receipt::open(&signed, key_of), Ok(receipt.clone()));
        assert_eq!(sign(&receipt, &key(7)), signed, "bit for bit");
        assert_eq!(receipt.grants(), [grant(0, 5), grant(1, 5), grant(2, 9)]);
        let padded = SignedText::text_of(&receipt).unwrap().replace(",\"user\"", ", \"user\"");
        assert!(matches!(Receipt::open(&sign_text(padded, &key(7)), key_of), Err(TrustError::Malformed { .. })));
        let many = |grants: &dyn Fn(&mut ReceiptSeats)| {
            let mut receipt = receipt.clone();
            receipt.seats.iter_mut().for_each(grants);
            Receipt::open(&sign(&receipt, &key(7)), key_of)
        };
        assert!(many(&|kind| kind.refunds = vec![kind.refunds[0]; 17]).is_err(), "more refunds than an owner can name");
        assert!(many(&|kind| kind.places = vec![kind.places[0].clone(); 10_001]).is_err(), "more seats than a request");
        let of_another = sign(&receipt, &key(8));
        assert_eq!(Receipt::open(&of_another, key_of), Err(TrustError::BadSignature { kind: "receipt" }));
        let text = signed.text.replace("\"cost\":9", "\"cost\":8");
        assert_eq!(
            Receipt::open(&SignedText { text, ..signed }, key_of),
            Err(TrustError::BadSignature { kind: "receipt" })
        );
    }

    #[test]
    fn a_thousand_seats_that_are_all_unlike_fit_and_alike_ones_take_little() {
        let unlike: Vec<Grant> = (0..1_000).map(|seat| grant(seat, 1_000_000 + u64::from(seat))).collect();
        assert!(SignedText::text_of(&receipt(&unlike)).is_ok());
        let alike: Vec<Grant> = (0..1_000).map(|seat| grant(seat, 5)).collect();
        assert!(SignedText::text_of(&receipt(&alike)).unwrap().len() < 32 * 1024);
    }
}
