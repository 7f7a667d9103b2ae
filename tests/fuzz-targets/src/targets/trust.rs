//! Join tokens, the files of grids and keys, and what other sites show of their membership.

use std::fs;

use broker::{
    time::Time,
    trust::{Chain, Revocations, Role, Roots, testing},
};
use discovery::wire::{self, REASONS_MAX, Verdict};
use kolo_api::signed_call::{SignedCall, sign as sign_call};
use kolo_daemon::net::membership::{decode as read_credential, decode_revocation as read_revocation};
use kolo_trust::{GridFile, IssuedList, RevocationFile, Token, Wallet};

use super::{
    directory::in_directory,
    fixed::site,
    golden::{golden, golden_statement},
};
use crate::{Input, Target};

/// Join tokens, as text from anywhere.
pub const TOKEN: Target = Target { name: "token", run: token, golden: Vec::new };
/// The header of a call to the API that its user has signed.
pub const CALL: Target = Target { name: "call", run: call, golden: golden_call };
/// A credential in an advert, a revocation in an answer, or the verdict on a proof of membership: the first byte says which.
pub const SHOWN: Target = Target { name: "shown", run: shown, golden: golden_shown };
/// A data directory's grid file, its lists of revocations and of invitations, or a credential: the first byte says which.
pub const GRID_FILES: Target = Target { name: "grid-files", run: grid_files, golden: golden_grid_files };

fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Token::from_text(text) {
        Ok(token) => {
            let written = token.to_text().expect("a token that was read can be written");
            assert_eq!(Token::from_text(&written).expect("and read").to_text().ok(), Some(written));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn call(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(read) = SignedCall::read(text) else { return };
    let written = read.to_string();
    assert_eq!(SignedCall::read(&written), Some(read));
}

fn golden_call() -> Vec<Vec<u8>> {
    let signed =
        sign_call(&testing::key(3).into(), "GET", "/v1/requests?limit=5", "00ff", &site("a")).expect("a short path");
    vec![signed.into_bytes()]
}

fn grid_files(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.below(4);
    let bytes = input.rest();
    in_directory(|directory| {
        let wallet = Wallet::at(directory);
        let file = match kind {
            0 => directory.join("grid-revocations.jsonl"),
            1 => GridFile::path(directory),
            2 => directory.join("grid-issued.json"),
            _ => wallet.credential_path("test", Role::User),
        };
        fs::write(&file, bytes).expect("a file that can be written");
        let read = match kind {
            0 => {
                let lines = String::from_utf8_lossy(bytes).lines().count();
                RevocationFile::at(directory).load().map(|all| assert_eq!(all.len(), lines))
            }
            1 => GridFile::load(directory).map(|grid| assert!(grid.is_some(), "the file is there")),
            2 => IssuedList::load(directory).map(|list| assert!(list.entries().len() <= bytes.len())),
            _ => wallet.credential("test", Role::User).map(|chain| check_chain(&chain.expect("the file is there"))),
        };
        if let Err(complaint) = read {
            assert!(complaint.to_string().contains(&file.display().to_string()), "{complaint}");
        }
        fs::remove_file(&file).expect("the file that was written");
    });
}

/// Whatever somebody shows: it is looked at without harm, and nothing that this root has not signed is believed.
fn check_chain(chain: &Chain) {
    let root = testing::public(0);
    if chain.verify("test", &root, NOW).is_ok() {
        assert_eq!(chain.links()[0].author, root);
    }
}

fn shown(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.below(3);
    if kind == 2 {
        let Ok(verdict) = Verdict::read(input.rest()) else { return };
        assert!(verdict.revocations.len() <= REASONS_MAX);
        let written = verdict.to_bytes().expect("a verdict that was read can be written");
        assert_eq!(Verdict::read(&written).ok(), Some(verdict));
        return;
    }
    if kind == 1 {
        let Some(revocation) = read_revocation(input.rest()) else { return };
        let mut known = Revocations::default();
        let is_new = known.add("test", &Roots::of(testing::public(0)), &revocation, NOW).unwrap_or(false);
        assert_eq!(known.len(), usize::from(is_new));
        let written = serde_json::to_vec(&revocation).expect("a revocation that was read can be written");
        assert_eq!(read_revocation(&written), Some(revocation));
        return;
    }
    let Some(chain) = read_credential(input.rest()) else { return };
    check_chain(&chain);
    let written = wire::encode(&chain);
    assert_eq!(read_credential(&written.expect("a chain that was read can be written")), Some(chain));
}

const NOW: Time = Time(1_000);

fn golden_shown() -> Vec<Vec<u8>> {
    let chain: Chain = serde_json::from_slice(&golden_statement("credential")).expect("a chain");
    let chain = wire::encode(&chain).expect("that can be written");
    let all = [chain, golden_statement("revocation"), golden("verdict").concat()];
    all.into_iter().zip(0..).map(|(shown, kind)| [&[kind], &shown[..]].concat()).collect()
}

fn golden_grid_files() -> Vec<Vec<u8>> {
    let (revocation, credential) = (golden_statement("revocation"), golden_statement("credential"));
    vec![[&[0], &revocation[..], b"\n"].concat(), [&[3], &credential[..]].concat()]
}
