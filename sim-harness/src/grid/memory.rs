//! Memory and processor time of a process, as the kernel counts them.

use std::{fs, time::Duration};

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

/// Measures the processes `pids`, which `nodes` nodes share evenly. A process that cannot be read (another system, no
/// permission) is left out.
pub fn measure(pids: &[u32], nodes: usize) -> Memory {
    let nodes_each = nodes as f64 / pids.len().max(1) as f64;
    let column = |file: &str, key: &str| {
        let size = |pid: &u32| mib(&fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?, key);
        percentiles(&pids.iter().filter_map(size).map(|size| size / nodes_each).collect::<Vec<_>>())
    };
    Memory { resident: column("status", "VmRSS:"), proportional: column("smaps_rollup", "Pss:") }
}

/// Resident memory of a process in MiB; `None` when it cannot be read.
pub fn resident(pid: u32) -> Option<f64> {
    mib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// Memory that new processes can have without swapping, in MiB; `None` when it cannot be read.
pub fn available_mib() -> Option<u64> {
    mib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:").map(|available| available as u64)
}

/// The most resident memory that this process has had so far, in MiB; `None` when the system does not tell.
pub fn peak() -> Option<f64> {
    mib(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Processor time that a process has used, its threads together; `None` when it cannot be read.
pub fn processor_time(pid: u32) -> Option<Duration> {
    ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// User and system time of a `stat` line. The name in parentheses may contain anything, so fields count from behind it.
fn ticks(line: &str) -> Option<Duration> {
    /// The kernel shows times in hundredths of a second, whatever its own clock does.
    const TICK_MS: u64 = 10;
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let (user, system): (u64, u64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some(Duration::from_millis(user.checked_add(system)?.checked_mul(TICK_MS)?))
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

    #[test]
    fn processor_time_is_read_behind_the_name() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 100 1 1";
        assert_eq!(ticks(line), Some(Duration::from_secs(3)));
        assert_eq!(ticks("7 (a) S 1"), None);
        let own = std::process::id();
        assert!(available_mib().unwrap() > 1 && resident(own).unwrap() > 1.0 && processor_time(own).is_some());
    }
}
