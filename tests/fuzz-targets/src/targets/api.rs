//! Bodies and queries of the local API. The first byte says which of them the rest is.

use axum::{extract::Query, http::Uri};
use broker::{
    request::Request,
    time::Time,
    trust::{Authorization, Gate, Labels, OwnerPolicy, RequestStatement, SignedRevocation, SignedText, Trust},
};
use ed25519_dalek::SigningKey;
use kolo::readers::{ListQuery, WaitQuery, read_body, read_request, read_signed};

use super::fixed::{request_id, site};
use crate::{Input, Seed, Target};

/// Bodies and queries.
pub const API: Target = Target { name: "api", run, seeds };

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.below(4);
    let bytes = input.rest();
    match kind {
        0 => {
            let Ok(request) = read_request(bytes) else { return };
            let written = serde_json::to_vec(&request).expect("a request that was read can be written");
            assert_eq!(read_request(&written).ok().as_ref(), Some(&request) as Option<&Request>);
        }
        1 => {
            let Ok(query) = std::str::from_utf8(bytes) else { return };
            let Ok(uri) = format!("http://localhost/v1/requests?{query}").parse::<Uri>() else { return };
            let _ = Query::<ListQuery>::try_from_uri(&uri);
            let _ = Query::<WaitQuery>::try_from_uri(&uri);
        }
        2 => {
            let Ok(authorization) = read_signed(bytes) else { return };
            let trust = Trust::Open { grid: "test".to_owned() };
            let mut gate = Gate::new(trust, OwnerPolicy::default());
            let (text, chain) = (&authorization.request, authorization.user.as_ref());
            if let Ok(permit) = gate.check_submission(Time::ZERO, &site("e"), text, chain) {
                assert_eq!((permit.user, permit.statement.grid.as_str()), (text.author, "test"));
            }
        }
        _ => {
            let Ok(revocation) = read_body::<SignedRevocation>("revocation", bytes) else { return };
            let written = serde_json::to_vec(&revocation).expect("a revocation that was read can be written");
            assert_eq!(read_body::<SignedRevocation>("revocation", &written).ok(), Some(revocation));
        }
    }
}

/// A request that its user has signed, as its command line sends it.
fn signed() -> Option<String> {
    let request = serde_json::from_str(r#"{"hosts":2,"duration":100}"#).ok()?;
    let (grid, id) = ("test".to_owned(), request_id("r"));
    let (issued, expires) = (Time::ZERO, Time(2_000));
    let labels = Labels::default();
    let statement = RequestStatement { grid, entry_point: site("e"), id, request, term: 1, issued, expires, labels };
    let request = SignedText::sign(&statement, &SigningKey::from_bytes(&[9; 32])).ok()?;
    let authorization = Authorization { request, user: None, entry_point: None };
    serde_json::to_string(&serde_json::json!({ "authorization": authorization })).ok()
}

fn seeds() -> Vec<Seed> {
    let signed = signed().unwrap_or_default();
    let texts = [
        ("signed", 2, signed.as_str()),
        ("no-revocation", 3, r#"{"statement":{"text":"","author":"","signature":""},"issuer":null}"#),
        ("request", 0, r#"{"hosts":5,"duration":3600,"per_host":{"cpu":500},"attributes":{"arch":"x86_64"}}"#),
        ("wrong", 0, r#"{"hosts":-1,"duration":"1h"}"#),
        ("list", 1, "limit=20"),
        ("wait", 1, "wait_ms=1000&revision=3&until=settled"),
    ];
    texts.into_iter().map(|(name, kind, text)| (name, [&[kind], text.as_bytes()].concat())).collect()
}
