//! `kolo repair`: sees whether a reservation is still whole, and has lost hosts replaced.

use broker::{ids::RequestId, request::Request, time::Time, trust::Authorization};
use serde::{Deserialize, Serialize};

use super::{Context, path_of};
use crate::cli::{
    args::RepairArgs,
    client::{ApiError, Client, request_path, reservation_path},
    error::{CliError, Exit},
    output::{Look, Report},
    report::request_text,
    signing,
    views::{RequestState, RequestView},
};

const NOT_FOUND: u16 = 404;

/// Runs the command. A reservation of another entry point is taken over, which its user's key must sign.
///
/// # Errors
/// [`CliError`].
pub fn run(context: &mut Context, args: &RepairArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let path = format!("{}/repair", path_of(&client, &args.selector)?);
    let view: RequestView = match client.post(&path, &()) {
        Err(ApiError::Problem { status, .. }) if status.as_u16() == NOT_FOUND => {
            let taken = take_over(context, &client, args)?;
            // Its sites have been asked once by then, and what is missing has been looked for.
            client.post(&format!("{}/repair", request_path(&taken.id)), &())?
        }
        answer => answer?,
    };
    let exit = match view.state {
        RequestState::Degraded | RequestState::Rebrokering => Exit::NoPlacement,
        _ => Exit::Done,
    };
    context.output.print(&Repaired { view })?;
    Ok(exit)
}

/// Has the node carry on with a reservation that was made through another one.
fn take_over(context: &Context, client: &Client, args: &RepairArgs) -> Result<RequestView, CliError> {
    let path = reservation_path(&args.selector);
    let looked: Looked = client.get(&path)?;
    let Some(request) = looked.request else {
        return Err(CliError::NothingReserved {
            selector: args.selector.clone(),
            asked: looked.sites_asked,
            silent: looked.sites_silent,
        });
    };
    let authorization = signing::sign(context, client, &args.key, looked.id, &request, looked.signed_at)?;
    let authorization = authorization.ok_or_else(|| {
        let user = looked.user_key.unwrap_or_default();
        CliError::Usage(format!("the reservation is of the user with key {user}; give that key with --key FILE"))
    })?;
    Ok(client.post(&format!("{path}/takeover"), &TakeOver { authorization })?)
}

/// What `GET /v1/reservations/{id}` tells.
#[derive(Debug, Deserialize)]
struct Looked {
    id: RequestId,
    user_key: Option<String>,
    request: Option<Request>,
    signed_at: Option<Time>,
    sites_asked: usize,
    sites_silent: usize,
}

#[derive(Debug, Serialize)]
struct TakeOver {
    authorization: Authorization,
}

struct Repaired {
    view: RequestView,
}

impl Report for Repaired {
    fn body(&self) -> impl Serialize {
        &self.view
    }
    fn text(&self, look: &Look) -> String {
        request_text(&self.view, look)
    }
    fn ids(&self) -> Vec<String> {
        vec![self.view.id.clone()]
    }
}
