//! One hostile peer as a process of its own, so that what it costs is seen apart from what it does to others.
//!
//! It attacks in every way from its start until its standard input ends, so that it never outlives the harness, and then prints one
//! JSON object with what it did.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    process::ExitCode,
    sync::Arc,
};

use discovery::{GridId, Multiaddr};
use serde::{Deserialize, Serialize};

use crate::{
    hostile::{self, Attack, AttackPlan, Tally},
    print::print,
};

/// Flags of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct AttackerArgs {
    /// Grid whose protocols are spoken.
    #[arg(long)]
    grid: String,
    /// Multiaddr of a victim; may be repeated.
    #[arg(long, required = true)]
    target: Vec<Multiaddr>,
}

/// What an attacker did.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deeds {
    /// Messages by attack.
    pub sent: BTreeMap<String, u64>,
    /// Identities that it used.
    pub identities: u64,
    /// Connections that it had.
    pub connections: u64,
    /// Connections that the other side closed or refused.
    pub thrown_out: u64,
    /// Direct requests that were answered at all.
    pub answers: u64,
}

impl Deeds {
    /// Adds what another attacker did.
    pub fn add(&mut self, other: Deeds) {
        for (attack, count) in other.sent {
            *self.sent.entry(attack).or_default() += count;
        }
        self.identities += other.identities;
        self.connections += other.connections;
        self.thrown_out += other.thrown_out;
        self.answers += other.answers;
    }
}

/// Attacks until standard input ends, and prints what it did.
pub fn run(args: &AttackerArgs) -> anyhow::Result<ExitCode> {
    let attacks = Attack::ALL.into_iter().collect();
    let plan = AttackPlan { grid: GridId::new(&args.grid)?, targets: args.target.clone(), attacks };
    let tally = Arc::new(Tally::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let input_ends =
            tokio::task::spawn_blocking(|| io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink()));
        tokio::select! {
            failed = hostile::run(&plan, &tally) => failed.map(|never| match never {}),
            _ = input_ends => Ok(()),
        }
    });
    runtime.shutdown_background();
    ended?;
    let deeds = Deeds {
        sent: tally.sent().into_iter().map(|(attack, count)| (attack.to_owned(), count)).collect(),
        identities: tally.identities(),
        connections: tally.connections(),
        thrown_out: tally.thrown_out(),
        answers: tally.answers(),
    };
    print(&(serde_json::to_string(&deeds)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
