//! The configuration of a node, from its flags and its file.

use std::path::Path;

use super::{ConfigError, NodeArgs, NodeConfig, Surroundings, file::ConfigFile, resolve::Layers};
use crate::text::document::{self, Syntax};

/// Reads the file that `args` name, puts the flags over it, and checks everything.
///
/// # Errors
/// [`ConfigError`] that names file and key, or the flag.
pub fn load(
    args: &NodeArgs,
    data_dir: Option<&Path>,
    api: Option<&str>,
    surroundings: &Surroundings,
) -> Result<NodeConfig, ConfigError> {
    let file = match &args.config {
        Some(path) => document::parse(path, &document::read_text(path)?, Syntax::Toml)?,
        None => ConfigFile::default(),
    };
    let layers = Layers::new(args.layer(data_dir, api)?, file, args.config.clone());
    layers.resolve(surroundings)
}
