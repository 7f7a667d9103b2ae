//! `kolo grid init`: makes a grid in the data directory.
//!
//! Invariant: `grid.json` comes last, so an interrupted command can be given again, and a grid that is there is never
//! replaced.

use std::path::{Path, PathBuf};

use broker::{
    ids::SiteId,
    trust::{PublicKey, Role, closed_grid_id, credential::is_name},
};
use data_encoding::BASE32_NOPAD;
use kolo_storage::data_dir::DataDir;
use kolo_text::safe::safe;
use kolo_trust::{GridFile, ROOT_KEY_FILE, TrustFileError, Wallet};
use serde::Serialize;

use crate::{
    commands::Context,
    error::CliError,
    exit::Exit,
    grid_args::InitArgs,
    output::{Look, Report},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; the data directory must not belong to a grid yet.
pub fn run(context: &mut Context, args: &InitArgs) -> Result<Exit, CliError> {
    // Before anything is made. The same rule holds for the names of open and of closed grids.
    closed_grid_id(&args.name, &PublicKey::from_bytes([0; 32]))
        .map_err(|error| CliError::Usage(format!("--name {:?}: {error}", args.name)))?;
    let data_dir = context.data_dir()?;
    if let Some(grid) = GridFile::load(&data_dir)? {
        return Err(CliError::failed(format!(
            "{} belongs to grid {} already; make another grid in another --data-dir",
            data_dir.display(),
            grid.id
        )));
    }
    let directory = DataDir::open(&data_dir)?;
    let site = directory.identity()?.site_id().clone();
    let (grid, user) =
        if args.open { open_grid(&data_dir, args)? } else { closed_grid(context, &data_dir, &site, args)? };
    context.done(&Made { form: grid.form(), grid: grid.id, root: grid.root, site, user, data_dir })
}

fn open_grid(data_dir: &Path, args: &InitArgs) -> Result<(GridFile, PublicKey), CliError> {
    let unique = BASE32_NOPAD.encode(&kolo_trust::random_bytes::<5>()?).to_ascii_lowercase();
    let grid = GridFile::new(format!("{}-{unique}", args.name), None, Vec::new());
    let user = PublicKey::of(&Wallet::at(data_dir).key_or_new()?);
    grid.create(data_dir)?;
    Ok((grid, user))
}

fn closed_grid(
    context: &Context,
    data_dir: &Path,
    site: &SiteId,
    args: &InitArgs,
) -> Result<(GridFile, PublicKey), CliError> {
    let root = kolo_trust::load_or_create_key(&data_dir.join(ROOT_KEY_FILE))?;
    let root_key = PublicKey::of(&root);
    let id = closed_grid_id(&args.name, &root_key).map_err(TrustFileError::from)?;
    let grid = GridFile::new(id, Some(root_key), Vec::new());
    let wallet = Wallet::at(data_dir);
    let user = PublicKey::of(&wallet.key_or_new()?);
    let site_name = site_name(context, args.site.as_deref());
    let now = context.time();
    let (of_site, of_admin) = kolo_trust::found(&grid, &root, (site, &site_name), (&user, &args.user), now)?;
    for (role, chain) in [(Role::Site, &of_site), (Role::Admin, &of_admin)] {
        match wallet.keep(&grid, role, chain, now) {
            // Left by an earlier try of this command that was interrupted.
            Ok(()) | Err(TrustFileError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    grid.create(data_dir)?;
    Ok((grid, user))
}

/// What a site is called unless it says: as its machine.
pub(in crate::commands) fn site_name(context: &Context, named: Option<&str>) -> String {
    let host_name = context.surroundings.host_name.clone().filter(|name| is_name(name));
    named.map(str::to_owned).or(host_name).unwrap_or_else(|| "site".to_owned())
}

/// A grid that was made.
#[derive(Serialize)]
struct Made {
    grid: String,
    form: &'static str,
    root: Option<PublicKey>,
    site: SiteId,
    user: PublicKey,
    data_dir: PathBuf,
}

impl Report for Made {
    fn text(&self, _: &Look) -> String {
        let directory = safe(&self.data_dir.display().to_string());
        let mut text = format!("made {} grid {}\n  this site  {}\n", self.form, self.grid, self.site);
        text.push_str(&format!("  your key   {} (in {directory})\n", self.user.fingerprint()));
        if self.root.is_some() {
            text.push_str(&format!(
                "  root key   {directory}/{ROOT_KEY_FILE}: who has it decides who belongs to the grid; keep a copy offline\n"
            ));
        }
        text.push_str(&format!("next: kolo node --data-dir {directory}\n"));
        if self.root.is_some() {
            text.push_str(&format!(
                "then: kolo grid invite --data-dir {directory} --role site, and kolo join FILE where the other site is\n"
            ));
        } else {
            text.push_str("then: the node prints the line with which others join\n");
        }
        text
    }
    fn ids(&self) -> Vec<String> {
        vec![self.grid.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn what_was_made_is_shown_with_what_to_do_next() {
        let made = Made {
            grid: "lab-aaaa".to_owned(),
            form: "closed",
            root: Some(PublicKey::from_bytes([1; 32])),
            site: SiteId::new("12D3site").unwrap(),
            user: PublicKey::from_bytes([2; 32]),
            data_dir: "/d".into(),
        };
        assert_eq!(
            printed(&made, OutputFormat::Table),
            "made closed grid lab-aaaa\n  this site  12D3site\n  your key   0202020202020202 (in /d)\n  root key   \
             /d/grid-root.key: who has it decides who belongs to the grid; keep a copy offline\nnext: kolo node --data-dir /d\n\
             then: kolo grid invite --data-dir /d --role site, and kolo join FILE where the other site is\n"
        );
        assert_eq!(printed(&made, OutputFormat::Quiet), "lab-aaaa\n");
    }
}
