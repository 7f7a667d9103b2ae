//! Files over a stream: one side has them, the other takes what it lacks.
//!
//! The giver sends the manifest, the taker the numbers of the pieces that it lacks, the giver those pieces in that order, and the taker whether all
//! is in its place. Both directions use the same frames. Invariants: no more than one piece is in memory; each is kept as soon as it is whole, so
//! that another stream goes on behind it; what is not what its hash says ends the stream, and is not kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    task, time,
};

use super::{
    manifest::{Chunk, FileEntry, MANIFEST_BYTES_MAX, Manifest, ManifestError},
    store::{ChunkStore, StoreError},
};
use crate::frame::{DATA_BYTES_MAX, Data, Frame, FrameError, FrameReader, encode, reason};

/// How long the other side may say nothing: it may have to read or write all files.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// How long the last word of a side that closes the stream may take.
const LAST_WORD_MAX: Duration = Duration::from_secs(2);
/// Most numbers of pieces in one frame; the largest has four bytes and a mark.
const NUMBERS_MAX: usize = 8192;

/// What is sent about files, in either direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFrame {
    /// A part of the manifest.
    Manifest {
        /// Its bytes.
        data: Data,
        /// There is no more.
        is_last: bool,
    },
    /// Pieces that the taker lacks, as numbers into the different pieces of the manifest; they ascend.
    Wanted {
        /// At most 8,192.
        numbers: Vec<u32>,
        /// There are no more.
        is_last: bool,
    },
    /// A part of a piece.
    Bytes(Data),
    /// Everything is in its place.
    Done,
    /// It cannot go on, for this reason.
    Failed(String),
}

impl Frame for FileFrame {}

/// Why files have not come over.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The stream cannot go on; another one may.
    #[error(transparent)]
    Stream(#[from] FrameError),
    /// The other side has gone; it may be there again.
    #[error("the stream was closed")]
    Closed,
    /// It says nothing.
    #[error("nothing came for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// It says why it cannot go on.
    #[error("{0}")]
    Refused(String),
    /// It does not keep to the protocol.
    #[error("the other side {0}")]
    Order(&'static str),
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A piece.
    #[error("{0:?}: {1}")]
    Piece(String, Box<StoreError>),
    /// What cannot be read or written here.
    #[error("{0}")]
    Here(String),
}

impl TransferError {
    /// Whether another stream may get further.
    pub fn may_change(&self) -> bool {
        matches!(self, TransferError::Stream(FrameError::Stream(_)) | TransferError::Closed | TransferError::Silent)
    }
}

impl From<std::io::Error> for TransferError {
    fn from(error: std::io::Error) -> TransferError {
        TransferError::Stream(error.into())
    }
}

/// One side of a stream of files.
pub struct Transfer<S> {
    frames: FrameReader<ReadHalf<S>>,
    to: WriteHalf<S>,
}

impl<S: AsyncRead + AsyncWrite> Transfer<S> {
    /// Over this stream.
    pub fn over(stream: S) -> Transfer<S> {
        let (from, to) = tokio::io::split(stream);
        Transfer { frames: FrameReader::new(from), to }
    }

    async fn say(&mut self, frame: &FileFrame) -> Result<(), TransferError> {
        let bytes = encode(frame)?;
        time::timeout(SILENCE_MAX, self.to.write_all(&bytes)).await.map_err(|_| TransferError::Silent)??;
        Ok(())
    }

    async fn hear(&mut self) -> Result<FileFrame, TransferError> {
        let heard =
            time::timeout(SILENCE_MAX, self.frames.next::<FileFrame>()).await.map_err(|_| TransferError::Silent)??;
        match heard.ok_or(TransferError::Closed)? {
            FileFrame::Failed(why) => Err(TransferError::Refused(why)),
            frame => Ok(frame),
        }
    }

    /// Waits until the other side has gone, or says something before its turn.
    pub async fn gone(&mut self) -> TransferError {
        match self.frames.next::<FileFrame>().await {
            Ok(None) => TransferError::Closed,
            Ok(Some(_)) => TransferError::Order("speaks before its turn"),
            Err(error) => error.into(),
        }
    }

    /// Tells the other side why it could not go on.
    ///
    /// # Errors
    /// That of `result`.
    pub async fn settle<T>(mut self, result: Result<T, TransferError>) -> Result<T, TransferError> {
        if let Err(error) = &result
            && !error.may_change()
            && !matches!(error, TransferError::Refused(_))
        {
            // Whoever has gone need not know.
            let _ = self.say(&FileFrame::Failed(reason(&error.to_string()))).await;
            let _ = time::timeout(LAST_WORD_MAX, self.to.shutdown()).await;
        }
        result
    }

    /// Gives files to the other side: `piece` reads one, and may block.
    ///
    /// # Errors
    /// [`TransferError`]; the other side may have a part.
    pub async fn give(
        &mut self,
        manifest: &Manifest,
        piece: impl Fn(&FileEntry, &Chunk) -> Result<Vec<u8>, String>,
    ) -> Result<(), TransferError> {
        match self.try_give(manifest, piece).await {
            // It may have said why before it closed the stream.
            Err(error) if error.may_change() => match time::timeout(LAST_WORD_MAX, self.hear()).await {
                Ok(Err(refused @ TransferError::Refused(_))) => Err(refused),
                _ => Err(error),
            },
            given => given,
        }
    }

    async fn try_give(
        &mut self,
        manifest: &Manifest,
        piece: impl Fn(&FileEntry, &Chunk) -> Result<Vec<u8>, String>,
    ) -> Result<(), TransferError> {
        let bytes = manifest.encode()?;
        let count = bytes.chunks(DATA_BYTES_MAX).len();
        for (number, part) in (1..).zip(bytes.chunks(DATA_BYTES_MAX)) {
            self.say(&FileFrame::Manifest { data: Data(part.to_vec()), is_last: number == count }).await?;
        }
        self.to.flush().await?;
        let chunks = manifest.chunks();
        for number in self.wanted(chunks.len()).await? {
            let (chunk, entry) = (&chunks[number], &manifest.files[chunks[number].file]);
            let read = task::block_in_place(|| piece(entry, chunk)).map_err(TransferError::Here)?;
            if read.len() != chunk.bytes {
                return Err(TransferError::Here(format!("{:?} has changed while it was sent", entry.path)));
            }
            for part in read.chunks(DATA_BYTES_MAX) {
                self.say(&FileFrame::Bytes(Data(part.to_vec()))).await?;
            }
        }
        self.to.flush().await?;
        match self.hear().await? {
            FileFrame::Done => Ok(()),
            _ => Err(TransferError::Order("does not say that it has everything")),
        }
    }

    /// The numbers of the pieces that the other side lacks.
    async fn wanted(&mut self, count: usize) -> Result<Vec<usize>, TransferError> {
        let mut all: Vec<usize> = Vec::new();
        loop {
            let FileFrame::Wanted { numbers, is_last } = self.hear().await? else {
                return Err(TransferError::Order("does not say what it lacks"));
            };
            for number in numbers {
                let number = usize::try_from(number).ok().filter(|number| *number < count);
                let number = number.filter(|number| all.last().is_none_or(|last| last < number));
                all.push(number.ok_or(TransferError::Order("wants pieces that there are not"))?);
            }
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Takes the manifest of what the other side gives.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn manifest(&mut self) -> Result<Manifest, TransferError> {
        let mut bytes = Vec::new();
        loop {
            let FileFrame::Manifest { data, is_last } = self.hear().await? else {
                return Err(TransferError::Order("does not say what it gives"));
            };
            bytes.extend_from_slice(&data.0);
            if bytes.len() > MANIFEST_BYTES_MAX {
                return Err(ManifestError::TooLong(bytes.len()).into());
            }
            if is_last {
                return Ok(Manifest::read(&bytes)?);
            }
        }
    }

    /// Takes the pieces that are not in `store`.
    ///
    /// # Errors
    /// [`TransferError`]; what has come is in the store.
    pub async fn take(&mut self, manifest: &Manifest, store: &mut ChunkStore) -> Result<(), TransferError> {
        let chunks = manifest.chunks();
        let lacks = |(_, chunk): &(u32, &Chunk)| !store.has(&chunk.hash);
        let wanted: Vec<(u32, &Chunk)> = task::block_in_place(|| (0..).zip(&chunks).filter(lacks).collect());
        let bytes = wanted.iter().map(|(_, chunk)| chunk.bytes as u64).sum::<u64>();
        let failed =
            |chunk: &Chunk, error| TransferError::Piece(manifest.files[chunk.file].path.clone(), Box::new(error));
        if let Some((_, first)) = wanted.first() {
            store.has_room_for(bytes).map_err(|error| failed(first, error))?;
        }
        let parts = wanted.chunks(NUMBERS_MAX).len();
        for (part, some) in (1..).zip(wanted.chunks(NUMBERS_MAX)) {
            let numbers = some.iter().map(|(number, _)| *number).collect();
            self.say(&FileFrame::Wanted { numbers, is_last: part == parts }).await?;
        }
        if parts == 0 {
            self.say(&FileFrame::Wanted { numbers: Vec::new(), is_last: true }).await?;
        }
        self.to.flush().await?;
        for (_, chunk) in wanted {
            let mut piece = Vec::new();
            while piece.len() < chunk.bytes {
                let FileFrame::Bytes(part) = self.hear().await? else {
                    return Err(TransferError::Order("gives something else than pieces"));
                };
                if part.0.is_empty() || piece.len() + part.0.len() > chunk.bytes {
                    return Err(TransferError::Order("gives a piece of another length"));
                }
                piece.extend_from_slice(&part.0);
            }
            task::block_in_place(|| store.put(&chunk.hash, &piece)).map_err(|error| failed(chunk, error))?;
        }
        Ok(())
    }

    /// Tells the giver that everything is in its place.
    ///
    /// # Errors
    /// When the stream cannot go on.
    pub async fn done(&mut self) -> Result<(), TransferError> {
        self.say(&FileFrame::Done).await?;
        self.to.shutdown().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;
    use tokio::io::{DuplexStream, duplex};

    use super::{
        super::{
            manifest::{CHUNK_BYTES, ChunkHash, tests::entry},
            tree::{Others, Tree},
        },
        *,
    };

    /// A directory with files of five pieces, two of which are the same, and an empty store.
    fn stage() -> (tempfile::TempDir, Tree, Manifest, ChunkStore) {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir(&from).unwrap();
        fs::write(from.join("large"), [vec![1; CHUNK_BYTES], vec![2; CHUNK_BYTES], vec![3; 7]].concat()).unwrap();
        fs::write(from.join("same"), vec![1; CHUNK_BYTES]).unwrap();
        fs::write(from.join("small"), b"x").unwrap();
        fs::write(from.join("empty"), b"").unwrap();
        let tree = Tree::of_user(&from).unwrap();
        let manifest = tree.manifest(|_| true, Others::Refused, || false).unwrap();
        let store = ChunkStore::open(&directory.path().join("store")).unwrap();
        (directory, tree, manifest, store)
    }

    async fn take(stream: DuplexStream, store: &mut ChunkStore) -> Result<Manifest, TransferError> {
        let mut transfer = Transfer::over(stream);
        let taken = async {
            let manifest = transfer.manifest().await?;
            transfer.take(&manifest, store).await?;
            transfer.done().await?;
            Ok(manifest)
        };
        let taken = taken.await;
        transfer.settle(taken).await
    }

    /// What came of giving the files, and how many pieces were read for it.
    async fn give(
        stream: DuplexStream,
        tree: &Tree,
        manifest: &Manifest,
        pieces_max: usize,
    ) -> (Result<(), TransferError>, usize) {
        let read = std::cell::Cell::new(0);
        let piece = |entry: &FileEntry, chunk: &Chunk| {
            if read.get() == pieces_max {
                return Err("cut".to_owned());
            }
            read.set(read.get() + 1);
            tree.piece(&entry.path, chunk.offset, chunk.bytes).map_err(|error| error.to_string())
        };
        let given = Transfer::over(stream).give(manifest, piece).await;
        (given, read.get())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_piece_comes_once_and_after_a_cut_only_what_is_missing() {
        let (_directory, tree, manifest, mut store) = stage();
        let (mine, other) = duplex(1 << 16);
        let ((cut, read), taken) = tokio::join!(give(mine, &tree, &manifest, 2), take(other, &mut store));
        assert!(cut.is_err() && taken.is_err_and(|error| error.may_change()));
        assert_eq!(read, 2);
        let (mine, other) = duplex(1 << 16);
        let ((given, read), taken) = tokio::join!(give(mine, &tree, &manifest, 9), take(other, &mut store));
        given.unwrap();
        assert_eq!((taken.unwrap(), read), (manifest.clone(), 2), "four different pieces, two of which were there");
        let (mine, other) = duplex(1 << 16);
        let ((given, read), _) = tokio::join!(give(mine, &tree, &manifest, 9), take(other, &mut store));
        assert!(given.is_ok() && read == 0, "nothing is sent twice");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_piece_that_is_not_what_it_should_be_ends_it_and_its_giver_hears_why() {
        let (_directory, tree, mut manifest, mut store) = stage();
        let wrong = manifest.files.iter_mut().find(|file| file.path == "small").unwrap();
        wrong.chunks = vec![ChunkHash::of(b"y")];
        let (mine, other) = duplex(1 << 16);
        let ((given, _), taken) = tokio::join!(give(mine, &tree, &manifest, 9), take(other, &mut store));
        let expected = "\"small\": a piece is not what its hash says";
        assert_eq!(
            (given.unwrap_err().to_string(), taken.unwrap_err().to_string()),
            (expected.to_owned(), expected.to_owned())
        );
        assert!(!store.has(&ChunkHash::of(b"y")) && !store.has(&ChunkHash::of(b"x")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_does_not_keep_to_the_protocol_is_told_so() {
        let hash = ChunkHash::of(b"x");
        let two = Manifest { files: vec![entry("a", b"x"), entry("b", b"yz")] };
        let part = |bytes: &[u8]| FileFrame::Bytes(Data(bytes.to_vec()));
        let sent = |manifest: &[u8]| FileFrame::Manifest { data: Data(manifest.to_vec()), is_last: true };
        let good = sent(&two.encode().unwrap());
        let bad = discovery::wire::encode(&Manifest { files: vec![entry("../a", b"")] }).unwrap();
        for frames in [
            vec![part(b"x")],
            vec![sent(b"\xff")],
            vec![sent(&bad)],
            vec![good.clone(), FileFrame::Done],
            vec![good.clone(), part(b"xy")],
            vec![good.clone(), part(b"")],
            vec![good.clone(), part(b"x"), part(b"y"), part(b"zz")],
        ] {
            let (mut mine, other) = duplex(1 << 16);
            for frame in &frames {
                mine.write_all(&encode(frame).unwrap()).await.unwrap();
            }
            let directory = tempfile::tempdir().unwrap();
            let mut store = ChunkStore::open(directory.path()).unwrap();
            let error = take(other, &mut store).await.unwrap_err();
            assert!(!error.may_change(), "{frames:?}: {error}");
            assert_eq!(store.has(&hash), frames.len() == 4, "{frames:?}");
        }
        for numbers in [vec![2], vec![0, 0], vec![1, 0]] {
            let (mut mine, other) = duplex(1 << 16);
            let wanted = FileFrame::Wanted { numbers, is_last: true };
            mine.write_all(&encode(&wanted).unwrap()).await.unwrap();
            let given = Transfer::over(other).give(&two, |_, _| Ok(Vec::new())).await;
            assert!(matches!(given, Err(TransferError::Order(_))), "{given:?}");
        }
    }

    #[test]
    fn the_bytes_are_those_that_other_versions_read() {
        let frames = [
            FileFrame::Manifest { data: Data(b"ab".to_vec()), is_last: true },
            FileFrame::Wanted { numbers: vec![0, 300], is_last: false },
            FileFrame::Bytes(Data(b"x".to_vec())),
            FileFrame::Done,
            FileFrame::Failed("no".to_owned()),
        ];
        let line = |frame: &FileFrame| format!("{frame:?}: {}\n", encode(frame).unwrap().escape_ascii());
        expect![[r#"
            Manifest { data: b"ab", is_last: true }: \x00\x00\x00\x05\x00\x02ab\x01
            Wanted { numbers: [0, 300], is_last: false }: \x00\x00\x00\x07\x01\x02\x00\xfb,\x01\x00
            Bytes(b"x"): \x00\x00\x00\x03\x02\x01x
            Done: \x00\x00\x00\x01\x03
            Failed("no"): \x00\x00\x00\x04\x04\x02no
        "#]]
        .assert_eq(&frames.iter().map(line).collect::<String>());
    }
}
