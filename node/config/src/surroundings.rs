//! Where a user's files are, and what the machine is called.
//!
//! Invariant: the environment is read in [`Surroundings::of_process`] only; everything else takes it as an argument.

use std::{env, ffi::OsString, path::PathBuf};

use super::error::ConfigError;

/// Where the service of the Debian package keeps identity, ledger and tokens.
const SERVICE_DATA_DIR: &str = "/var/lib/kolo";

/// What a configuration takes from its surroundings.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `XDG_DATA_HOME`.
    pub data_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub config_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `PATH`.
    pub search_path: Option<OsString>,
    /// Name of the machine.
    pub host_name: Option<String>,
    /// The data directory of the packaged service, where there is one.
    pub service_data_dir: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        Surroundings {
            data_home: env::var_os("XDG_DATA_HOME").map(PathBuf::from),
            config_home: env::var_os("XDG_CONFIG_HOME").map(PathBuf::from),
            home: env::var_os("HOME").map(PathBuf::from),
            search_path: env::var_os("PATH"),
            host_name: sysinfo::System::host_name().ok(),
            service_data_dir: Some(PathBuf::from(SERVICE_DATA_DIR)).filter(|directory| directory.is_dir()),
        }
    }

    /// `$XDG_DATA_HOME/kolo`, else `~/.local/share/kolo`. A relative `XDG_DATA_HOME` is ignored, as the XDG base directory
    /// specification demands.
    ///
    /// # Errors
    /// [`ConfigError::NoDataDir`] when neither is set.
    pub fn default_data_dir(&self) -> Result<PathBuf, ConfigError> {
        self.directory(self.data_home.as_ref(), ".local/share").ok_or(ConfigError::NoDataDir)
    }

    /// `$XDG_CONFIG_HOME/kolo`, else `~/.config/kolo`, by the same rules: where a user's own key is. None when neither is
    /// set.
    pub fn user_dir(&self) -> Option<PathBuf> {
        self.directory(self.config_home.as_ref(), ".config")
    }

    fn directory(&self, named: Option<&PathBuf>, under_home: &str) -> Option<PathBuf> {
        let absolute = |path: &&PathBuf| path.is_absolute();
        let home = self.home.as_ref().filter(absolute).map(|home| home.join(under_home));
        named.filter(absolute).cloned().or(home).map(|directory| directory.join("kolo"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_follows_xdg() {
        let at = |data_home: Option<&str>, home: Option<&str>| {
            let (data_home, home) = (data_home.map(PathBuf::from), home.map(PathBuf::from));
            Surroundings { data_home, home, ..Surroundings::default() }.default_data_dir().ok()
        };
        assert_eq!(at(Some("/d"), Some("/h")), Some(PathBuf::from("/d/kolo")));
        assert_eq!(at(None, Some("/h")), Some(PathBuf::from("/h/.local/share/kolo")));
        assert_eq!(at(Some("d"), Some("/h")), Some(PathBuf::from("/h/.local/share/kolo")));
        assert_eq!(at(None, None), None);
    }
}
