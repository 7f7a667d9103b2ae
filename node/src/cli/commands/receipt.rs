//! `kolo receipt`: what sites have signed for a reservation, checked here.

use broker::{cost::Cost, ids::RequestId, receipt::Receipt, trust::TrustError};
use discovery::identity::key_of_site;

use super::{Context, path_of};
use crate::{
    api::receipts::{Receipts, SiteReceipt},
    cli::{
        args::SelectorArgs,
        error::CliError,
        exit::Exit,
        output::{Look, Report, columns},
    },
    text::{safe::safe, time::format_time, words::site_text},
};

/// Runs the command; it fails when a receipt is not from the site that it names.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let receipts: Receipts = client.get(&format!("{}/receipts", path_of(&client, &args.selector)?))?;
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
    use crate::cli::{output::OutputFormat, samples::printed};

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
        receipts.receipts.clear();
        assert_eq!(printed(&receipts, OutputFormat::Table), "no site has signed anything for r-1\n");
    }
}
