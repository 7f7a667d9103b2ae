//! Files of the user's to sites and back, over streams that may be cut.
//!
//! Invariants: what has come over is not sent again within a command; what comes from a site is checked before it is put into its place, and never
//! outside of the directory that it is for.

use std::{fs, io, path::Path, time::Duration};

use broker::{ids::RequestId, time::Time};
use kolo_api::request_view::ReservedHost;
use kolo_seat::{
    RunNumber,
    files::{
        ChunkHash, ChunkStore, FilesOrder, FilesWish, Manifest,
        manifest::{Chunk, FileEntry, ManifestError},
        order::Patterns,
        transfer::{Transfer, TransferError},
        tree::{Others, Tree},
    },
    opening::Wish,
};
use kolo_trust::random_bytes;
use tokio::time::{self, Instant};

use super::{
    connection::{self, NoStream, Stream},
    seat::{self, CUT_MAX, Opener, PAUSE_FIRST, PAUSE_MAX, WORKED},
};
use crate::{client::Client, error::CliError};

/// Files of the user's that are sent.
pub struct Sent {
    tree: Tree,
    /// The name here of the only file, which may have another one there.
    own: Option<String>,
    manifest: Manifest,
    /// What the manifest is known by.
    pub hash: ChunkHash,
}

impl Sent {
    /// All files below `directory`.
    ///
    /// # Errors
    /// [`CliError::Usage`], that names what cannot be sent.
    pub fn directory(directory: &Path) -> Result<Sent, CliError> {
        let wrong = |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", directory.display()));
        let tree = Tree::of_user(directory).map_err(|error| wrong(&error))?;
        let manifest = tree.manifest(|_| true, Others::Refused, || false).map_err(|error| wrong(&error))?;
        Sent::of(tree, manifest).map_err(|error| wrong(&error))
    }

    /// One file, that is to be called `name` there.
    ///
    /// # Errors
    /// As for [`Sent::directory`].
    pub fn file(file: &Path, name: &str) -> Result<Sent, CliError> {
        let wrong = |error: &dyn std::fmt::Display| CliError::Usage(format!("{}: {error}", file.display()));
        let own = file.file_name().and_then(|own| own.to_str()).ok_or_else(|| wrong(&"a name that is not UTF-8"))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let tree = Tree::of_user(parent).map_err(|error| wrong(&error))?;
        let entry = tree.entry(own).map_err(|error| wrong(&error))?;
        let manifest = Manifest { files: vec![FileEntry { path: name.to_owned(), ..entry }] };
        let mut sent = Sent::of(tree, manifest).map_err(|error| wrong(&error))?;
        sent.own = Some(own.to_owned());
        Ok(sent)
    }

    fn of(tree: Tree, manifest: Manifest) -> Result<Sent, ManifestError> {
        let hash = ChunkHash::of(&manifest.encode()?);
        Ok(Sent { tree, own: None, manifest, hash })
    }

    /// How long a site may take to put them into a new directory.
    pub fn placing(&self) -> Duration {
        self.manifest.placing()
    }

    fn piece(&self, entry: &FileEntry, chunk: &Chunk) -> Result<Vec<u8>, String> {
        let path = self.own.as_ref().unwrap_or(&entry.path);
        self.tree.piece(path, chunk.offset, chunk.bytes).map_err(|error| error.to_string())
    }
}

/// Whose files, of which reservation.
pub struct Courier<'a> {
    /// By way of this node.
    pub client: &'a Client,
    /// Who signs.
    pub opener: &'a Opener,
    /// In this grid.
    pub grid: &'a str,
    /// The reservation.
    pub request: &'a RequestId,
    /// Of which run; of the last one of each seat when it is not said.
    pub run: Option<RunNumber>,
}

impl Courier<'_> {
    /// Sends files to the site of a seat: for runs to come, or into the directory of the run of the seat.
    ///
    /// # Errors
    /// Why they did not come over.
    pub async fn send(&self, host: &ReservedHost, sent: &Sent, put_into: Option<&str>) -> Result<(), CliError> {
        let manifest = sent.hash;
        let wish = match put_into {
            None => FilesWish::Keep { manifest },
            Some(directory) => FilesWish::Put { manifest, directory: directory.to_owned() },
        };
        self.over(host, wish, async |transfer: &mut Transfer<Stream>| {
            transfer.give(&sent.manifest, |entry, chunk| sent.piece(entry, chunk)).await
        })
        .await
    }

    /// Fetches the files with such names of the run of a seat into `directory`; the names of those that came. With `forgets` the site
    /// forgets the run then.
    ///
    /// # Errors
    /// Why they did not come over.
    pub async fn fetch(
        &self,
        host: &ReservedHost,
        (patterns, forgets): (&[String], bool),
        directory: &Path,
    ) -> Result<Vec<String>, CliError> {
        let here = |error: &dyn std::fmt::Display| CliError::failed(format!("{}: {error}", directory.display()));
        fs::create_dir_all(directory).map_err(|error| here(&error))?;
        let name = format!(".kolo-fetch-{:016x}", u64::from_le_bytes(random_bytes::<8>()?));
        let held = directory.join(name);
        let mut store = ChunkStore::open(&held).map_err(|error| here(&error))?;
        let tree = Tree::of_user(directory).map_err(|error| here(&error))?;
        let asked = Patterns::of(patterns).map_err(|error| here(&error))?;
        let wish = FilesWish::Get { patterns: patterns.to_vec(), forgets };
        let fetched = self
            .over(host, wish, async |transfer: &mut Transfer<Stream>| {
                let manifest = transfer.manifest().await?;
                // The site says what there is, not what is written here.
                if let Some(file) = manifest.files.iter().find(|file| !asked.match_path(&file.path)) {
                    return Err(TransferError::Here(format!(
                        "the site gives {:?}, which was not asked for",
                        file.path
                    )));
                }
                transfer.take(&manifest, &mut store).await?;
                let written = tokio::task::block_in_place(|| tree.write("", &manifest, &store));
                written.map_err(|error| TransferError::Here(error.to_string()))?;
                transfer.done().await?;
                Ok(manifest.files.into_iter().map(|file| file.path).collect())
            })
            .await;
        match fs::remove_dir_all(&held) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => fetched.and(Err(here(&error))),
            _ => fetched,
        }
    }

    /// Opens streams until one has done its work, or the time for cuts is over.
    async fn over<T>(
        &self,
        host: &ReservedHost,
        wish: FilesWish,
        mut work: impl AsyncFnMut(&mut Transfer<Stream>) -> Result<T, TransferError>,
    ) -> Result<T, CliError> {
        let failed = |why: &str| {
            let host = format!("seat {} (host {} of {})", host.seat, host.host, host.site_name);
            CliError::failed(format!("the files of {host}: {why}"))
        };
        let order = Wish::Files(FilesOrder {
            grid: self.grid.to_owned(),
            site: host.site.clone(),
            request: self.request.clone(),
            seat: host.seat,
            run: self.run,
            wish,
            issued: Time(0),
            expires: Time(0),
            nonce: seat::nonce()?,
        });
        let (mut since, mut pause) = (Instant::now(), PAUSE_FIRST);
        loop {
            let opened = async { connection::open(self.client, &self.opener.wanted(&order)?).await };
            let why = match opened.await {
                Ok(stream) => {
                    let begun = Instant::now();
                    let mut transfer = Transfer::over(stream);
                    let done = work(&mut transfer).await;
                    match transfer.settle(done).await {
                        Ok(done) => return Ok(done),
                        Err(error) if error.may_change() => {
                            if begun.elapsed() >= WORKED && !matches!(error, TransferError::Silent) {
                                (since, pause) = (Instant::now(), PAUSE_FIRST);
                            }
                            error.to_string()
                        }
                        Err(error) => return Err(failed(&error.to_string())),
                    }
                }
                Err(NoStream::Refused(why)) => return Err(failed(&why)),
                Err(NoStream::NotNow(why)) => why,
            };
            if since.elapsed() >= CUT_MAX {
                return Err(failed(&why));
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
