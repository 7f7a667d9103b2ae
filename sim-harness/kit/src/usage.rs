//! Memory and processor time of processes, as the kernel counts them: `None` where it does not show them.

use std::time::Duration;

use procfs::{Current, Meminfo, process::Process};

fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// To a tenth.
fn mib(kib: u64) -> f64 {
    (kib as f64 / 1024.0 * 10.0).round() / 10.0
}

/// Resident memory of a process in MiB; shared pages count in full.
pub fn resident_mib(pid: u32) -> Option<f64> {
    process(pid)?.status().ok()?.vmrss.map(mib)
}

/// Memory of a process in MiB with shared pages divided by their users. The nodes of a grid share the pages of one binary, so
/// this is what one more node costs.
pub fn proportional_mib(pid: u32) -> Option<f64> {
    let rollup = process(pid)?.smaps_rollup().ok()?;
    let bytes = rollup.memory_map_rollup.0.first()?.extension.map.get("Pss")?;
    Some(mib(bytes / 1024))
}

/// Memory that new processes can have without swapping, in MiB.
pub fn available_mib() -> Option<u64> {
    Meminfo::current().ok()?.mem_available.map(|bytes| bytes >> 20)
}

/// The most resident memory that this process has had so far, in MiB.
pub fn peak_mib() -> Option<f64> {
    Process::myself().ok()?.status().ok()?.vmhwm.map(mib)
}

/// Processor time that a process has used, its threads together.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let stat = process(pid)?.stat().ok()?;
    Some(Duration::from_secs_f64((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something_of_each() {
        let own = std::process::id();
        let resident = resident_mib(own).unwrap();
        assert!(resident > 1.0 && peak_mib().unwrap() >= resident * 0.9, "{resident}");
        assert!((0.1..=resident * 1.1).contains(&proportional_mib(own).unwrap()));
        assert!(available_mib().unwrap() > 1 && processor_time(own).is_some());
        assert_eq!(resident_mib(i32::MAX as u32), None);
    }
}
