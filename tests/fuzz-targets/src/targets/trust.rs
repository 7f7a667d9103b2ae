//! Join tokens, the files of grids and keys, and what other sites show of their membership.

use std::fs;

use broker::{
    time::{Span, Time},
    trust::{
        Chain, Credential, Limits, PublicKey, Revocation, Revocations, Role, SignedRevocation, SignedText, Subject,
    },
};
use ed25519_dalek::SigningKey;
use kolo::readers::{GridFile, IssuedList, RevocationFile, Token, Wallet, read_credential, read_revocation};

use super::directory::in_directory;
use crate::{Input, Seed, Target};

/// Join tokens, as text from anywhere.
pub const TOKEN: Target = Target { name: "token", run: token, seeds: token_seeds };
/// A credential in an advert, or a revocation in an answer: the first byte says which.
pub const SHOWN: Target = Target { name: "shown", run: shown, seeds: shown_seeds };
/// A data directory's grid file, its lists of revocations and of invitations, or a credential: the first byte says which.
pub const GRID_FILES: Target = Target { name: "grid-files", run: grid_files, seeds: grid_file_seeds };

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

fn token_seeds() -> Vec<Seed> {
    let texts = [("other-version", "kolo9-AAAA"), ("short", "kolo1-AAAA"), ("none", "hello")];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
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
    let root = PublicKey::of(&key());
    if chain.verify("test", &root, NOW).is_ok() {
        assert_eq!(chain.links()[0].author, root);
    }
}

fn shown(data: &[u8]) {
    let mut input = Input::new(data);
    if input.flag() {
        let Some(revocation) = read_revocation(input.rest()) else { return };
        let mut known = Revocations::default();
        let is_new = known.add("test", &PublicKey::of(&key()), &revocation, NOW).unwrap_or(false);
        assert_eq!(known.len(), usize::from(is_new));
        let written = serde_json::to_vec(&revocation).expect("a revocation that was read can be written");
        assert_eq!(read_revocation(&written), Some(revocation));
        return;
    }
    let Some(chain) = read_credential(input.rest()) else { return };
    check_chain(&chain);
    let written = bincode::serde::encode_to_vec(&chain, bincode::config::standard());
    assert_eq!(read_credential(&written.expect("a chain that was read can be written")), Some(chain));
}

const NOW: Time = Time(1_000);

fn key() -> SigningKey {
    SigningKey::from_bytes(&[9; 32])
}

fn some_chain() -> Option<Chain> {
    let user = Subject::Key(PublicKey::of(&SigningKey::from_bytes(&[8; 32])));
    let credential = Credential {
        grid: "test".to_owned(),
        subject: user,
        role: Role::User,
        name: "ann".to_owned(),
        limits: Limits { max_holds: Some(3), max_reach_s: Some(Span(86_400)), ..Limits::default() },
        is_invitation: false,
        issued: Time::ZERO,
        expires: Time(2_000),
    };
    SignedText::sign(&credential, &key()).ok().map(Chain::of_root)
}

fn some_revocation() -> Option<SignedRevocation> {
    let subject = Subject::Key(PublicKey::of(&key()));
    let revocation = Revocation { grid: "test".to_owned(), subject, revoked: Time::ZERO, keep_until: Time(2_000) };
    SignedText::sign(&revocation, &key()).ok().map(|statement| SignedRevocation { statement, issuer: None })
}

fn shown_seeds() -> Vec<Seed> {
    let (Some(chain), Some(revocation)) = (some_chain(), some_revocation()) else { return Vec::new() };
    let longer = chain.with(revocation.statement.clone());
    let by_admin = SignedRevocation { issuer: Some(chain.clone()), ..revocation.clone() };
    let bincode = |chain: &Chain| {
        let bytes = bincode::serde::encode_to_vec(chain, bincode::config::standard()).unwrap_or_default();
        [&[0], &bytes[..]].concat()
    };
    let json = |revocation: &SignedRevocation| [&[1], &serde_json::to_vec(revocation).unwrap_or_default()[..]].concat();
    vec![
        ("credential", bincode(&chain)),
        ("longer", bincode(&longer)),
        ("revocation", json(&revocation)),
        ("by-admin", json(&by_admin)),
    ]
}

fn grid_file_seeds() -> Vec<Seed> {
    let bootstrap = vec!["/ip4/192.0.2.1/tcp/7741".to_owned()];
    let grid = serde_json::to_vec(&GridFile::new("test".to_owned(), None, bootstrap)).unwrap_or_default();
    let revocations = some_revocation().and_then(|signed| serde_json::to_vec(&signed).ok()).unwrap_or_default();
    let credential = some_chain().and_then(|chain| serde_json::to_vec(&chain).ok()).unwrap_or_default();
    let issued = r#"[{"subject":{"site":"s"},"role":"site","name":"","issued":0,"expires":2000}]"#;
    vec![
        ("grid", [&[1], &grid[..]].concat()),
        ("revocations", [&[0], &revocations[..], b"\n"].concat()),
        ("issued", [&[2], issued.as_bytes()].concat()),
        ("credential", [&[3], &credential[..]].concat()),
    ]
}
