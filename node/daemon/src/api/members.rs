//! Members and revocations of the grid, as this node knows them.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, Json, extract::State, http::StatusCode};
use broker::{
    ids::SiteId,
    ledger::Booking,
    time::Time,
    trust::{
        Chain, Credential, PublicKey, Revocation, Role, SignedRevocation, SignedText, Subject, Successor, TrustError,
    },
};
use kolo_api::{
    members::{GridView, InvitationView, MemberView, RevocationView, Revoked, RootView},
    schema,
};
use kolo_trust::TakeBack;

use super::{authority::About, extract::Body, problem::Problem, requests::read_body, state::ApiState};
use crate::net::membership::{self, RevokeError};

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
    let (roots, rival) = state.membership.roots();
    Json(GridView {
        id: grid.id.clone(),
        form: grid.form().to_owned(),
        root: grid.root,
        roots: roots.into_iter().map(|(key, until)| RootView { key, until }).collect(),
        rival,
        site: state.discovery.site_id().clone(),
        members,
        revocations: revocations.collect(),
    })
}

fn site_member(state: &ApiState, site: SiteId) -> MemberView {
    let chain = state.discovery.badge(&site).and_then(|badge| membership::decode(&badge.credential));
    let chain = chain.and_then(|chain| Some((state.membership.holder(&chain)?, chain)));
    match chain {
        Some((holder, chain)) => MemberView {
            revoked: state.membership.is_revoked(&holder),
            since: since(&chain),
            invitation: invitation_of(&chain),
            subject: holder.subject,
            role: holder.role,
            name: holder.name,
            expires: Some(holder.expires),
        },
        None => MemberView {
            name: state.site_name(&site),
            subject: Subject::Site(site),
            role: Role::Site,
            expires: None,
            revoked: false,
            since: None,
            invitation: None,
        },
    }
}

/// Start of verified credentials of a holder.
fn since(chain: &Chain) -> Option<Time> {
    Some(chain.links().last()?.open::<Credential>().ok()?.issued)
}

/// The invitation that is behind verified credentials.
fn invitation_of(chain: &Chain) -> Option<InvitationView> {
    let read = |link: &SignedText| Some((link.author, link.open::<Credential>().ok()?));
    let (issuer, found) = chain.links().iter().rev().filter_map(read).find(|(_, link)| link.is_invitation)?;
    Some(InvitationView {
        key: *found.subject.key()?,
        issuer: Some(issuer),
        role: Some(found.role),
        name: Some(found.name),
        issued: Some(found.issued),
        expires: Some(found.expires),
    })
}

/// Invitation in a line of credentials of which only the keys are known: the user's own is the last, behind that of the invitation and its maker's.
fn invitation_in(line: &[PublicKey], root: Option<PublicKey>) -> Option<InvitationView> {
    let [before @ .., invitation, _] = line else { return None };
    let issuer = before.last().copied().or(root);
    Some(InvitationView { issuer, ..InvitationView::of_key(*invitation) })
}

/// Credential and invitation of a user, as far as they are known.
struct KnownUser {
    name: String,
    line: Option<Arc<Vec<PublicKey>>>,
    chain: Option<Chain>,
}

/// Users who have something booked at this site, or have sent a request through it; a node knows of no others. What their
/// credentials say is known of the latter only.
fn user_members(state: &ApiState) -> Vec<MemberView> {
    let of_booking = |booking: &Booking| {
        let (name, line) = (booking.user.clone(), booking.lineage.clone());
        Some((booking.user_key?, KnownUser { name, line, chain: None }))
    };
    let mut users: BTreeMap<PublicKey, KnownUser> = state.ledger.lock().bookings().filter_map(of_booking).collect();
    for snapshot in state.requests.snapshots() {
        if let Some(authorization) = &snapshot.record.authorization {
            let (name, chain) = (snapshot.record.user.clone(), authorization.user.clone());
            let line = users.remove(&authorization.request.author).and_then(|user| user.line);
            users.insert(authorization.request.author, KnownUser { name, line, chain });
        }
    }
    let root = state.membership.grid().root;
    let view = |(key, KnownUser { name, line, chain }): (PublicKey, KnownUser)| {
        let subject = Subject::Key(key);
        let holder = chain.as_ref().and_then(|chain| state.membership.holder(chain));
        let counts = chain.filter(|_| holder.is_some());
        let line = line.as_ref().map_or(&[][..], |line| line);
        let invitation = counts.as_ref().and_then(invitation_of).or_else(|| invitation_in(line, root));
        let since = counts.as_ref().and_then(since);
        let is_revoked = |key: &PublicKey| state.membership.is_subject_revoked(&Subject::Key(*key));
        let revoked = match &holder {
            Some(holder) => state.membership.is_revoked(holder),
            None => line.iter().chain([&key]).any(is_revoked),
        };
        let role = holder.as_ref().map_or(Role::User, |holder| holder.role);
        MemberView { subject, role, name, expires: holder.map(|holder| holder.expires), revoked, since, invitation }
    };
    users.into_iter().map(view).collect()
}

/// Takes a signed revocation, what is signed beside it: that it takes hosts back; or that a root key is followed by another.
#[utoipa::path(post, path = "/grid/revocations", tag = "grid", request_body = schema::Revocation, responses((status = 200, description = "Done", body = Revoked)))]
pub async fn revoke_member(
    State(state): State<Arc<ApiState>>,
    Body(body): Body,
) -> Result<(Extension<About>, Json<Revoked>), Problem> {
    let revocation: SignedRevocation = read_body("revocation", &body)?;
    let statement = &revocation.statement;
    let taking = || TakeBack::open(statement).map(|taking| taking.subject);
    let revoked = statement.open::<Revocation>().map(|revocation| revocation.subject).or_else(|_| taking());
    let followed = || Successor::open(statement).map(|successor| Subject::Key(successor.old));
    let about = About::of(&revoked.or_else(|_| followed()).map(|subject| subject.brief()).unwrap_or_default());
    let own = Arc::clone(&state.membership);
    // The disk takes a while, and other calls are served by the same threads.
    let revoked = tokio::task::block_in_place(|| own.revoke(&revocation));
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
