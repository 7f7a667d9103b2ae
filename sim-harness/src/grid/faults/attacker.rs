//! One hostile peer as a process of its own, so that what it costs is seen apart from what it does to others.
//!
//! It attacks in all ways that it was told from its start until its standard input ends, so that it never outlives the harness, and then prints one
//! JSON object with what it did.

use std::{
    io::{self, Read},
    net::Ipv4Addr,
    process::ExitCode,
};

use discovery::{GridId, Multiaddr};
use sim_kit::print::print;

use crate::hostile::{self, Attack, AttackPlan, Tally};

/// Flags of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct AttackerArgs {
    /// Grid whose protocols are spoken.
    #[arg(long)]
    grid: String,
    /// Multiaddr of a victim; may be repeated.
    #[arg(long, required = true)]
    target: Vec<Multiaddr>,
    /// Address of this machine that its connections come from; of its network, all attacks but a flood of connections take those that follow.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    from: Ipv4Addr,
    /// One way to attack; may be repeated [default: all].
    #[arg(long)]
    attack: Vec<Attack>,
}

/// Attacks until standard input ends, and prints what it did.
pub fn run(args: &AttackerArgs) -> anyhow::Result<ExitCode> {
    let AttackerArgs { grid, target, from, attack } = args;
    let plan = AttackPlan { grid: GridId::new(grid)?, targets: target.clone(), attacks: attack.clone(), from: *from };
    let tally = Tally::new();
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
    print(&(serde_json::to_string(&tally.deeds())? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
