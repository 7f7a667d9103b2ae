//! Memory of a node process, as the kernel counts it.

use std::fs;

use super::measure::{Percentiles, percentiles};

/// Memory of the nodes, in MiB.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Resident set: what the process has in memory, shared pages counted in full.
    pub resident: Option<Percentiles>,
    /// Proportional set: shared pages divided by their users. The nodes share the pages of one binary, so this is what
    /// one more node costs.
    pub proportional: Option<Percentiles>,
}

/// Measures the processes `pids`. A process that cannot be read (another system, no permission) is left out.
pub fn measure(pids: &[u32]) -> Memory {
    let column = |file: &str, key: &str| {
        let sizes: Vec<f64> =
            pids.iter().filter_map(|pid| mib(&fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?, key)).collect();
        percentiles(&sizes)
    };
    Memory { resident: column("status", "VmRSS:"), proportional: column("smaps_rollup", "Pss:") }
}

/// The size behind `key`, which the kernel writes as `Key:   1234 kB`.
fn mib(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib / 1024.0 * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_kernel_writes_them() {
        let text = "Name:\tkolo\nVmHWM:\t   40960 kB\nVmRSS:\t   15360 kB\n";
        assert_eq!(mib(text, "VmRSS:"), Some(15.0));
        assert_eq!(mib(text, "Pss:"), None);
        assert_eq!(mib("VmRSS: lots\n", "VmRSS:"), None);
    }
}
