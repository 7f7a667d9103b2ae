//! The stream between a user and the keeper of a seat, what opens it, and the order of what is run. The first byte says which.

use broker::{
    ids::{RequestId, SeatNumber},
    trust::PublicKey,
};
use discovery::{opening::OPENING_BYTES_MAX, wire};
use ed25519_dalek::SigningKey;
use kolo_seat::{
    RunOrder,
    files::Manifest,
    files::transfer::FileFrame,
    frame::{FRAME_BYTES_MAX, Frame, FromKeeper, ToKeeper, decode, encode},
    opening::{FromUser, Opening},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Input, Target};

/// Frames of both directions, and orders.
pub const RUN: Target = Target { name: "run", run, golden };

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(7) {
        0 => frames::<FromKeeper>(input.rest()),
        1 => frames::<ToKeeper>(input.rest()),
        3 => openings::<Opening>(input.rest(), |opening| opening.open().is_ok()),
        4 => openings::<FromUser>(input.rest(), |_| true),
        5 => frames::<FileFrame>(input.rest()),
        6 => manifest(input.rest()),
        _ => {
            let Ok(order) = serde_json::from_slice::<RunOrder>(input.rest()) else { return };
            if order.check().is_err() {
                return;
            }
            let texts = order.command.iter().chain(&order.hosts).chain(order.environment.values());
            assert!(texts.chain(order.environment.keys()).all(|text| !text.contains('\0')));
            assert!(!order.command.is_empty() && (order.rank as usize) < order.hosts.len());
            let again = serde_json::to_vec(&order).expect("an order that was read can be written");
            assert_eq!(serde_json::from_slice::<RunOrder>(&again).expect("and read"), order);
        }
    }
}

/// What opens a stream reads as the same when it is written again, whoever has signed it.
fn openings<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8], open: impl Fn(&T) -> bool) {
    let Ok(opening) = wire::decode::<T, OPENING_BYTES_MAX>(bytes) else { return };
    // Whether it counts is for its signature to say; it must not panic.
    open(&opening);
    let again = wire::encode(&opening).expect("an opening that was read can be written");
    assert_eq!(wire::decode::<T, OPENING_BYTES_MAX>(&again).expect("and read"), opening);
}

/// A manifest that is taken names files below a directory, and reads as the same when it is written again.
fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::read(bytes) else { return };
    let is_below = |path: &str| path.split('/').all(|name| !matches!(name, "" | "." | ".."));
    assert!(manifest.files.iter().all(|file| is_below(&file.path) && !file.path.contains('\0')));
    // It may be written shorter than it came.
    let again = manifest.encode().expect("a manifest that was taken can be written");
    assert_eq!(Manifest::read(&again).expect("and read"), manifest);
    for chunk in manifest.chunks() {
        assert!(chunk.offset + chunk.bytes as u64 <= manifest.files[chunk.file].bytes && chunk.bytes > 0);
    }
}

/// Reads frames until there is none; each reads as the same when it is written again, and no byte is skipped.
fn frames<F: Frame + PartialEq + std::fmt::Debug>(mut bytes: &[u8]) {
    while let Ok(Some((frame, length))) = decode::<F>(bytes) {
        assert!((4..=FRAME_BYTES_MAX + 4).contains(&length) && length <= bytes.len());
        let again = encode(&frame).expect("a frame that was read can be written");
        assert_eq!(decode::<F>(&again).expect("and read"), Some((frame, again.len())));
        bytes = &bytes[length..];
    }
}

/// An order of a command with everything that an order may have.
const ORDER: &str = concat!(
    r#"{"grid":"test","site":"s","request":"r","seat":2,"run":1,"rank":1,"hosts":["a","b"],"peers":{"seats":[{"site":"x","seat":0},{"site":"s","seat":2}],"ports":[{"rank":0,"port":4000}]},"command":["echo","x"],"#,
    r#""environment":{"LANG":"C"},"directory":"work","terminal":{"rows":24,"columns":80},"has_stdin":true,"#,
    r#""issued":1000,"expires":1060,"nonce":"n"}"#,
);

fn golden() -> Vec<Vec<u8>> {
    use kolo_seat::{
        RunNumber,
        frame::{Data, End, Output, TerminalSize},
        opening::PeerOpening,
    };
    let data = Data(b"ab\n".to_vec());
    let from_keeper = [
        FromKeeper::Ready,
        FromKeeper::Started { pid: 70_000 },
        FromKeeper::Output { output: Output::Stdout, offset: 300, data: data.clone() },
        FromKeeper::Gap { output: Output::Stderr, from: 65_536, to: 70_000 },
        FromKeeper::StdinAck { offset: 5 },
        FromKeeper::Heartbeat,
        FromKeeper::Ended(End::Code(3)),
        FromKeeper::Ended(End::Owner("no".to_owned())),
    ];
    let to_keeper = [
        ToKeeper::Attach { from_stdout: 1, from_stderr: 300 },
        ToKeeper::Go,
        ToKeeper::Stdin { offset: 2, data },
        ToKeeper::StdinEnd,
        ToKeeper::Signal(15),
        ToKeeper::Resize(TerminalSize { rows: 24, columns: 300 }),
        ToKeeper::Acknowledge { stdout: 9, stderr: 0 },
        ToKeeper::EndSeen,
    ];
    let files = [
        FileFrame::Manifest { data: Data(b"ab".to_vec()), is_last: true },
        FileFrame::Wanted { numbers: vec![0, 300], is_last: false },
        FileFrame::Bytes(Data(b"x".to_vec())),
        FileFrame::Done,
        FileFrame::Failed("no".to_owned()),
    ];
    let peer = Opening::Peer(PeerOpening {
        user: PublicKey::of(&SigningKey::from_bytes(&[1; 32])),
        request: RequestId::new("r").expect("a short id"),
        run: RunNumber(300),
        from: SeatNumber(1),
        to: SeatNumber(2),
        port: 29500,
    });
    let peer = [vec![3], wire::encode(&peer).expect("an opening within its bounds")].concat();
    let manifest = [&b"\x06\x01\x03d/a\x01\x03\x01"[..], &[7; 32]].concat();
    [
        stream(0, &from_keeper),
        stream(1, &to_keeper),
        [&[2], ORDER.as_bytes()].concat(),
        stream(5, &files),
        manifest,
        peer,
    ]
    .into()
}

fn stream<F: Frame>(kind: u8, frames: &[F]) -> Vec<u8> {
    let frames = frames.iter().flat_map(|frame| encode(frame).expect("a frame within its bounds"));
    std::iter::once(kind).chain(frames).collect()
}
