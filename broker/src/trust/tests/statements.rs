//! What is signed cannot be changed anywhere, nor taken for something else.

use crate::trust::{
    Credential, PublicKey, RequestStatement, Revocation, Role, Rule, Signature, SignedText, Statement, Subject,
    TrustError, labels::LABELS_MAX, testing,
};
use crate::{
    ids::{RequestId, SiteId},
    time::Time,
};

fn credential() -> Credential {
    testing::credential(Subject::Key(testing::public(1)), Role::User, "ada")
}

#[test]
fn a_change_of_any_bit_is_refused() {
    let signed = testing::sign(&credential(), &testing::key(0));
    assert_eq!(signed.open::<Credential>(), Ok(credential()));
    for bit in 0..8 {
        for at in 0..signed.text.len() {
            let mut text = signed.text.clone().into_bytes();
            text[at] ^= 1 << bit;
            if let Ok(text) = String::from_utf8(text) {
                let changed = SignedText { text, ..signed.clone() };
                assert_eq!(changed.open::<Credential>(), Err(TrustError::BadSignature { kind: "credential" }));
            }
        }
        for at in 0..32 {
            let mut author = *signed.author.as_bytes();
            author[at] ^= 1 << bit;
            let changed = SignedText { author: PublicKey::from_bytes(author), ..signed.clone() };
            assert!(changed.open::<Credential>().is_err(), "bit {bit} of byte {at} of the author");
        }
        for at in 0..64 {
            let mut signature = *signed.signature.as_bytes();
            signature[at] ^= 1 << bit;
            let changed = SignedText { signature: Signature::from_bytes(signature), ..signed.clone() };
            assert!(changed.open::<Credential>().is_err(), "bit {bit} of byte {at} of the signature");
        }
    }
    for cut in 0..signed.text.len() {
        let changed = SignedText { text: signed.text[..cut].to_owned(), ..signed.clone() };
        assert!(changed.open::<Credential>().is_err());
    }
}

#[test]
fn a_weak_key_signs_nothing() {
    // The neutral element "signs" everything where verification is not strict.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut signature = [0; 64];
    signature[0] = 1;
    let signed = SignedText {
        text: testing::sign(&credential(), &testing::key(0)).text,
        author: PublicKey::from_bytes(neutral),
        signature: Signature::from_bytes(signature),
    };
    assert!(signed.open::<Credential>().is_err());
}

#[test]
fn one_kind_is_never_another() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Anything(serde_json::Value);
    impl Statement for Anything {
        const KIND: &'static str = "anything";
        const TEXT_BYTES_MAX: usize = 100_000;
    }
    let revocation = testing::revoke(Subject::Key(testing::public(1))).statement;
    assert!(revocation.open::<Revocation>().is_ok());
    assert!(matches!(revocation.open::<Credential>(), Err(TrustError::Malformed { kind: "credential", .. })));
    let same_text = Anything(serde_json::from_str(revocation.text.split_once('\n').unwrap().1).unwrap());
    let signed = testing::sign(&same_text, &testing::key(0));
    assert!(matches!(signed.open::<Revocation>(), Err(TrustError::Malformed { kind: "revocation", .. })));
    let renamed = SignedText { text: signed.text.replace("kolo-anything", "kolo-revocation"), ..signed };
    assert_eq!(renamed.open::<Revocation>(), Err(TrustError::BadSignature { kind: "revocation" }));
}

#[test]
fn what_is_signed_but_too_long_or_not_understood_is_refused() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Loose(String);
    impl Statement for Loose {
        const KIND: &'static str = "revocation";
        const TEXT_BYTES_MAX: usize = 100_000;
    }
    let long = testing::sign(&Loose("x".repeat(2_000)), &testing::key(0));
    assert_eq!(
        long.open::<Revocation>(),
        Err(TrustError::TooLarge { kind: "revocation", bytes: 2_020, limit: Revocation::TEXT_BYTES_MAX })
    );
    let other = testing::sign(&Loose("x".to_owned()), &testing::key(0));
    assert!(matches!(other.open::<Revocation>(), Err(TrustError::Malformed { .. })));
    let too_long = Credential { name: "x".repeat(3_000), ..credential() };
    assert!(matches!(SignedText::sign(&too_long, &testing::key(0)), Err(TrustError::TooLarge { .. })));
}

/// A text of a later version, signed by the user that it is of.
fn signed_by_user(text: String) -> SignedText {
    testing::sign_text(text, &testing::key(1))
}

fn request_text() -> String {
    let request = serde_json::from_str(r#"{"hosts":2,"duration":100,"total":{"cpu":9000}}"#).unwrap();
    let (site, id) = (SiteId::new("e").unwrap(), RequestId::new("r").unwrap());
    testing::sign(&testing::statement(&site, &id, &request), &testing::key(1)).text
}

#[test]
fn what_a_later_version_says_is_refused_by_its_name() {
    let text = request_text();
    let inside = |key: &str| text.replace(r#""hosts":2"#, &format!(r#""hosts":2,{key}"#));
    for (later, what) in [
        (inside(r#""colour":"red""#), "the key `request.colour`"),
        (inside(r#""effort":"boundless""#), "`boundless` under the key `request.effort`"),
        (text.replace(r#""issued""#, r#""urgent":true,"issued""#), "the key `urgent`"),
        (text.replace("request/1", "request/99"), "version 99"),
    ] {
        assert_ne!(later, text);
        let signed = signed_by_user(later);
        let error = signed.open::<RequestStatement>().unwrap_err();
        assert_eq!(error, TrustError::NotUnderstood { kind: "request", what: what.to_owned() });
        let mut gate = testing::open_gate();
        let denial = gate.check_submission(Time(1), &SiteId::new("e").unwrap(), &signed, None).unwrap_err();
        assert_eq!(denial.rule, Rule::Understood);
        assert!(denial.to_string().contains(&format!("{what} is not understood here")), "{denial}");
    }
    for malformed in [
        inside(r#""hosts":3"#),
        text.replace(r#""hosts":2"#, r#""hosts":-2"#),
        text.replace("kolo-request/1\n", ""),
        text.replace("request/1", "request/x"),
        text.replace("kolo-", "other-"),
    ] {
        let error = signed_by_user(malformed.clone()).open::<RequestStatement>().unwrap_err();
        assert!(matches!(error, TrustError::Malformed { .. }), "{malformed}: {error}");
    }
}

#[test]
fn labels_are_free_and_bounded() {
    let text = request_text();
    let with = |labels: &str| signed_by_user(text.replace(r#""issued""#, &format!(r#""labels":{labels},"issued""#)));
    let labelled = with(r#"{"project":"weather","of a later version":"yes"}"#).open::<RequestStatement>().unwrap();
    let labels: Vec<(&str, &str)> = labelled.labels.iter().collect();
    assert_eq!(labels, [("of a later version", "yes"), ("project", "weather")]);
    assert_eq!(testing::sign(&labelled, &testing::key(1)).open::<RequestStatement>(), Ok(labelled));
    let many: Vec<String> = (0..=LABELS_MAX).map(|number| format!(r#""k{number}":"v""#)).collect();
    for bad in [format!("{{{}}}", many.join(",")), r#"{"a":1}"#.to_owned(), r#"{"a":"\u0007"}"#.to_owned()] {
        assert!(matches!(with(&bad).open::<RequestStatement>(), Err(TrustError::Malformed { .. })), "{bad}");
    }
}
