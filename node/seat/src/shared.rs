//! What the commands of two users share on a machine, for its owner.
//!
//! The table "What users share" of docs/run.md says it for all runners. Invariant: what [`Confinement::shared`] leaves out is closed to every
//! other user's commands by what [`Confinement::check`] has found to work here.

use nix::unistd::geteuid;

use super::confine::{Confinement, Runner};

impl Confinement {
    /// One sentence for each thing that commands of different users share here; none where they share nothing but the machine.
    #[must_use]
    pub fn shared(&self) -> Vec<String> {
        let id = self.uids.is_none().then(|| {
            let opens = if self.runner == Runner::None {
                ", which opens their unix sockets and terminals to each other"
            } else {
                ""
            };
            format!("all commands are of one user id{opens}: {}", self.why_one_id())
        });
        let network = self.is_on_network().then(|| {
            // Landlock closes these, which containers do without.
            let since = if self.runner == Runner::Podman { "" } else { " (Linux 6.12 closes these)" };
            let ends = match self.runner {
                Runner::None => "without a sandbox they have one network",
                Runner::Bubblewrap | Runner::Systemd | Runner::Podman => "runner_network = false closes it",
            };
            format!("what a command listens with on the network, and by abstract unix sockets{since}, is open to all commands of this machine: {ends}")
        });
        let shown = (self.runner == Runner::None).then_some("command lines are shown to all commands (/proc)");
        let memory = (self.runner == Runner::None)
            .then_some("files in /dev/shm that their makers let others read are open to all commands");
        let paths = (!self.paths.is_empty()).then_some("runner_paths are open to all commands");
        let plain = [shown, memory, paths].into_iter().flatten().map(str::to_owned);
        id.into_iter().chain(network).chain(plain).collect()
    }

    fn why_one_id(&self) -> &'static str {
        match self.runner {
            _ if !geteuid().is_root() => "only a node that runs as root gives each seat one of its own",
            Runner::Podman => "podman makes containers for the user alone whose images they are",
            _ if !self.paths.is_empty() => {
                "runner_uids, such as \"2013265920-2147483647\", gives each seat one of its own beside runner_paths"
            }
            Runner::None | Runner::Bubblewrap | Runner::Systemd => {
                "runner_uids = \"off\" says so, or this machine does not have the ids (/proc/self/uid_map)"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{confine::tests::confinement, uids::UidRange},
        *,
    };

    #[test]
    fn what_is_shared_is_named_and_nothing_else() {
        let heads = |one: &Confinement| -> Vec<String> {
            one.shared().iter().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
        };
        let uids = Some(UidRange::only(0x7800_0000));
        let closed = Confinement { runner: Runner::Bubblewrap, has_network: false, uids, ..confinement() };
        assert_eq!(heads(&closed), [""; 0]);
        let unit = Confinement { runner: Runner::Systemd, has_network: true, ..closed.clone() };
        assert_eq!(heads(&unit), ["what a command"]);
        let plain = Confinement { runner: Runner::None, ..closed.clone() };
        assert_eq!(
            heads(&plain),
            ["what a command", "command lines are", "files in /dev/shm"],
            "it always has the network"
        );
        let open = Confinement { uids: None, paths: vec!["/srv".into()], ..closed };
        assert_eq!(heads(&open), ["all commands are", "runner_paths are open"]);
        let container = Confinement { runner: Runner::Podman, ..open };
        assert_eq!(heads(&container), ["all commands are", "runner_paths are open"]);
    }
}
