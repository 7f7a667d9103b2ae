//! Flags of `kolo-sim faults`.

use std::hash::{BuildHasher as _, RandomState};

use sim_kit::print::OutputForm;

use super::{canary::Canary, trial::DISKED_FROM};

/// Most seeds of one run.
const SEEDS_MAX: u64 = 100_000_000;
/// The last first seed. Behind the last seed there is room for every worker to look for another one.
const FROM_MAX: u64 = u64::MAX - 2 * SEEDS_MAX;

/// Random first seeds stay below this, so that people can read them.
const RANDOM_FROM_MAX: u64 = DISKED_FROM / 2 * 3;

/// Run ledgers, negotiations and views against a simulated network, disk and clock with faults, and check the promises.
#[derive(Debug, clap::Args)]
pub struct FaultsArgs {
    /// Seeds to run, one after another.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub seeds: u64,
    /// The first seed. Default: a random one, which is printed.
    #[arg(long, value_name = "SEED", value_parser = clap::value_parser!(u64).range(..=FROM_MAX))]
    pub from: Option<u64>,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value = "table")]
    pub output: OutputForm,
    /// Switch a deliberate fault on, which must then be found.
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub canary: Option<Canary>,
    /// Print the names of the deliberate faults, one a line, and stop.
    #[arg(long)]
    pub list_canaries: bool,
    /// Print everything that happened to the request concerned; without a violation, everything in the last seed.
    #[arg(long)]
    pub history: bool,
}

impl FaultsArgs {
    /// The first seed that was asked for, or a random one: seeds that nobody has run before are worth most.
    pub fn first_seed(&self) -> u64 {
        self.from.unwrap_or_else(|| RandomState::new().hash_one(()) % (RANDOM_FROM_MAX - DISKED_FROM) + DISKED_FROM)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: FaultsArgs,
    }

    #[test]
    fn seeds_never_run_over_the_largest_number() {
        let from = |from: u64| Line::try_parse_from(["faults", "--from", &from.to_string()]).map(|line| line.args.from);
        assert_eq!(from(FROM_MAX).unwrap(), Some(FROM_MAX));
        assert!(from(FROM_MAX + 1).is_err() && from(u64::MAX).is_err());
    }
}
