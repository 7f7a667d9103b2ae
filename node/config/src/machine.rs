//! The machine that the node runs on, as a host.
//!
//! Invariant: what is offered is at most the given share of what the process itself may use (a container's limits
//! included); speeds are not shared, so `mhz` is offered whole.

use std::{num::NonZeroUsize, path::Path, thread};

use broker::{
    amount::Amount,
    host::Host,
    ids::HostId,
    resources::{Amounts, Attributes, ResourceName},
};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};

use super::{disk::Disk, error::ConfigError, memory_limit, values::Percent};

const BYTES_PER_MIB: u64 = 1 << 20;

/// What was found on the machine, before the owner's share is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Machine {
    cores: u64,
    mhz: u64,
    memory_mib: u64,
    disk_total_mib: u64,
    disk_free_mib: u64,
    arch: String,
    os: String,
}

/// Detects the machine and offers `share` of it under the name `id`. `data_dir` says which disk is meant.
///
/// # Errors
/// [`ConfigError::Machine`] when the system does not tell.
pub fn detect(id: HostId, share: Percent, extra: &Attributes, data_dir: &Path) -> Result<Host, ConfigError> {
    let machine = look(data_dir).map_err(|error| ConfigError::Machine(error.to_string()))?;
    Ok(offer(&machine, id, share, extra))
}

fn look(data_dir: &Path) -> Result<Machine, sysinfo::Error> {
    let mut system = System::new()?;
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    system.refresh_cpu_list(CpuRefreshKind::nothing().with_frequency());
    let limit = memory_limit::in_bytes().unwrap_or(u64::MAX);
    // Without an answer the disk is not offered.
    let (disk_total_mib, disk_free_mib) = Disk::of(data_dir).map_or((0, 0), |disk| (disk.total_mib, disk.free_mib));
    Ok(Machine {
        cores: thread::available_parallelism().map_or(1, NonZeroUsize::get) as u64,
        mhz: system.cpus().iter().map(sysinfo::Cpu::frequency).max().unwrap_or(0),
        memory_mib: system.total_memory().min(limit) / BYTES_PER_MIB,
        disk_total_mib,
        disk_free_mib,
        arch: System::cpu_arch(),
        os: std::env::consts::OS.to_owned(),
    })
}

fn offer(machine: &Machine, id: HostId, share: Percent, extra: &Attributes) -> Host {
    let amounts = [
        ("cpu", share.of(machine.cores.saturating_mul(1000))),
        ("mhz", machine.mhz),
        ("memory", share.of(machine.memory_mib)),
        ("disk", share.of(machine.disk_total_mib).min(machine.disk_free_mib)),
    ];
    let capacity: Amounts = amounts
        .into_iter()
        .filter(|(_, amount)| *amount > 0)
        .filter_map(|(name, amount)| Some((ResourceName::new(name).ok()?, Amount(amount.min(Amount::MAX.0)))))
        .collect();
    let mut attributes =
        Attributes::from([("arch".to_owned(), machine.arch.clone()), ("os".to_owned(), machine.os.clone())]);
    attributes.extend(extra.clone());
    Host { id, capacity, attributes, speed: broker::host::Speed::REFERENCE, tariff: Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> HostId {
        HostId::new("here").unwrap()
    }

    #[test]
    fn the_owner_keeps_the_rest() {
        let machine = Machine {
            cores: 3,
            mhz: 0,
            memory_mib: 4001,
            disk_total_mib: 1000,
            disk_free_mib: 100,
            arch: "x86_64".to_owned(),
            os: "linux".to_owned(),
        };
        let extra = Attributes::from([("rack".to_owned(), "7".to_owned())]);
        let host = offer(&machine, id(), Percent::HALF, &extra);
        let capacity: Vec<_> = host.capacity.iter().map(|(name, amount)| (name.as_str(), amount.0)).collect();
        assert_eq!(capacity, [("cpu", 1500), ("disk", 100), ("memory", 2000)]);
        assert_eq!(host.attributes.len(), 3);
    }

    #[test]
    fn this_machine_is_detected() {
        let host = detect(id(), Percent::HALF, &Attributes::new(), Path::new("/")).unwrap();
        let has = |name: &str| host.capacity.contains_key(&ResourceName::new(name).unwrap());
        assert!(has("cpu") && has("memory"), "{host:?}");
    }
}
