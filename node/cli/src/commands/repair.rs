//! `kolo repair`: sees whether a reservation is still whole, and has lost hosts replaced.

use broker::trust::Authorization;
use kolo_api::{
    request_view::{RequestState, RequestView},
    takeover::ReservationLookup,
};
use serde::Serialize;

use super::{Context, path_of};
use crate::{
    args::RepairArgs,
    client::{Client, request_path, reservation_path},
    error::CliError,
    exit::Exit,
    report::{OfRequest, request_text},
    signing,
};

const NOT_FOUND: u16 = 404;
const TERM_TOO_LOW: u16 = 412;
/// Most terms signed for one takeover: the user may be signing at another node at the same time.
const TERMS_MAX: usize = 3;

/// Runs the command. A reservation of another entry point is taken over, which its user's key must sign.
pub fn run(context: &mut Context, args: &RepairArgs) -> Result<Exit, CliError> {
    let client = context.connect_as(&args.key)?;
    let path = format!("{}/repair", path_of(&client, &args.selector)?);
    let view: RequestView = match client.post(&path, &()) {
        Err(CliError::Problem { status, .. }) if status.as_u16() == NOT_FOUND => {
            let taken = take_over(context, &client, args)?;
            // Its sites have been asked once by then, and what is missing has been looked for.
            client.post(&format!("{}/repair", request_path(taken.id.as_str())), &())?
        }
        answer => answer?,
    };
    let exit = match view.state {
        RequestState::Degraded | RequestState::Rebrokering => Exit::NoPlacement,
        _ => Exit::Done,
    };
    context.output.print(&OfRequest { view, text: request_text })?;
    Ok(exit)
}

/// Has the node carry on with a reservation that was made through another one: in a still higher term when it knows one by then.
fn take_over(context: &Context, client: &Client, args: &RepairArgs) -> Result<RequestView, CliError> {
    let mut signed = 0;
    loop {
        signed += 1;
        match take_over_once(context, client, args) {
            Err(CliError::Problem { status, .. }) if status.as_u16() == TERM_TOO_LOW && signed < TERMS_MAX => {}
            answer => return answer,
        }
    }
}

/// Looks the request up and signs a higher term than the highest known one.
fn take_over_once(context: &Context, client: &Client, args: &RepairArgs) -> Result<RequestView, CliError> {
    let path = reservation_path(&args.selector);
    let looked: ReservationLookup = client.get(&path)?;
    let Some(request) = looked.request else {
        let (selector, asked, silent) = (&args.selector, looked.sites_asked, looked.sites_silent);
        let nothing = CliError::failed(format!(
            "no request {selector:?} was submitted through this node, and none of the {asked} sites that it knows has a \
             reservation of that name ({silent} did not answer)"
        ));
        return Err(nothing.hinted("give the whole id, as kolo submit printed it"));
    };
    let authorization = signing::sign(context, client, &args.key, looked.id, &request, looked.term)?;
    let authorization = authorization.ok_or_else(|| {
        let user = looked.user_key.unwrap_or_default();
        CliError::Usage(format!("the reservation is of the user with key {user}; give that key with --key FILE"))
    })?;
    client.post(&format!("{path}/takeover"), &TakeOver { authorization })
}

#[derive(Debug, Serialize)]
struct TakeOver {
    authorization: Authorization,
}
