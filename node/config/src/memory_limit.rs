//! The memory that the cgroups of this process leave it: its own and each above it, of version 1 and 2.
//!
//! Invariant: the least limit that can be read is found, wherever in the hierarchy it is; what cannot be read limits nothing.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// The files with the limits, in bytes: of version 2 the hard one and that above which a process is slowed down, and of version 1.
const FILES: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// The least limit, in bytes; none where there is none.
pub fn in_bytes() -> Option<u64> {
    let [mounts, own] = ["/proc/self/mountinfo", "/proc/self/cgroup"].map(fs::read_to_string);
    least(&mounts.ok()?, &own.ok()?)
}

/// The least limit by what a process reads of its mounts and of its cgroups.
fn least(mounts: &str, own: &str) -> Option<u64> {
    let groups = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let limits = groups.flat_map(|(controllers, path)| {
        let is_version_2 = controllers.is_empty();
        let has_memory = is_version_2 || controllers.split(',').any(|name| name == "memory");
        let place = has_memory.then(|| place_of(mounts, is_version_2, Path::new(path))).flatten();
        place.into_iter().filter_map(|(mount, group)| least_up_to(&mount, &group))
    });
    limits.min()
}

/// Where the hierarchy is mounted, and the cgroup `own` in it.
fn place_of(mounts: &str, is_version_2: bool, own: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut of_kind = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_it = match kind.next()? {
            "cgroup2" => is_version_2,
            "cgroup" => !is_version_2 && kind.nth(1)?.split(',').any(|option| option == "memory"),
            _ => false,
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        is_it.then(|| (Path::new(root), PathBuf::from(point)))
    });
    let below = |root: &Path| {
        let below = own.strip_prefix(root).ok()?;
        below.components().all(|part| matches!(part, Component::Normal(_))).then_some(below)
    };
    let first = of_kind.clone().next();
    let place = of_kind.find_map(|(root, point)| {
        let group = point.join(below(root)?);
        Some((point, group))
    });
    // A container may see its own cgroup as the root of all.
    place.or_else(|| first.map(|(_, point)| (point.clone(), point)))
}

/// The least limit of a cgroup and those above it.
fn least_up_to(mount: &Path, group: &Path) -> Option<u64> {
    let groups = group.ancestors().take_while(|group| group.starts_with(mount));
    let files = groups.flat_map(|group| FILES.map(|name| group.join(name)));
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy with these files, mounted at a temporary directory; what `least` makes of it.
    fn least_of(files: &[(&str, &str)], mounts: &str, own: &str) -> Option<u64> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        least(&mounts.replace("DIR", &directory.path().display().to_string()), own)
    }

    const VERSION_2: &str = "31 24 0:27 / DIR rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const VERSION_1: &str = "30 24 0:26 / DIR/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                             31 24 0:27 / DIR/memory rw shared:9 - cgroup cgroup rw,memory\n";

    #[test]
    fn the_least_limit_of_the_own_cgroup_and_those_above_counts() {
        let unit = [
            ("memory.max", "max"),
            ("system.slice/memory.max", "1073741824"),
            ("system.slice/kolo.service/memory.max", "max"),
            ("system.slice/kolo.service/memory.high", "536870912"),
            ("system.slice/other.service/memory.max", "1"),
        ];
        assert_eq!(least_of(&unit, VERSION_2, "0::/system.slice/kolo.service\n"), Some(512 << 20));
        assert_eq!(least_of(&unit[..3], VERSION_2, "0::/system.slice/kolo.service\n"), Some(1 << 30));
        assert_eq!(least_of(&unit[..1], VERSION_2, "0::/system.slice/kolo.service\n"), None);
        let old = [
            ("memory/memory.limit_in_bytes", "9223372036854771712"),
            ("memory/x/memory.limit_in_bytes", "536870912"),
            ("memory/x/y/memory.limit_in_bytes", "9223372036854771712"),
            ("cpu/memory.limit_in_bytes", "1"),
        ];
        assert_eq!(least_of(&old, VERSION_1, "4:cpu,cpuacct:/\n9:memory:/x/y\n0::/z\n"), Some(512 << 20));
        assert_eq!(
            least_of(&old, VERSION_1, "4:cpu,cpuacct:/\n9:memory:/elsewhere\n"),
            Some(9_223_372_036_854_771_712)
        );
        assert_eq!(least_of(&old, VERSION_1, "4:cpu,cpuacct:/\n"), None);
        assert_eq!(least("", ""), None);
    }

    #[test]
    fn a_container_finds_its_limit_at_the_root_that_it_sees() {
        let inside = [("memory.max", "268435456"), ("below/memory.max", "1048576")];
        let mount = VERSION_2.replace(" / DIR", " /docker/abc DIR");
        assert_eq!(least_of(&inside, &mount, "0::/docker/abc\n"), Some(256 << 20));
        assert_eq!(least_of(&inside, &mount, "0::/docker/abc/below\n"), Some(1 << 20));
        for own in ["/", "/../other", "/docker/abcd"] {
            assert_eq!(least_of(&inside, &mount, &format!("0::{own}\n")), Some(256 << 20), "{own}");
        }
    }
}
