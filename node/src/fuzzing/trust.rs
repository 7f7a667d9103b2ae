//! Join tokens, and the files of grids and keys.

use std::fs;

use broker::{
    time::Time,
    trust::{PublicKey, Revocation, SignedRevocation, SignedText, Subject},
};
use ed25519_dalek::SigningKey;
use fuzz_support::{Input, Seed, Target};

use super::config::in_directory;
use crate::trust::{GridFile, RevocationFile, Token};

/// Join tokens, as text from anywhere.
pub const TOKEN: Target = Target { name: "token", run: token, seeds: token_seeds };
/// A data directory's grid file, or its list of revocations: the first byte says which.
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
    let is_grid = input.flag();
    let bytes = input.rest();
    in_directory(|directory| {
        let file = if is_grid { GridFile::path(directory) } else { directory.join("grid-revocations.jsonl") };
        fs::write(&file, bytes).expect("a file that can be written");
        let read = if is_grid {
            GridFile::load(directory).map(|grid| assert!(grid.is_some(), "the file is there"))
        } else {
            let lines = String::from_utf8_lossy(bytes).lines().count();
            RevocationFile::at(directory).load().map(|all| assert_eq!(all.len(), lines))
        };
        if let Err(complaint) = read {
            assert!(complaint.to_string().contains(&file.display().to_string()), "{complaint}");
        }
        fs::remove_file(&file).expect("the file that was written");
    });
}

fn grid_file_seeds() -> Vec<Seed> {
    let bootstrap = vec!["/ip4/192.0.2.1/tcp/7741".to_owned()];
    let grid = serde_json::to_vec(&GridFile::new("test".to_owned(), None, bootstrap)).unwrap_or_default();
    let key = SigningKey::from_bytes(&[9; 32]);
    let subject = Subject::Key(PublicKey::of(&key));
    let revocation = Revocation { grid: "test".to_owned(), subject, revoked: Time::ZERO, keep_until: Time(1) };
    let signed = SignedText::sign(&revocation, &key).map(|statement| SignedRevocation { statement, issuer: None });
    let revocations = signed.ok().and_then(|signed| serde_json::to_vec(&signed).ok()).unwrap_or_default();
    vec![("grid", [&[1], &grid[..]].concat()), ("revocations", [&[0], &revocations[..], b"\n"].concat())]
}
