//! Which key signs a user's request, and the body that is handed to the node.
//!
//! Invariant: a key that the user named is used or complained about, never passed over; without any key the request goes
//! out plain, and the node signs it for its operator, since only that one can show the API's token.

use std::{
    env,
    path::{Path, PathBuf},
};

use broker::{ids::RequestId, negotiation::HandedPlan, request::Request, trust::Authorization};
use serde::Serialize;

use super::{client::Client, commands::Context, error::CliError, grid_args::KeyArgs};
use crate::{
    api::grid::Status,
    trust::{Signer, Wallet, new_request_id},
};

/// The environment variable for `--key`.
const KEY_VARIABLE: &str = "KOLO_KEY";

/// What is handed to the node.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Submission {
    /// Signed by its user.
    Signed {
        /// The signed request and the user's credentials.
        authorization: Box<Authorization>,
        /// What is to be reserved, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        plan: Option<HandedPlan>,
    },
    /// For the node's operator, with what is to be reserved.
    Planned {
        /// The request.
        request: Box<Request>,
        /// What is to be reserved.
        plan: HandedPlan,
    },
    /// For the node's operator.
    Plain(Box<Request>),
}

/// Signs `request` with the user's key, if there is one.
///
/// # Errors
/// [`CliError`] when the named key cannot be used, or the node cannot be asked which grid it is of.
pub fn submission(
    context: &Context,
    client: &Client,
    args: &KeyArgs,
    request: Request,
    plan: Option<HandedPlan>,
) -> Result<Submission, CliError> {
    let signed = sign(context, client, args, new_request_id()?, &request, None)?;
    Ok(match (signed, plan) {
        (Some(authorization), plan) => Submission::Signed { authorization: Box::new(authorization), plan },
        (None, Some(plan)) => Submission::Planned { request: Box::new(request), plan },
        (None, None) => Submission::Plain(Box::new(request)),
    })
}

/// Signs `request` under the name `id` for the node that answers, in a higher term than `last` if that is given; none when the user
/// has no key for its grid.
pub fn sign(
    context: &Context,
    client: &Client,
    args: &KeyArgs,
    id: RequestId,
    request: &Request,
    last: Option<u64>,
) -> Result<Option<Authorization>, CliError> {
    let now = context.time();
    let named = args.key.clone().or_else(|| env::var_os(KEY_VARIABLE).map(PathBuf::from));
    let wallets = match &named {
        Some(file) => vec![Wallet::of_key(file)],
        None => context.wallets()?,
    };
    if named.is_none() && !wallets.iter().any(|wallet| wallet.key_path().exists()) {
        return Ok(None);
    }
    let status: Status = client.get("/v1/status")?;
    let Some(signer) = choose(&wallets, named.as_deref(), &status)? else { return Ok(None) };
    Ok(Some(signer.sign(&status.grid, &status.site, id, request.clone(), now, last)?))
}

/// The first wallet that can sign in the node's grid.
fn choose(wallets: &[Wallet], named: Option<&Path>, status: &Status) -> Result<Option<Signer>, CliError> {
    let is_open = status.grid_form != "closed";
    for wallet in wallets {
        if let Some(signer) = wallet.signer(&status.grid)?.filter(|signer| is_open || signer.chain.is_some()) {
            return Ok(Some(signer));
        }
    }
    let Some(file) = named else { return Ok(None) };
    let shown = file.display();
    Err(CliError::Usage(if file.exists() {
        format!("--key {shown}: there is no credential of grid {} beside it; join the grid first", status.grid)
    } else {
        format!("--key {shown}: there is no such file")
    }))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use serde_json::json;

    use super::*;
    use crate::api::samples;

    fn status(grid_form: &str) -> Status {
        samples::status(&json!({ "grid": "lab", "grid_form": grid_form }))
    }

    #[test]
    fn in_a_closed_grid_a_key_needs_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        let wallet = Wallet::at(directory.path());
        let file = wallet.key_path().to_owned();
        let error = choose(slice::from_ref(&wallet), Some(&file), &status("open")).err().unwrap().to_string();
        assert!(error.contains("there is no such file"), "{error}");
        wallet.key_or_new().unwrap();
        assert!(choose(slice::from_ref(&wallet), None, &status("open")).unwrap().is_some());
        assert!(choose(slice::from_ref(&wallet), None, &status("closed")).unwrap().is_none());
        let error = choose(&[wallet], Some(&file), &status("closed")).err().unwrap().to_string();
        assert!(error.contains("no credential of grid lab"), "{error}");
    }
}
