//! Members and revocations of the grid, as this node knows them.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    ids::SiteId,
    ledger::Booking,
    trust::{Chain, PublicKey, Revocation, Role, SignedRevocation, Subject, TrustError},
};
use kolo_api::{
    members::{GridView, MemberView, RevocationView, Revoked},
    schema,
};
use kolo_trust::TakeBack;

use super::{authority::About, extract::Body, problem::Problem, requests::read_body, state::ApiState};
use crate::net::membership::RevokeError;

/// The grid, its members and revocations, as far as known here.
#[utoipa::path(get, path = "/grid", tag = "grid", responses((status = 200, description = "Done", body = GridView)))]
pub async fn show_grid(State(state): State<Arc<ApiState>>) -> Json<GridView> {
    let grid = state.membership.grid();
    let sites = state.discovery.view().site_ids().into_iter().map(|site| site_member(&state, site));
    let members = sites.chain(user_members(&state)).collect();
    let revocations = state.membership.all_revocations().into_iter().map(|(revocation, author)| RevocationView {
        takes_back: state.membership.takes_back(&revocation.subject, author),
        subject: revocation.subject,
        revoked: revocation.revoked,
        keep_until: revocation.keep_until,
        author,
    });
    Json(GridView {
        id: grid.id.clone(),
        form: grid.form().to_owned(),
        root: grid.root,
        site: state.discovery.site_id().clone(),
        members,
        revocations: revocations.collect(),
    })
}

fn site_member(state: &ApiState, site: SiteId) -> MemberView {
    let holder = state.discovery.badge(&site).and_then(|badge| state.membership.holder_of(&badge.credential));
    match holder {
        Some(holder) => MemberView {
            revoked: state.membership.is_revoked(&holder),
            subject: holder.subject,
            role: holder.role,
            name: holder.name,
            expires: Some(holder.expires),
        },
        None => {
            let name = state.site_name(&site);
            MemberView { subject: Subject::Site(site), role: Role::Site, name, expires: None, revoked: false }
        }
    }
}

/// Users who have something booked at this site, or have sent a request through it; a node knows of no others. What their
/// credentials say is known of the latter only.
fn user_members(state: &ApiState) -> Vec<MemberView> {
    let of_booking = |booking: &Booking| Some((booking.user_key?, (booking.user.clone(), None)));
    let mut users: BTreeMap<PublicKey, (String, Option<Chain>)> =
        state.ledger.lock().bookings().filter_map(of_booking).collect();
    for snapshot in state.requests.snapshots() {
        if let Some(authorization) = &snapshot.record.authorization {
            let user = (snapshot.record.user.clone(), authorization.user.clone());
            users.insert(authorization.request.author, user);
        }
    }
    let view = |(key, (name, chain)): (PublicKey, (String, Option<Chain>))| {
        let subject = Subject::Key(key);
        let holder = chain.and_then(|chain| state.membership.holder(&chain));
        let revoked = match &holder {
            Some(holder) => state.membership.is_revoked(holder),
            None => state.membership.is_subject_revoked(&subject),
        };
        let role = holder.as_ref().map_or(Role::User, |holder| holder.role);
        MemberView { subject, role, name, expires: holder.map(|holder| holder.expires), revoked }
    };
    users.into_iter().map(view).collect()
}

/// Takes a signed revocation, or what is signed beside it: that it takes hosts back.
#[utoipa::path(post, path = "/grid/revocations", tag = "grid", request_body = schema::Revocation, responses((status = 200, description = "Done", body = Revoked)))]
pub async fn revoke_member(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(Extension<About>, Json<Revoked>), Problem> {
    let revocation: SignedRevocation = read_body("revocation", &body)?;
    let statement = &revocation.statement;
    let taking = || TakeBack::open(statement).map(|taking| taking.subject);
    let revoked = statement.open::<Revocation>().map(|revocation| revocation.subject).or_else(|_| taking());
    let about = About::of(&revoked.map(|subject| subject.brief()).unwrap_or_default());
    let membership = Arc::clone(&state.membership);
    // The disk takes a while, and other calls are served by the same threads.
    let revoked = tokio::task::block_in_place(|| membership.revoke(&revocation));
    let added = revoked.map_err(|error| {
        let status = match &error {
            RevokeError::Trust(
                TrustError::TooLarge { .. } | TrustError::Malformed { .. } | TrustError::Text { .. },
            ) => StatusCode::BAD_REQUEST,
            RevokeError::Trust(_) => StatusCode::FORBIDDEN,
            RevokeError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, format!("revocation: {error}"))
    })?;
    if added {
        state.discovery.membership_changed();
    }
    Ok((about, Json(Revoked { added, revocations: state.membership.all_revocations().len() })))
}
