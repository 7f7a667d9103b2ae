//! `kolo node`: has the node run, or shows the configuration it would run with.

use kolo_config::{NodeArgs, load as load_config, print_config};

use super::Context;
use crate::{
    error::{CliError, RunNode},
    exit::Exit,
};

pub fn run(context: &mut Context, args: &NodeArgs, run_node: RunNode) -> Result<Exit, CliError> {
    let (global, is_printed) = (&context.global, args.print_config);
    let (args, global, surroundings) = (args.clone(), global.clone(), context.surroundings.clone());
    let load = move || load_config(&args, global.data_dir.as_deref(), global.api.as_deref(), &surroundings);
    let config = load()?;
    if is_printed {
        context.output.raw(&print_config(&config))?;
        return Ok(Exit::Done);
    }
    run_node(config, Box::new(load))?;
    Ok(Exit::Done)
}
