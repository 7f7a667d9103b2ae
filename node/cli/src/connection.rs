//! Where the node's API is, and which token or key opens it.
//!
//! Who names neither is asked for nothing when the node is of the same user: it listens at a socket in the data directory. A node offers its
//! API to other machines over TLS only; then the node's certificate must be signed by somebody whom this machine,
//! or the named file, trusts. Invariant: flags win over the environment, the environment over what the node left in the data directory. The
//! environment is read here only, and never by `kolo node`, which would otherwise listen where a client was told to ask.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use kolo_config::{DEFAULT_API, Surroundings};
use kolo_runtime::{https, own_socket};
use kolo_storage::data_dir::{API_ADDRESS_FILE, API_SOCKET, API_TOKEN_FILE};
use kolo_text::document;
use kolo_trust::files;
use ureq::tls::{Certificate, PemItem, parse_pem};

use super::{
    args::GlobalArgs,
    client::{Client, Shown},
    error::CliError,
    exit::Exit,
    keys::Keys,
};

/// The environment variable for `--api`.
pub const API_VARIABLE: &str = "KOLO_API";
/// The environment variable for `--token-file`.
pub const TOKEN_FILE_VARIABLE: &str = "KOLO_TOKEN_FILE";
/// The environment variable for `--ca-file`.
pub const CA_FILE_VARIABLE: &str = "KOLO_CA_FILE";

/// A connection to the node that the user means: by the socket in the data directory when neither node nor token was named and this user may
/// use it. Where no token was named and the default one is not there or may not be read, the user's key signs the calls, if there is one for
/// the node's grid.
///
/// # Errors
/// [`CliError`] when an address makes no sense, or there is neither token nor key.
pub fn connect(global: &GlobalArgs, surroundings: &Surroundings, keys: &Keys) -> Result<Client, CliError> {
    let (data_dir, api) = (data_dir(global, surroundings)?, named_api(global));
    let named_token = global.token_file.clone().or_else(|| env::var_os(TOKEN_FILE_VARIABLE).map(PathBuf::from));
    let was_named = named_token.is_some();
    let socket = data_dir.join(API_SOCKET);
    if api.is_none() && !was_named && own_socket::may_connect(&socket) {
        return trusting(Client::by_socket(socket), global);
    }
    let client = unknown(global, api.as_deref(), &data_dir)?;
    let token_file = named_token.unwrap_or_else(|| data_dir.join(API_TOKEN_FILE));
    let is_default = !was_named && global.data_dir.is_none();
    let service = surroundings.service_data_dir.as_deref().filter(|_| is_default);
    match read_token(&token_file, was_named, service) {
        Ok(token) => Ok(client.showing(Shown::Token { token, file: token_file })),
        Err(error) if was_named || is_there(&token_file) || !keys.may_exist() => Err(error),
        Err(error) => by_key(client, keys)?.ok_or(error),
    }
}

/// The same, where the user's key signs all calls.
///
/// # Errors
/// [`CliError`] when an address makes no sense, or there is no key for the node's grid.
pub fn connect_by_key(global: &GlobalArgs, surroundings: &Surroundings, keys: &Keys) -> Result<Client, CliError> {
    let none = || CliError::failed("you have no key for the grid of this node").hinted("kolo login makes one");
    by_key(unknown(global, named_api(global).as_deref(), &data_dir(global, surroundings)?)?, keys)?.ok_or_else(none)
}

/// The same client, that signs its calls by the user's key; none when there is none for the node's grid.
fn by_key(client: Client, keys: &Keys) -> Result<Option<Client>, CliError> {
    let node = client.challenge("GET", "/v1/requests")?;
    let signer = keys.choose(&node)?;
    Ok(signer.map(|signer| client.showing(Shown::Key { key: signer.key, site: node.site })))
}

/// The data directory that the user means.
fn data_dir(global: &GlobalArgs, surroundings: &Surroundings) -> Result<PathBuf, CliError> {
    match &global.data_dir {
        Some(directory) => Ok(directory.clone()),
        None => Ok(surroundings.default_data_dir()?),
    }
}

/// The address that the user has named, if any.
fn named_api(global: &GlobalArgs) -> Option<String> {
    global.api.clone().or_else(|| env::var(API_VARIABLE).ok().filter(|text| !text.is_empty()))
}

/// A client that does not say who it is, of the named node, else of that of the data directory.
fn unknown(global: &GlobalArgs, api: Option<&str>, data_dir: &Path) -> Result<Client, CliError> {
    let base = match api {
        Some(text) => base_url(text)?,
        None => address_left_by_node(data_dir)?.unwrap_or_else(|| format!("http://{DEFAULT_API}")),
    };
    trusting(Client::new(base, Shown::Nothing), global)
}

/// Whether a file is there and may be read.
fn is_there(file: &Path) -> bool {
    fs::File::open(file).is_ok()
}

/// The same client, with whom it trusts when the node is asked over TLS.
fn trusting(client: Client, global: &GlobalArgs) -> Result<Client, CliError> {
    let ca_file = global.ca_file.clone().or_else(|| env::var_os(CA_FILE_VARIABLE).map(PathBuf::from));
    if client.is_tls() {
        return Ok(client.trusting(trusted(ca_file.as_deref())?));
    }
    match global.ca_file {
        Some(_) => {
            Err(CliError::Usage("--ca-file: only an https address (--api) has a certificate to check".to_owned()))
        }
        None => Ok(client),
    }
}

/// The certificates that sign those of trusted nodes: the ones in `file`, else the system's.
fn trusted(file: Option<&Path>) -> Result<Vec<Certificate<'static>>, CliError> {
    let Some(file) = file else {
        let named = |why| CliError::Usage(format!("{why}; name a file with --ca-file"));
        return https::system_authorities().map_err(named);
    };
    let bad = |why: &str| CliError::Usage(format!("--ca-file {}: {why}", file.display()));
    let text = fs::read(file).map_err(|error| bad(&error.to_string()))?;
    let items: Result<Vec<PemItem<'_>>, _> = parse_pem(&text).collect();
    let items = items.map_err(|error| bad(&format!("it is no PEM file: {error}")))?;
    let certificates = items.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() { Err(bad("it holds no certificate")) } else { Ok(certificates) }
}

/// `http://host:port` of an address or URL, or `https://host:port`.
fn base_url(text: &str) -> Result<String, CliError> {
    let bad = |why: &str| {
        CliError::Usage(format!("--api {text:?}: {why}; expected 127.0.0.1:7740 or https://kolo.example.org:7743"))
    };
    let (scheme, address) = match text.strip_prefix("https://") {
        Some(address) => ("https", address),
        None => ("http", text.strip_prefix("http://").unwrap_or(text)),
    };
    let address = address.trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
    let port: u16 = port.parse().map_err(|_| bad("the port is no number up to 65535"))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if port == 0 || host.is_empty() || !host.chars().all(is_plain) {
        return Err(bad("it is no address"));
    }
    Ok(format!("{scheme}://{host}:{port}"))
}

fn address_left_by_node(data_dir: &Path) -> Result<Option<String>, CliError> {
    match document::read_text(&data_dir.join(API_ADDRESS_FILE)) {
        Ok(text) => base_url(text.trim()).map(Some),
        Err(document::DocumentError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_token(file: &Path, was_named: bool, service: Option<&Path>) -> Result<String, CliError> {
    const HERE: &str = "the token is in api.token in the node's data directory";
    let no_token = |error: document::DocumentError| {
        let message = format!("no API token: {error}");
        if was_named {
            return CliError::Failed { message, exit: Exit::Usage }.hinted(HERE);
        }
        let to_do = "start a node with `kolo node`, or name the data directory of a running one with --data-dir; to use that of \
                     somebody else, make or take a key of yours (kolo login, or kolo join with the token they give you) and name \
                     their node with --api ADDRESS or KOLO_API";
        let service = service.map_or_else(String::new, |directory| {
            format!("; that of the service is {}, which root and its own user may read", directory.display())
        });
        CliError::Failed { message, exit: Exit::Unreachable }.hinted(format!("{to_do}{service}"))
    };
    let text = document::read_text(file).map_err(no_token)?;
    files::check_private(file)?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.len() <= 256 && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_token {
        return Ok(token.to_owned());
    }
    let message = format!("{}: holds no API token", file.display());
    Err(CliError::Failed { message, exit: Exit::Usage }.hinted(HERE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn addresses_and_urls_are_understood() {
        for (text, expected) in [
            ("127.0.0.1:7740", "http://127.0.0.1:7740"),
            ("http://127.0.0.1:80/", "http://127.0.0.1:80"),
            ("[::1]:7740", "http://[::1]:7740"),
            ("localhost:7740", "http://localhost:7740"),
            ("https://kolo.example.org:7743/", "https://kolo.example.org:7743"),
        ] {
            assert_eq!(base_url(text).unwrap(), expected);
        }
        for text in
            ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "https://a", "ftp://a:1", "http://a/b:1", ":7740", "a b:1"]
        {
            assert!(matches!(base_url(text), Err(CliError::Usage(_))), "{text}");
        }
    }

    #[test]
    fn a_file_of_authorities_holds_some() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let told = || trusted(Some(&file)).unwrap_err().to_string();
        assert!(told().contains("ca.pem: "), "{}", told());
        fs::write(&file, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        assert!(told().ends_with("it holds no certificate"), "{}", told());
        fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert_eq!(trusted(Some(&file)).unwrap().len(), 1);
    }

    #[test]
    fn the_data_directory_tells_address_and_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(address_left_by_node(path).unwrap(), None);
        fs::write(path.join(API_ADDRESS_FILE), "127.0.0.1:4567\n").unwrap();
        assert_eq!(address_left_by_node(path).unwrap().as_deref(), Some("http://127.0.0.1:4567"));
        let token = path.join(API_TOKEN_FILE);
        let error = read_token(&token, false, None).unwrap_err();
        assert_eq!(error.exit().code(), 3);
        assert!(!error.hint().unwrap().contains("service"));
        assert!(error.hint().unwrap().contains("kolo join") && error.hint().unwrap().contains("--api ADDRESS"));
        let error = read_token(&token, false, Some(Path::new("/var/lib/kolo"))).unwrap_err();
        assert!(
            error
                .hint()
                .unwrap()
                .ends_with("that of the service is /var/lib/kolo, which root and its own user may read")
        );
        assert_eq!(read_token(&token, true, None).unwrap_err().exit().code(), 64);
        files::replace(&token, "not a token\n").unwrap();
        assert!(read_token(&token, false, None).unwrap_err().to_string().contains("holds no API token"));
        files::replace(&token, "00ff\n").unwrap();
        assert_eq!(read_token(&token, false, None).unwrap(), "00ff");
        for was_named in [false, true] {
            fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
            let error = read_token(&token, was_named, None).unwrap_err().to_string();
            assert!(error.contains("api.token: mode 640 lets others read") && error.contains("chmod 600"), "{error}");
        }
    }
}
