//! Flags of `kolo-sim scale`: as written, and checked.
//!
//! Invariant: what cannot be simulated is bad usage, found before anything runs.

use std::path::PathBuf;

use clap::Args;

use super::error::ScaleError;
use super::geography::NetworkKind;
use crate::{
    grid::{args::in_range, scenario::duration},
    print::OutputForm,
};

/// Most sites.
pub const SITES_MAX: usize = 20_000;
/// Most hosts of a site: larger sites are not what makes a grid large.
pub const HOSTS_PER_SITE_MAX: usize = 64;
/// Most shards: one byte tells them apart.
const SHARDS_MAX: usize = 256;
/// Longest run.
const HOURS_MAX: u64 = 24;

/// Simulate discovery and negotiation of large grids in virtual time, and print what a node has to bear and a user gets.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Sites; several sizes are run one after another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [100, 1_000, 10_000])]
    pub sites: Vec<usize>,
    /// Shards that gossip is split into; several are run one after another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 16, 64])]
    pub shards: Vec<usize>,
    /// Hosts of a site.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub hosts_per_site: usize,
    /// Hosts that a node wants to know; it takes part in as many shards as give it so many.
    #[arg(long, value_name = "N", default_value_t = 2_500)]
    pub view_hosts: usize,
    /// Virtual time to simulate.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub duration: String,
    /// Requests an hour for each site, at random moments through random entry points.
    #[arg(long, value_name = "R", default_value_t = 3.6)]
    pub rate: f64,
    /// Hosts that a request asks for.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub hosts_per_request: u32,
    /// Of a hundred sites, how many stop within an hour and come back later.
    #[arg(long, value_name = "PERCENT", default_value_t = 20)]
    pub churn: u64,
    /// What lies between the sites.
    #[arg(long, value_enum, default_value_t = NetworkKind::Wan)]
    pub network: NetworkKind,
    /// Of a million frames, how many are lost and sent again.
    #[arg(long, value_name = "PPM", default_value_t = 1_000)]
    pub loss: u64,
    /// How long a write takes until it is on disk.
    #[arg(long, value_name = "DURATION", default_value = "4ms")]
    pub disk: String,
    /// Least time between two gossip messages with schedule changes of a site [default: a node's].
    #[arg(long, value_name = "DURATION")]
    pub gossip: Option<String>,
    /// Everything random comes from this number.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run what the real grid has run whose result is in this file (`kolo-sim grid --free --output json`), and print how the
    /// two differ; sites, hosts, requests and seed are taken from it.
    #[arg(long, value_name = "GRID_RESULT.json", conflicts_with_all = ["sites", "shards", "hosts_per_site", "rate", "churn"])]
    pub compare: Option<PathBuf>,
    /// With --compare: requests that were submitted at the same moment.
    #[arg(long, value_name = "K", default_value_t = 8, requires = "compare")]
    pub entry_points: usize,
    /// Write a report here: one self-contained page.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// What is printed on standard output.
    #[arg(long, value_enum, default_value_t = OutputForm::Table)]
    pub output: OutputForm,
}

/// Times that the flags name, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Virtual time to simulate.
    pub duration_us: u64,
    /// A write.
    pub disk_us: u64,
    /// Between two gossip messages, if not as a node's.
    pub gossip: Option<std::time::Duration>,
}

impl ScaleArgs {
    /// Checks the flags and reads the times.
    ///
    /// # Errors
    /// [`ScaleError`] naming the flag and what was expected.
    pub fn check(&self) -> Result<Times, ScaleError> {
        for sites in &self.sites {
            in_range("--sites", *sites, 1, SITES_MAX)?;
        }
        for shards in &self.shards {
            in_range("--shards", *shards, 1, SHARDS_MAX)?;
        }
        in_range("--hosts-per-site", self.hosts_per_site, 1, HOSTS_PER_SITE_MAX)?;
        in_range("--view-hosts", self.view_hosts, 1, SITES_MAX * HOSTS_PER_SITE_MAX)?;
        in_range("--entry-points", self.entry_points, 1, SITES_MAX)?;
        in_range("--churn", usize::try_from(self.churn).unwrap_or(usize::MAX), 0, 1_000)?;
        in_range("--loss", usize::try_from(self.loss).unwrap_or(usize::MAX), 0, 200_000)?;
        // A tenth of a request an hour to two requests a second for each site.
        if !(0.1..=7_200.0).contains(&self.rate) {
            return Err(ScaleError::Rate(self.rate));
        }
        let us =
            |flag, text: &str| duration(flag, text).map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let duration_us = us("--duration", &self.duration)?;
        in_range(
            "--duration, in hours",
            usize::try_from(duration_us.div_ceil(3_600_000_000)).unwrap_or(usize::MAX),
            1,
            HOURS_MAX as usize,
        )?;
        Ok(Times {
            duration_us,
            disk_us: us("--disk", &self.disk)?,
            gossip: self.gossip.as_deref().map(|text| duration("--gossip", text)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ScaleArgs,
    }

    fn check(flags: &str) -> Result<Times, String> {
        let cli = Cli::try_parse_from(format!("x {flags}").split_whitespace()).map_err(|error| error.to_string())?;
        cli.args.check().map_err(|error| error.to_string())
    }

    #[test]
    fn bad_flags_are_named() {
        assert_eq!(check("").unwrap().duration_us, 3_600_000_000);
        for (flags, expected) in [
            ("--sites 0", "--sites: expected 1 to"),
            ("--sites 100,30000", "--sites"),
            ("--shards 257", "--shards: expected 1 to 256, got 257"),
            ("--hosts-per-site 0", "--hosts-per-site"),
            ("--rate 0", "--rate: expected"),
            ("--rate NaN", "--rate: expected"),
            ("--duration 1", "--duration: expected a number with a unit"),
            ("--duration 25h", "--duration"),
            ("--loss 300000", "--loss"),
            ("--compare a.json --sites 5", "--sites"),
            ("--entry-points 5", "--compare"),
        ] {
            let error = check(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }
}
