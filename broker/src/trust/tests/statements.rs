//! What is signed cannot be changed anywhere, nor taken for something else.

use crate::trust::{
    Credential, PublicKey, Revocation, Role, Signature, SignedText, Statement, Subject, TrustError, testing,
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
        text: serde_json::to_string(&credential()).unwrap(),
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
    assert_eq!(revocation.open::<Credential>(), Err(TrustError::BadSignature { kind: "credential" }));
    let same_text = Anything(serde_json::from_str(&revocation.text).unwrap());
    let signed = testing::sign(&same_text, &testing::key(0));
    assert_eq!(signed.open::<Revocation>(), Err(TrustError::BadSignature { kind: "revocation" }));
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
        Err(TrustError::TooLarge { kind: "revocation", bytes: 2_002, limit: Revocation::TEXT_BYTES_MAX })
    );
    let other = testing::sign(&Loose("x".to_owned()), &testing::key(0));
    assert!(matches!(other.open::<Revocation>(), Err(TrustError::Malformed { .. })));
    let text = testing::revoke(Subject::Key(testing::public(1))).statement.text;
    let with_more = format!(r#"{},"more":1}}"#, text.trim_end_matches('}'));
    let error = serde_json::from_str::<Revocation>(&with_more).unwrap_err().to_string();
    assert!(error.contains("unknown field `more`"), "{error}");
    let too_long = Credential { name: "x".repeat(3_000), ..credential() };
    assert!(matches!(SignedText::sign(&too_long, &testing::key(0)), Err(TrustError::TooLarge { .. })));
}
