//! The body of a submission: signed by its user, or for the node's operator.
//!
//! Invariant: without any key the request goes out plain, and the node signs it for its operator, if the token allows that.

use broker::{
    ids::RequestId,
    negotiation::HandedPlan,
    request::{Request, RequestDocument},
    trust::Authorization,
};
use kolo_api::{session::Challenge, waiting::AddQuestion};
use kolo_trust::{Signer, new_request_id};
use serde::Serialize;

use super::{client::Client, commands::Context, error::CliError, grid_args::KeyArgs, run::seat::Opener};

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
        /// Whether something else will do when that cannot be reserved.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        replans: bool,
    },
    /// For the node's operator, with what is to be reserved.
    Planned {
        /// The request.
        request: Box<Request>,
        /// What is to be reserved.
        plan: HandedPlan,
        /// Whether something else will do when that cannot be reserved.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        replans: bool,
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
        (Some(authorization), plan) => {
            Submission::Signed { authorization: Box::new(authorization), plan, replans: false }
        }
        (None, Some(plan)) => Submission::Planned { request: Box::new(request), plan, replans: false },
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
    let Some((node, signer)) = signer(context, client, args)? else { return Ok(None) };
    Ok(Some(signer.sign(&node.grid, &node.site, id, request.clone(), context.time(), last)?))
}

/// What shows the owners who asks, where the user has a key for the node's grid: it reserves nothing.
///
/// # Errors
/// As for [`submission`].
pub fn asker(context: &Context, client: &Client, args: &KeyArgs) -> Result<Option<Authorization>, CliError> {
    let Some((node, signer)) = signer(context, client, args)? else { return Ok(None) };
    Ok(Some(signer.sign_question(&node.grid, &node.site, context.time())?))
}

/// Signs these requests, each with its plan, as [`submission`] does; `replans`: something else will do when that cannot be reserved.
///
/// # Errors
/// As there.
pub fn planned_submissions(
    context: &Context,
    client: &Client,
    args: &KeyArgs,
    requests: impl Iterator<Item = (Request, HandedPlan)>,
    replans: bool,
) -> Result<Vec<Submission>, CliError> {
    let signer = signer(context, client, args)?;
    let submission = |(request, plan): (Request, HandedPlan)| match &signer {
        None => Ok(Submission::Planned { request: Box::new(request), plan, replans }),
        Some((node, signer)) => {
            let signed = signer.sign(&node.grid, &node.site, new_request_id()?, request, context.time(), None)?;
            Ok(Submission::Signed { authorization: Box::new(signed), plan: Some(plan), replans })
        }
    };
    requests.map(submission).collect()
}

/// These requests as they are left with the node: signed with the user's key, if there is one.
///
/// # Errors
/// As for [`submission`].
pub fn to_wait(
    context: &Context,
    client: &Client,
    args: &KeyArgs,
    requests: Vec<Request>,
) -> Result<AddQuestion, CliError> {
    let Some((node, signer)) = signer(context, client, args)? else {
        let requests = requests.into_iter().map(RequestDocument::from).collect();
        return Ok(AddQuestion { requests, signed: Vec::new() });
    };
    let sign = |request| {
        let id = new_request_id()?;
        Ok(signer.sign(&node.grid, &node.site, id, request, context.time(), None)?)
    };
    let signed = requests.into_iter().map(sign).collect::<Result<_, CliError>>()?;
    Ok(AddQuestion { requests: Vec::new(), signed })
}

/// The grid of the node that answers, and who signs for its user what is wanted of seats: the user, or else the node.
///
/// # Errors
/// As for [`submission`].
pub fn opener(context: &Context, client: &Client, args: &KeyArgs) -> Result<(String, Opener), CliError> {
    if let Some((node, signer)) = signer(context, client, args)? {
        return Ok((node.grid, Opener::Key(signer.key)));
    }
    Ok((client.challenge("GET", "/v1/requests")?.grid, Opener::Node))
}

/// The node that answers and who signs for it; none when the user has no key for its grid.
fn signer(context: &Context, client: &Client, args: &KeyArgs) -> Result<Option<(Challenge, Signer)>, CliError> {
    let keys = context.keys(args)?;
    if !keys.may_exist() {
        return Ok(None);
    }
    let node = client.challenge("POST", "/v1/requests")?;
    Ok(keys.choose(&node)?.map(|signer| (node, signer)))
}
