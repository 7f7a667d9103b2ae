//! Which key signs a user's requests and calls.
//!
//! Invariant: a key that the user named is used or complained about, never passed over.

use std::{env, path::PathBuf};

use kolo_api::session::Challenge;
use kolo_trust::{Signer, Wallet};

use super::{error::CliError, grid_args::KeyArgs};

/// The environment variable for `--key`.
const KEY_VARIABLE: &str = "KOLO_KEY";

/// Where a user's key may be.
pub struct Keys {
    named: Option<PathBuf>,
    wallets: Vec<Wallet>,
}

impl Keys {
    /// The key that the user has named, if any.
    pub fn named(args: &KeyArgs) -> Option<Keys> {
        let named = args.key.clone().or_else(|| env::var_os(KEY_VARIABLE).map(PathBuf::from))?;
        Some(Keys { wallets: vec![Wallet::of_key(&named)], named: Some(named) })
    }

    /// A key in one of these, the first one first.
    pub fn in_wallets(wallets: Vec<Wallet>) -> Keys {
        Keys { named: None, wallets }
    }

    /// The files with keys that are there, the first one first.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.wallets.iter().map(|wallet| wallet.key_path().to_owned());
        files.filter(|file| file.exists()).collect()
    }

    /// Whether there is a key, or one was named and its absence is to be complained about.
    pub fn may_exist(&self) -> bool {
        self.named.is_some() || self.wallets.iter().any(|wallet| wallet.key_path().exists())
    }

    /// The first key that can sign in the node's grid.
    ///
    /// # Errors
    /// [`CliError`] when the named key cannot, or a file is wrong.
    pub fn choose(&self, node: &Challenge) -> Result<Option<Signer>, CliError> {
        let is_open = node.grid_form != "closed";
        for wallet in &self.wallets {
            if let Some(signer) = wallet.signer(&node.grid)?.filter(|signer| is_open || signer.chain.is_some()) {
                return Ok(Some(signer));
            }
        }
        let Some(file) = &self.named else { return Ok(None) };
        let shown = file.display();
        Err(CliError::Usage(if file.exists() {
            format!("--key {shown}: there is no credential of grid {} beside it; join the grid first", node.grid)
        } else {
            format!("--key {shown}: there is no such file")
        }))
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::SiteId;

    use super::*;

    fn node(grid_form: &str) -> Challenge {
        let (grid, grid_form) = ("lab".to_owned(), grid_form.to_owned());
        Challenge {
            nonce: String::new(),
            expires_in_s: 1,
            site: SiteId::new("s").unwrap(),
            grid,
            grid_form,
            has_prices: false,
        }
    }

    #[test]
    fn in_a_closed_grid_a_key_needs_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        let wallet = Wallet::at(directory.path());
        let named = Keys::named(&KeyArgs { key: Some(wallet.key_path().to_owned()) }).unwrap();
        let error = named.choose(&node("open")).err().unwrap().to_string();
        assert!(error.contains("there is no such file"), "{error}");
        let keys = Keys::in_wallets(vec![wallet.clone()]);
        assert!(!keys.may_exist() && named.may_exist());
        wallet.key_or_new().unwrap();
        assert!(keys.may_exist() && keys.choose(&node("open")).unwrap().is_some());
        assert!(keys.choose(&node("closed")).unwrap().is_none());
        let error = named.choose(&node("closed")).err().unwrap().to_string();
        assert!(error.contains("no credential of grid lab"), "{error}");
    }
}
