//! Programs of the owner that the node runs.
//!
//! Invariant: a program in force is a file that could be run when the configuration was read.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{
    ConfigError,
    file::ConfigFile,
    resolve::{Layers, Placed},
};

/// Most words of a command.
const WORDS_MAX: usize = 64;

impl Layers {
    /// The words of the command that `key` names, with the program as an absolute path; none when there is none.
    pub(super) fn program(
        &self,
        key: &str,
        get: impl Fn(&ConfigFile) -> Option<Vec<String>>,
    ) -> Result<Vec<String>, ConfigError> {
        let words = self.written(key, &get);
        let program = self.path(key, |file| get(file)?.first().map(PathBuf::from))?;
        match (words, program) {
            (Some(words), Some(program)) => command(&words, &program.value),
            _ => Ok(Vec::new()),
        }
    }
}

/// The words, with the program as an absolute path.
fn command(words: &Placed<Vec<String>>, program: &Path) -> Result<Vec<String>, ConfigError> {
    if words.value.len() > WORDS_MAX || words.value.iter().any(|word| word.contains('\0')) {
        return Err(words.wrong(format!("expected a program and at most {} arguments", WORDS_MAX - 1)));
    }
    let shown = program.display();
    let metadata = fs::metadata(program).map_err(|error| words.wrong(format!("{shown}: {error}")))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(words.wrong(format!("{shown} is no program: expected a file that may be run (chmod +x)")));
    }
    let program = program.to_str().ok_or_else(|| words.wrong(format!("{shown} is not UTF-8")))?;
    let arguments = words.value.iter().skip(1).cloned();
    Ok([program.to_owned()].into_iter().chain(arguments).collect())
}
