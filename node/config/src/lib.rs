//! The configuration of a node: from its keys ([`settings`]), the file and the flags ([`layers`]) to what is in force
//! ([`load()`]).
//!
//! Invariant: a [`NodeConfig`] is complete and checked, relations between values included; the daemon never meets a
//! missing or a contradicting one. Flags win over the file, the file over the defaults.

#![allow(
    missing_docs,
    reason = "other crates of the node alone read this: a comment stands where the name does not say it"
)]

mod args;
mod calendar;
pub mod contact;
pub mod disk;
mod error;
mod hosts;
mod keys;
mod layers;
mod load;
mod machine;
mod memory_limit;
mod offered;
mod prices;
mod print;
mod settings;
mod surroundings;
mod tariffs;
#[cfg(test)]
mod tests;
mod values;

pub use self::{
    args::NodeArgs,
    error::ConfigError,
    load::{BATCH_EVERY_MIN, ConfigSource, NodeConfig, load, load_in_process},
    print::print_config,
    settings::{ActivationSettings, DEFAULT_API, LocalSettings, NoticesSettings, Settings},
    surroundings::Surroundings,
    values::{LogFormat, WebUrl, parse_effort},
};
