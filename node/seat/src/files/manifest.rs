//! What files there are: their names, and the hashes of their pieces.
//!
//! Invariant: a [`Manifest`] that passed [`Manifest::check`] names plain files below one directory, each once, and is within its bounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use data_encoding::HEXLOWER;
use discovery::wire;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The file with one host a line that a site puts beside those of the user.
pub const HOSTFILE: &str = ".kolo-hosts";
/// Bytes of a piece; the last one of a file may be shorter.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Most files of a manifest.
pub const FILES_MAX: usize = 10_000;
/// Most bytes of all its files.
pub const BYTES_MAX: u64 = 8 << 30;
/// Slowest disk of a site that is waited for, in bytes a second.
const SLOW_DISK: u64 = 20 << 20;
/// Longest manifest.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;
/// Longest name of a file with those of its directories, and longest single name, in bytes.
const PATH_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
/// Most names of one path.
const NAMES_MAX: usize = 64;

/// The BLAKE3 hash of a piece, or of a manifest. In JSON it is hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkHash([u8; 32]);

impl ChunkHash {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> ChunkHash {
        ChunkHash(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl Serialize for ChunkHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for ChunkHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ChunkHash, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(ChunkHash);
        }
        let text = String::deserialize(deserializer)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(ChunkHash).ok_or_else(|| de::Error::custom("a hash has 64 hexadecimal digits"))
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name below the directory, with `/` between names.
    pub path: String,
    /// Whether it may be run.
    pub is_executable: bool,
    /// Its length.
    pub bytes: u64,
    /// Its pieces, in order.
    pub chunks: Vec<ChunkHash>,
}

/// Files below one directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Each once.
    pub files: Vec<FileEntry>,
}

/// A piece of a manifest: where it is, and what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its hash.
    pub hash: ChunkHash,
    /// The file that has it, by its place in the manifest.
    pub file: usize,
    /// Where it begins in that file.
    pub offset: u64,
    /// Its length.
    pub bytes: usize,
}

/// Why files are not sent, or not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A name leads out of the directory, or is none.
    #[error(
        "{0:?} names no file below the directory: no .., no / at the beginning, no empty name, at most {PATH_BYTES_MAX} bytes and {NAMES_MAX} names"
    )]
    Path(String),
    /// The site writes this file itself.
    #[error("{HOSTFILE} is written by the site; leave it out")]
    Own,
    /// Two files, or a file and a directory, have the same name.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// The pieces of a file are not as many as its length says.
    #[error("{0:?}: {1} bytes are not {2} pieces")]
    Pieces(String, u64, usize),
    /// There are too many.
    #[error("{0} files, at most {FILES_MAX} are sent at once; pack them into one")]
    TooMany(usize),
    /// They are too large.
    #[error("{mib} MiB, at most {most} MiB are sent at once", mib = .0, most = BYTES_MAX >> 20)]
    TooLarge(u64),
    /// The list of names is too long.
    #[error("the names are too long together: a manifest of {0} bytes, at most {MANIFEST_BYTES_MAX}")]
    TooLong(usize),
    /// It is no manifest.
    #[error("a manifest that cannot be read: {0}")]
    Malformed(String),
}

impl Manifest {
    /// Reads and checks one.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn read(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let read = wire::decode::<Manifest, MANIFEST_BYTES_MAX>(bytes);
        let manifest = read.map_err(|error| ManifestError::Malformed(error.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Its bytes, when it is within its bounds.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        self.check()?;
        let bytes = wire::encode(self).map_err(|error| ManifestError::Malformed(error.to_string()))?;
        if bytes.len() > MANIFEST_BYTES_MAX { Err(ManifestError::TooLong(bytes.len())) } else { Ok(bytes) }
    }

    /// The length of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// How long a site may take to put the files into a directory.
    pub fn placing(&self) -> Duration {
        Duration::from_secs(self.bytes() / SLOW_DISK)
    }

    /// Each different piece once, at the first place that it has.
    pub fn chunks(&self) -> Vec<Chunk> {
        let mut known = BTreeSet::new();
        let mut chunks = Vec::new();
        for (file, entry) in self.files.iter().enumerate() {
            let mut offset = 0;
            for hash in &entry.chunks {
                let bytes = usize::try_from(entry.bytes - offset).unwrap_or(usize::MAX).min(CHUNK_BYTES);
                if known.insert((*hash, bytes)) {
                    chunks.push(Chunk { hash: *hash, file, offset, bytes });
                }
                offset += bytes as u64;
            }
        }
        chunks
    }

    fn check(&self) -> Result<(), ManifestError> {
        if self.files.len() > FILES_MAX {
            return Err(ManifestError::TooMany(self.files.len()));
        }
        if self.bytes() > BYTES_MAX {
            return Err(ManifestError::TooLarge(self.bytes() >> 20));
        }
        // Whether a name is that of a file.
        let mut names: BTreeMap<&str, bool> = BTreeMap::new();
        for file in &self.files {
            check_path(&file.path)?;
            let pieces = file.bytes.div_ceil(CHUNK_BYTES as u64);
            if u64::try_from(file.chunks.len()) != Ok(pieces) {
                return Err(ManifestError::Pieces(file.path.clone(), file.bytes, file.chunks.len()));
            }
            let mut directories = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
            let is_taken = directories.any(|name| names.insert(name, false) == Some(true));
            if is_taken || names.insert(&file.path, true).is_some() {
                return Err(ManifestError::Twice(file.path.clone()));
            }
        }
        Ok(())
    }
}

/// Whether a name leads to a file below a directory.
///
/// # Errors
/// [`ManifestError::Path`] or [`ManifestError::Own`].
pub fn check_path(path: &str) -> Result<(), ManifestError> {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX;
    let is_short = path.len() <= PATH_BYTES_MAX && path.split('/').count() <= NAMES_MAX;
    if !is_short || path.contains('\0') || !path.split('/').all(is_name) {
        return Err(ManifestError::Path(path.chars().take(100).collect()));
    }
    if path == HOSTFILE { Err(ManifestError::Own) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An entry with these bytes.
    pub fn entry(path: &str, bytes: &[u8]) -> FileEntry {
        let chunks = bytes.chunks(CHUNK_BYTES).map(ChunkHash::of).collect();
        FileEntry { path: path.to_owned(), is_executable: false, bytes: bytes.len() as u64, chunks }
    }

    fn of(paths: &[&str]) -> Manifest {
        Manifest { files: paths.iter().map(|path| entry(path, b"x")).collect() }
    }

    #[test]
    fn names_that_leave_the_directory_or_are_there_twice_are_refused() {
        let (long, deep) = (format!("{}a", "abc/".repeat(300)), "a/".repeat(NAMES_MAX) + "a");
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/../../b",
            "a//b",
            "./a",
            "a/.",
            "a/",
            "a\0b",
            &long,
            &deep,
            &"n".repeat(256),
        ] {
            assert!(matches!(of(&[path]).encode(), Err(ManifestError::Path(_))), "{path:?}");
            // A hostile sender does not check.
            let bytes = wire::encode(&of(&[path])).unwrap();
            assert!(matches!(Manifest::read(&bytes), Err(ManifestError::Path(_))), "{path:?}");
        }
        for paths in [["a", "a"], ["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"]] {
            assert!(matches!(of(&paths).encode(), Err(ManifestError::Twice(_))), "{paths:?}");
        }
        assert_eq!(of(&[".kolo-hosts"]).encode(), Err(ManifestError::Own));
        assert!(of(&["a/b", "a/c", "a/b c/..d", "ü"]).encode().is_ok());
    }

    #[test]
    fn lengths_that_do_not_fit_and_manifests_beyond_their_bounds_are_refused() {
        let entry = |bytes, chunks| FileEntry {
            path: "a".to_owned(),
            is_executable: false,
            bytes,
            chunks: vec![ChunkHash::of(b""); chunks],
        };
        let one = |entry| Manifest { files: vec![entry] }.encode();
        for (bytes, chunks, is_good) in
            [(0, 0, true), (0, 1, false), (1, 1, true), (1 << 20, 1, true), ((1 << 20) + 1, 1, false)]
        {
            assert_eq!(one(entry(bytes, chunks)).is_ok(), is_good, "{bytes} {chunks}");
        }
        assert!(matches!(one(entry(BYTES_MAX + 1, 8193)), Err(ManifestError::TooLarge(_))));
        let twice_the_largest = FileEntry { bytes: u64::MAX, ..entry(0, 0) };
        let huge = Manifest { files: vec![twice_the_largest.clone(), twice_the_largest] };
        assert!(matches!(huge.encode(), Err(ManifestError::TooLarge(_))));
        let names: Vec<String> = (0..=FILES_MAX).map(|number| number.to_string()).collect();
        let many = of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(many.encode(), Err(ManifestError::TooMany(FILES_MAX + 1)));
        let long: Vec<String> =
            (0..5000).map(|number| format!("{}{number}", format!("{}/", "x".repeat(250)).repeat(4))).collect();
        let long = of(&long.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(matches!(long.encode(), Err(ManifestError::TooLong(_))));
    }

    #[test]
    fn the_bytes_are_those_that_other_versions_read_and_each_piece_is_named_once() {
        let large = [vec![1; CHUNK_BYTES], vec![2; 5]].concat();
        let manifest = Manifest { files: vec![entry("a", b"x"), entry("b/c", &large), entry("d", b"x")] };
        let small = Manifest { files: vec![FileEntry { is_executable: true, ..entry("a", b"x") }] };
        let bytes = small.encode().unwrap();
        assert_eq!(bytes, [&b"\x01\x01a\x01\x01\x01"[..], &ChunkHash::of(b"x").0].concat());
        assert_eq!(Manifest::read(&manifest.encode().unwrap()).unwrap(), manifest);
        let places: Vec<_> = manifest.chunks().iter().map(|chunk| (chunk.file, chunk.offset, chunk.bytes)).collect();
        assert_eq!(places, [(0, 0, 1), (1, 0, CHUNK_BYTES), (1, CHUNK_BYTES as u64, 5)]);
        let json = serde_json::to_string(&ChunkHash::of(b"x")).unwrap();
        assert_eq!(serde_json::from_str::<ChunkHash>(&json).unwrap(), ChunkHash::of(b"x"));
        assert_eq!(json.len(), 66);
        assert!(serde_json::from_str::<ChunkHash>("\"00\"").is_err());
    }
}
