//! What an owner allows of commands changes while the node runs: their network, and their images. What runs keeps what it has.
//!
//! Invariant: nothing is put into force that this machine was not found to be able to do.

use std::{fs, path::Path};

use kolo_runtime::lock::locked;
use kolo_seat::{
    Confinement, RunError,
    confine::{NOTE_FILE, Note},
    keepers::system,
};
use kolo_trust::files;
use tracing::warn;

use super::{RunSite, RunTerms};

impl RunSite {
    /// How commands are confined that start with this network and these images, where this machine can; none where none start.
    ///
    /// # Errors
    /// [`RunError::Confine`], which says what to do.
    pub fn confinement_with(
        &self,
        (has_network, images): (bool, &[String]),
        data_dir: &Path,
    ) -> Result<Option<Confinement>, RunError> {
        let Some(RunTerms { confinement, scratch_in, .. }) = self.terms() else { return Ok(None) };
        let confinement = Confinement { has_network, images: images.to_vec(), ..confinement };
        confinement.check_for(data_dir, &scratch_in)?;
        Ok(Some(confinement))
    }

    /// Confines like this whatever starts from now on.
    pub fn confine(&self, confinement: Confinement, data_dir: &Path) {
        let Some(terms) = &self.terms else { return };
        let scratch_in = {
            let mut terms = locked(terms);
            terms.confinement = confinement.clone();
            terms.scratch_in.clone()
        };
        if let Err(error) = write_note(data_dir, Some(&Note { confinement, scratch_in })) {
            warn!(%error, "kolo doctor tries what was in force before");
        }
    }
}

/// Notes how commands are confined for `kolo doctor`, which reads no configuration.
///
/// # Errors
/// [`RunError`] of the disk.
pub fn write_note(data_dir: &Path, note: Option<&Note>) -> Result<(), RunError> {
    let noted = serde_json::to_string(&note).map_err(|error| system("a note cannot be written")(error.into()))?;
    let path = data_dir.join(NOTE_FILE);
    // A full disk may have no room for the same once more.
    if fs::read_to_string(&path).is_ok_and(|known| known == noted) {
        Ok(())
    } else {
        Ok(files::replace(&path, &noted)?)
    }
}
