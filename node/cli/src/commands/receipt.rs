//! `kolo receipt`: what sites have signed for a reservation, and with `--site` what this site keeps of it, checked here.

use broker::{
    cost::Cost,
    ids::RequestId,
    receipt::Receipt,
    trust::{RequestStatement, TrustError},
};
use discovery::identity::key_of_site;
use kolo_api::receipts::{KeptReceipt, KeptReceipts, Receipts, SiteReceipt};
use kolo_text::{safe::safe, time::format_time, words::site_text};

use super::{Context, path_of};
use crate::{
    args::ReceiptArgs,
    client::kept_receipts_path,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
};

/// Runs the command; it fails when something is not signed by whom it names.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &ReceiptArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let selector = &args.request.selector;
    if args.site {
        let kept: KeptReceipts = client.get(&kept_receipts_path(selector))?;
        context.output.print(&kept)?;
        return match kept.bookings.iter().find_map(|one| check(one, &kept.id).err()) {
            None => Ok(Exit::Done),
            Some(error) => Err(CliError::failed(format!("not all of it proves anything: {error}"))),
        };
    }
    let receipts: Receipts = client.get(&format!("{}/receipts", path_of(&client, selector)?))?;
    context.output.print(&receipts)?;
    let is_wrong = |one: &&SiteReceipt| read(one, &receipts.requests).is_err();
    match receipts.receipts.iter().filter(is_wrong).count() {
        0 => Ok(Exit::Done),
        wrong => Err(CliError::failed(format!("{wrong} of {} receipts prove nothing", receipts.receipts.len()))),
    }
}

/// What a receipt says, if the site that it is shown for has signed it, for one of these requests.
fn read(one: &SiteReceipt, requests: &[RequestId]) -> Result<Receipt, TrustError> {
    let receipt = Receipt::open(&one.signed, key_of_site)?;
    if receipt.site != one.site || !requests.contains(&receipt.request) {
        let detail = "it is of another site or another request".to_owned();
        return Err(TrustError::Malformed { kind: "receipt", detail });
    }
    Ok(receipt)
}

/// Whether what is kept of a booking is signed, for this request and by one user.
fn check(one: &KeptReceipt, id: &RequestId) -> Result<(), TrustError> {
    let wrong = |kind, detail: &str| TrustError::Malformed { kind, detail: detail.to_owned() };
    let user = one.request.as_ref().map(|signed| {
        let statement: RequestStatement = signed.open()?;
        if statement.id == *id { Ok(signed.author) } else { Err(wrong("request", "it is another request")) }
    });
    let user = user.transpose()?;
    let Some(signed) = &one.receipt else { return Ok(()) };
    let receipt = Receipt::open(signed, key_of_site)?;
    let is_same = receipt.request == *id && user.is_none_or(|user| user == receipt.user);
    if is_same { Ok(()) } else { Err(wrong("receipt", "it is of another request or another user")) }
}

impl Report for KeptReceipts {
    fn text(&self, look: &Look) -> String {
        let row = |one: &KeptReceipt| {
            let said = |is_there: bool| if is_there { "signed" } else { "none" };
            let (request, receipt) = match check(one, &self.id) {
                Ok(()) => (said(one.request.is_some()).to_owned(), said(one.receipt.is_some()).to_owned()),
                Err(error) => (format!("NOT VALID: {error}"), String::new()),
            };
            let [start, end] = [one.window.start, one.window.end].map(|time| format_time(time, &look.zone));
            let charged = one.charged.map_or_else(|| "-".to_owned(), |cost| cost.to_string());
            [safe(&one.user), start, end, one.agreed.to_string(), charged, request, receipt]
        };
        let header = ["USER", "START", "END", "CREDITS", "TO PAY", "REQUEST", "RECEIPT"];
        columns(look, header, self.bookings.iter().map(row))
    }
    fn ids(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}

impl Report for Receipts {
    fn text(&self, look: &Look) -> String {
        if self.receipts.is_empty() {
            return format!("no site has signed anything for {}\n", safe(self.id.as_str()));
        }
        let nothing = String::new;
        let row = |one: &SiteReceipt| {
            let site = site_text(one.site.as_str(), &one.site_name);
            match read(one, &self.requests) {
                Err(error) => [site, format!("NOT VALID: {error}"), nothing(), nothing(), nothing(), nothing()],
                Ok(receipt) => {
                    let grants = receipt.grants();
                    let hosts: Vec<String> = grants.iter().map(|grant| grant.host().to_string()).collect();
                    let cost: Cost = grants.iter().map(|grant| grant.agreed.cost).sum();
                    let start = receipt.seats.iter().map(|kind| kind.start).min();
                    let end = receipt.seats.iter().map(|kind| kind.end).max();
                    let time = |time: Option<_>| time.map_or_else(String::new, |time| format_time(time, &look.zone));
                    let (signed, cost) = (format_time(receipt.confirmed, &look.zone), cost.to_string());
                    [site, hosts.join(","), time(start), time(end), cost, signed]
                }
            }
        };
        let rows = self.receipts.iter().map(row);
        columns(look, ["SITE", "HOSTS", "START", "END", "CREDITS", "SIGNED"], rows)
    }
    fn ids(&self) -> Vec<String> {
        self.receipts.iter().map(|one| one.site.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::{HostId, RequestId, SeatNumber, SiteId},
        plan::Place,
        protocol::{AttemptId, Grant},
        tariff::Agreement,
        time::{Span, Time, Window},
        trust::{PublicKey, SignedText, testing},
    };
    use discovery::identity::{peer_of_key, site_of_peer};

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    fn receipts() -> Receipts {
        let key = testing::key(3);
        let site = site_of_peer(&peer_of_key(PublicKey::of(&key).as_bytes()).unwrap()).unwrap();
        let id = RequestId::new("r-1").unwrap();
        let attempt = AttemptId { entry_point: SiteId::new("e").unwrap(), request: id.clone(), attempt: 1 };
        let grant = Grant {
            seat: SeatNumber(0),
            place: Place::Host(HostId::new("gpu1").unwrap()),
            window: Window::starting(Time(1_763_712_000), Span(3_600)),
            amounts: Default::default(),
            agreed: Agreement { cost: broker::cost::Cost(1_500), refunds: Vec::new() },
        };
        let receipt = Receipt::of(("g", &site), &attempt, testing::public(1), &[grant], Time(1_763_700_000));
        let signed = testing::sign(&receipt, &key).into();
        Receipts {
            requests: vec![id.clone()],
            id,
            receipts: vec![SiteReceipt { site, site_name: "alpha".to_owned(), signed }],
        }
    }

    fn one_of(kept: &KeptReceipt) -> KeptReceipt {
        serde_json::from_value(serde_json::to_value(kept).unwrap()).unwrap()
    }

    #[test]
    fn receipts_are_shown_with_what_was_agreed_and_a_changed_one_is_not_believed() {
        let mut receipts = receipts();
        let text = printed(&receipts, OutputFormat::Table);
        let line = text.lines().nth(1).unwrap();
        assert!(line.starts_with("alpha (..") && line.contains("gpu1") && line.contains("1.50"), "{text}");
        assert!(line.contains("2025-11-21 08:00:00+00:00"), "{text}");
        let of_another = Receipts { requests: vec![RequestId::new("r-2").unwrap()], ..self::receipts() };
        assert!(printed(&of_another, OutputFormat::Table).contains("NOT VALID: receipt: it is of another site"));
        let one = &mut receipts.receipts[0];
        let text = one.signed.text.replace("1500", "1400");
        one.signed = SignedText { text, ..SignedText::clone(&one.signed) }.into();
        assert!(read(one, &receipts.requests).is_err());
        let text = printed(&receipts, OutputFormat::Table);
        assert!(text.contains("NOT VALID: receipt: the signature is not the author's"), "{text}");
        let request = serde_json::from_str(r#"{"hosts":1,"duration":3600}"#).unwrap();
        let entry_point = SiteId::new("e").unwrap();
        let signed = |id: &RequestId, user| testing::authorize(user, &entry_point, id, &request).request;
        let one = KeptReceipt {
            user: "ada".to_owned(),
            window: Window::starting(Time(1_763_712_000), Span(3_600)),
            agreed: Cost(1_500),
            charged: Some(Cost(750)),
            request: Some(signed(&receipts.id, 1).into()),
            receipt: Some(self::receipts().receipts[0].signed.clone()),
        };
        let other = RequestId::new("r-2").unwrap();
        assert!(check(&one, &receipts.id).is_ok() && check(&one, &other).is_err());
        for wrong in [signed(&receipts.id, 2), signed(&other, 1)] {
            assert!(check(&KeptReceipt { request: Some(wrong.into()), ..one_of(&one) }, &receipts.id).is_err());
        }
        let kept = KeptReceipts { id: receipts.id.clone(), bookings: vec![one] };
        let text = printed(&kept, OutputFormat::Table);
        let line = text.lines().nth(1).unwrap();
        assert!(line.starts_with("ada ") && line.contains("0.75") && line.ends_with("signed   signed"), "{text}");
        receipts.receipts.clear();
        assert_eq!(printed(&receipts, OutputFormat::Table), "no site has signed anything for r-1\n");
    }
}
