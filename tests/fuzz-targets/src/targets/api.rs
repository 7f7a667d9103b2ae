//! Bodies and queries of the local API. The first byte says which of them the rest is.

use axum::{extract::Query, http::Uri};
use broker::{
    request::Request,
    time::Time,
    trust::{Gate, OwnerPolicy, SignedRevocation, Trust},
};
use kolo_daemon::api::requests::{ListQuery, WaitQuery, read_body, read_request, read_signed};

use super::{fixed::site, golden::golden_statement};
use crate::{Input, Target};

/// Bodies and queries.
pub const API: Target = Target { name: "api", run, golden };

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

fn golden() -> Vec<Vec<u8>> {
    let signed = [br#"{"authorization":"#, &golden_statement("request")[..], b"}"].concat();
    vec![[&[2], &signed[..]].concat(), [&[3], &golden_statement("revocation")[..]].concat()]
}
