//! Texts that are signed, whatever they say: a credential, a revocation, a request of a user or a receipt of a site. The first byte says
//! which.

use broker::{
    ids::SiteId,
    receipt::Receipt,
    time::{Span, Time},
    trust::{
        Credential, Gate, OwnerPolicy, PublicKey, RequestStatement, Revocation, Role, Rule, Signature, SignedText,
        Statement, Subject, Trust, testing,
    },
};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::Value;

use super::{fixed::site, golden::golden_statement};
use crate::{Input, Target};

/// Signed texts.
pub const STATEMENT: Target = Target { name: "statement", run, golden };

/// The author of all of them.
const AUTHOR: u64 = 3;
const NOW: Time = Time(1_000);

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.below(4);
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    match kind {
        0 => {
            let Some((_, credential)) = opened::<Credential>(text) else { return };
            if credential.check().is_ok() {
                check_credential(&credential);
            }
        }
        1 => drop(opened::<Revocation>(text)),
        2 => {
            let Some((signed, statement)) = opened::<RequestStatement>(text) else { return };
            check_submission(&signed, &statement);
        }
        _ => {
            let Some((signed, receipt)) = opened::<Receipt>(text) else { return };
            let of_author: fn(&SiteId) -> _ = |_| Some(testing::public(AUTHOR));
            assert_eq!(Receipt::open(&signed, of_author).as_ref(), Ok(&receipt));
            assert!(Receipt::open(&signed, |_| None).is_err(), "a site whose name is no key signs nothing");
            assert!(receipt.grants().len() <= signed.text.len());
        }
    }
}

/// The text as one that was signed as a `T`, and what it says. No other kind and no other text passes with its signature.
fn opened<T: Statement + PartialEq + std::fmt::Debug>(text: &str) -> Option<(SignedText, T)> {
    let key = testing::key(AUTHOR);
    let signed = SignedText {
        text: first_line(T::KIND) + text,
        author: PublicKey::of(&key),
        signature: sign(T::KIND, text, &key),
    };
    let kinds = [Credential::KIND, Revocation::KIND, RequestStatement::KIND, Receipt::KIND];
    let as_others = [
        signed.open::<Credential>().is_ok(),
        signed.open::<Revocation>().is_ok(),
        signed.open::<RequestStatement>().is_ok(),
        signed.open::<Receipt>().is_ok(),
    ];
    assert!(kinds.iter().zip(as_others).all(|(kind, is_ok)| !is_ok || *kind == T::KIND), "passes as another kind");
    let statement: T = signed.open().ok()?;
    assert!(signed.text.len() <= T::TEXT_BYTES_MAX);
    let altered = SignedText { text: format!("{} ", signed.text), ..signed.clone() };
    assert!(altered.open::<T>().is_err(), "not what was signed");
    // What is signed anew may be longer than what was read, as a character can be written in several ways.
    if let Ok(again) = SignedText::sign(&statement, &key) {
        assert_eq!(again.open::<T>().as_ref(), Ok(&statement));
    }
    Some((signed, statement))
}

/// A contract with everybody who signs, repeated here: what is signed begins with the kind.
fn first_line(kind: &str) -> String {
    format!("kolo-{kind}/1\n")
}

fn sign(kind: &str, text: &str, key: &SigningKey) -> Signature {
    Signature::from_bytes(key.sign((first_line(kind) + text).as_bytes()).to_bytes())
}

fn check_credential(credential: &Credential) {
    assert!(credential.issued < credential.expires && credential.expires <= Time::MAX);
    let is_site = matches!(credential.subject, Subject::Site(_));
    assert!(!is_site || (credential.role == Role::Site && !credential.is_invitation));
    let name = &credential.name;
    assert!(name.parse::<PublicKey>().is_err() && name.len() <= 64 && !name.contains('\n'));
    assert!(!name.is_empty() || credential.is_invitation);
}

fn check_submission(signed: &SignedText, statement: &RequestStatement) {
    let trust = Trust::Open { grid: testing::GRID.to_owned() };
    let mut gate = Gate::new(trust, OwnerPolicy::default());
    let admitted = gate.check_submission(NOW, &statement.entry_point, signed, None);
    match &admitted {
        Ok(permit) => {
            assert!(permit.user == signed.author && *permit.statement == *statement);
            assert!(statement.grid == testing::GRID && statement.expires > NOW);
        }
        Err(denial) => assert!([Rule::Grid, Rule::Expired].contains(&denial.rule), "{denial}"),
    }
    assert_eq!(
        gate.check_submission(NOW, &statement.entry_point, signed, None),
        admitted,
        "remembered, it is the same"
    );
    let stranger = site("a-stranger");
    if statement.entry_point != stranger {
        assert!(gate.check_submission(NOW, &stranger, signed, None).is_err(), "carried by another");
    }
    // Nothing that a request says makes its arithmetic go wrong.
    let starts = statement.request.starts(NOW, Span(86_400));
    assert!(starts.is_err() || statement.request.demand().seats() > 0);
}

/// What a site says of two kinds of seats.
const RECEIPT: &str = concat!(
    r#"{"grid":"test","site":"s","entry_point":"s","request":"r","attempt":3,"#,
    r#""user":"759155344a5246e01f06f259dfb4f4960f3b0b85a0b94a803c545e46702f6954","#,
    r#""seats":[{"places":[[0,{"host":"h0"}],[1,{"host":"h1"}]],"start":1000,"end":1060,"amounts":{"cpu":5},"#,
    r#""cost":5,"refunds":[{"start":0,"part":500}]},"#,
    r#"{"places":[[2,{"host":"h2"}]],"start":1000,"end":1060,"amounts":{"cpu":9},"cost":9,"refunds":[]}],"#,
    r#""confirmed":900}"#,
);

/// What is signed, without the line that names its kind.
fn golden() -> Vec<Vec<u8>> {
    let said = |kind: &str, path: &str| {
        let signed: Value = serde_json::from_slice(&golden_statement(kind)).unwrap_or_default();
        let text = signed.pointer(path).and_then(Value::as_str).and_then(|text| text.split_once('\n'));
        text.map_or_else(Vec::new, |(_, said)| said.as_bytes().to_vec())
    };
    let receipt = RECEIPT.as_bytes().to_vec();
    let all = [
        said("credential", "/0/text"),
        said("revocation", "/statement/text"),
        said("request", "/request/text"),
        receipt,
    ];
    all.into_iter().zip(0..).map(|(said, kind)| [&[kind], &said[..]].concat()).collect()
}
