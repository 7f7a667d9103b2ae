//! `kolo show`: one request in full.

use super::{Context, path_of};
use crate::{
    args::SelectorArgs,
    error::CliError,
    exit::Exit,
    report::{OfRequest, request_text},
};

pub fn run(context: &mut Context, args: &SelectorArgs) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let view = client.get(&path_of(&client, &args.selector)?)?;
    context.done(&OfRequest { view, text: request_text })
}
