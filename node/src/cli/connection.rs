//! Where the node's API is and which token opens it.
//!
//! Invariant: flags win over the environment, the environment over what the node left in the data directory. The
//! environment is read here only, and never by `kolo node`, which would otherwise listen where a client was told to ask.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use super::{
    args::GlobalArgs,
    client::{ApiError, Client},
    error::CliError,
};
use crate::config::{API_ADDRESS_FILE, API_TOKEN_FILE, DEFAULT_API, Surroundings, document};

/// The environment variable for `--api`.
pub const API_VARIABLE: &str = "KOLO_API";
/// The environment variable for `--token-file`.
pub const TOKEN_FILE_VARIABLE: &str = "KOLO_TOKEN_FILE";

/// A connection to the node that the user means.
///
/// # Errors
/// [`CliError::Usage`] when an address makes no sense, [`CliError::Api`] when there is no token.
pub fn connect(global: &GlobalArgs, surroundings: &Surroundings) -> Result<Client, CliError> {
    let data_dir = match &global.data_dir {
        Some(directory) => directory.clone(),
        None => surroundings.default_data_dir()?,
    };
    let api = global.api.clone().or_else(|| env::var(API_VARIABLE).ok().filter(|text| !text.is_empty()));
    let base = match api {
        Some(text) => base_url(&text)?,
        None => address_left_by_node(&data_dir)?.unwrap_or_else(|| format!("http://{DEFAULT_API}")),
    };
    let named_token = global.token_file.clone().or_else(|| env::var_os(TOKEN_FILE_VARIABLE).map(PathBuf::from));
    let was_named = named_token.is_some();
    let token_file = named_token.unwrap_or_else(|| data_dir.join(API_TOKEN_FILE));
    let token = read_token(&token_file, was_named)?;
    Ok(Client::new(base, token, token_file))
}

/// `http://host:port` of an address or URL.
fn base_url(text: &str) -> Result<String, CliError> {
    let bad =
        |why: &str| CliError::Usage(format!("--api {text:?}: {why}; expected 127.0.0.1:7740 or http://127.0.0.1:7740"));
    if text.starts_with("https://") {
        return Err(bad("the node's API speaks plain HTTP on loopback"));
    }
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
    let port: u16 = port.parse().map_err(|_| bad("the port is no number up to 65535"))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if port == 0 || host.is_empty() || !host.chars().all(is_plain) {
        return Err(bad("it is no address"));
    }
    Ok(format!("http://{host}:{port}"))
}

fn address_left_by_node(data_dir: &Path) -> Result<Option<String>, CliError> {
    match document::read_text(&data_dir.join(API_ADDRESS_FILE)) {
        Ok(text) => base_url(text.trim()).map(Some),
        Err(document::DocumentError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_token(file: &Path, was_named: bool) -> Result<String, ApiError> {
    let text = document::read_text(file).map_err(|error| ApiError::NoToken { error, was_named })?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.len() <= 256 && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_token { Ok(token.to_owned()) } else { Err(ApiError::BadToken { file: file.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn addresses_and_urls_are_understood() {
        for (text, expected) in [
            ("127.0.0.1:7740", "http://127.0.0.1:7740"),
            ("http://127.0.0.1:80/", "http://127.0.0.1:80"),
            ("[::1]:7740", "http://[::1]:7740"),
            ("localhost:7740", "http://localhost:7740"),
        ] {
            assert_eq!(base_url(text).unwrap(), expected);
        }
        for text in ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "https://a:1", "http://a/b:1", ":7740", "a b:1"] {
            assert!(matches!(base_url(text), Err(CliError::Usage(_))), "{text}");
        }
    }

    #[test]
    fn the_data_directory_tells_address_and_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(address_left_by_node(path).unwrap(), None);
        fs::write(path.join(API_ADDRESS_FILE), "127.0.0.1:4567\n").unwrap();
        assert_eq!(address_left_by_node(path).unwrap().as_deref(), Some("http://127.0.0.1:4567"));
        let token = path.join(API_TOKEN_FILE);
        assert_eq!(read_token(&token, false).unwrap_err().exit().code(), 3);
        assert_eq!(read_token(&token, true).unwrap_err().exit().code(), 64);
        fs::write(&token, "not a token\n").unwrap();
        assert!(matches!(read_token(&token, false), Err(ApiError::BadToken { .. })));
        fs::write(&token, "00ff\n").unwrap();
        assert_eq!(read_token(&token, false).unwrap(), "00ff");
    }
}
