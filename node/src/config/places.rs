//! Where a user's files are, and what the machine is called.
//!
//! Invariant: the environment is read in [`Surroundings::of_process`] only; everything else takes it as an argument.

use std::{env, path::PathBuf};

use super::ConfigError;

/// What a configuration takes from its surroundings.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `XDG_DATA_HOME`.
    pub data_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// The machine's name.
    pub host_name: Option<String>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Surroundings {
        Surroundings {
            data_home: env::var_os("XDG_DATA_HOME").map(PathBuf::from),
            home: env::var_os("HOME").map(PathBuf::from),
            host_name: sysinfo::System::host_name().ok(),
        }
    }

    /// `$XDG_DATA_HOME/kolo`, else `~/.local/share/kolo`. A relative `XDG_DATA_HOME` is ignored, as the XDG base directory
    /// specification demands.
    ///
    /// # Errors
    /// [`ConfigError::NoDataDir`] when neither is set.
    pub fn default_data_dir(&self) -> Result<PathBuf, ConfigError> {
        let data_home = self.data_home.clone().filter(|path| path.is_absolute());
        let home = self.home.clone().filter(|path| path.is_absolute());
        data_home
            .or_else(|| home.map(|home| home.join(".local/share")))
            .map(|directory| directory.join("kolo"))
            .ok_or(ConfigError::NoDataDir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_follows_xdg() {
        let at = |data_home: Option<&str>, home: Option<&str>| {
            Surroundings { data_home: data_home.map(PathBuf::from), home: home.map(PathBuf::from), host_name: None }
                .default_data_dir()
                .ok()
        };
        assert_eq!(at(Some("/d"), Some("/h")), Some(PathBuf::from("/d/kolo")));
        assert_eq!(at(None, Some("/h")), Some(PathBuf::from("/h/.local/share/kolo")));
        assert_eq!(at(Some("d"), Some("/h")), Some(PathBuf::from("/h/.local/share/kolo")));
        assert_eq!(at(None, None), None);
    }
}
