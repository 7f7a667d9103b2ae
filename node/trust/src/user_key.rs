//! The key that signs for a user: in a file, or held by an SSH agent.
//!
//! Invariant: what an agent has signed was checked before it goes anywhere. The agent is the one of `SSH_AUTH_SOCK`, and it is asked for
//! each signature, so that it may ask its owner.

use std::{
    env,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use broker::trust::{PublicKey, Signature, SignedText, Statement};
use ed25519_dalek::SigningKey;
use russh::keys::{
    PublicKey as SshKey,
    agent::{AgentIdentity, client::AgentClient},
    ssh_key::{HashAlg, public::KeyData},
};

use super::{
    error::TrustFileError,
    files::{self, AGENT_KEY_BEGINS},
    ssh_key,
};

/// How long the agent may take, which may ask its owner: the node wants a signed call within 30 s.
const ANSWER_MAX: Duration = Duration::from_secs(25);

/// The key that signs for a user.
#[derive(Debug, Clone)]
pub enum UserKey {
    /// From a file.
    File(Box<SigningKey>),
    /// In an agent.
    Agent(Box<AgentKey>),
}

/// A key that an SSH agent holds.
#[derive(Debug, Clone)]
pub struct AgentKey {
    public: PublicKey,
    /// Where the agent is; none when nobody has said so.
    socket: Option<PathBuf>,
}

impl UserKey {
    /// The key of the file at `path`, which names that of an agent by its public line; none when there is no such file.
    ///
    /// # Errors
    /// [`TrustFileError`] when the file is no key, or others can read it.
    pub fn load(path: &Path) -> Result<Option<UserKey>, TrustFileError> {
        let Some(text) = files::read_key_text(path)? else { return Ok(None) };
        if !text.starts_with(AGENT_KEY_BEGINS) {
            return Ok(Some(SigningKey::from_bytes(&files::secret_of(path, &text)?).into()));
        }
        let wrong =
            |error: ssh_key::KeyError| TrustFileError::Malformed { path: path.to_owned(), detail: error.to_string() };
        let key = ssh_key::read(text.trim()).and_then(|key| AgentKey::new(&key, agent_here())).map_err(wrong)?;
        Ok(Some(UserKey::Agent(Box::new(key))))
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        match self {
            UserKey::File(key) => PublicKey::of(key),
            UserKey::Agent(key) => key.public,
        }
    }

    /// Signs `statement`.
    ///
    /// # Errors
    /// [`TrustFileError::Trust`] when it is too large, [`TrustFileError::Agent`] when the agent does not sign.
    pub fn sign<T: Statement>(&self, statement: &T) -> Result<SignedText, TrustFileError> {
        match self {
            UserKey::File(key) => Ok(SignedText::sign(statement, key)?),
            UserKey::Agent(key) => {
                let text = SignedText::text_of(statement)?;
                let signature = key.signature(text.as_bytes())?;
                let signed = SignedText { text, author: key.public, signature };
                signed.open::<T>().map_err(|_| agent("has signed something else"))?;
                Ok(signed)
            }
        }
    }
}

impl From<SigningKey> for UserKey {
    fn from(key: SigningKey) -> UserKey {
        UserKey::File(Box::new(key))
    }
}

impl AgentKey {
    fn new(key: &SshKey, socket: Option<PathBuf>) -> Result<AgentKey, ssh_key::KeyError> {
        match key.key_data() {
            KeyData::Ed25519(public) => Ok(AgentKey { public: PublicKey::from_bytes(public.0), socket }),
            _ => Err(ssh_key::KeyError::Kind(key.algorithm().to_string())),
        }
    }

    /// The key of the agent that `which` names: by its comment, its fingerprint (`SHA256:...`) or its public line; the only one when it
    /// names none.
    ///
    /// # Errors
    /// [`TrustFileError::Agent`] when there is no agent, no such key, or several.
    pub fn find(which: Option<&str>) -> Result<AgentKey, TrustFileError> {
        AgentKey::find_in(agent_here().as_deref(), which)
    }

    fn find_in(socket: Option<&Path>, which: Option<&str>) -> Result<AgentKey, TrustFileError> {
        let held = asking(socket.map(Path::to_owned), async |mut client| client.request_identities().await)?;
        let line = which.and_then(|which| ssh_key::read(which.trim()).ok());
        let mut keys = Vec::new();
        for identity in held {
            let AgentIdentity::PublicKey { key, comment } = identity else { continue };
            let Ok(found) = AgentKey::new(&key, socket.map(Path::to_owned)) else { continue };
            let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
            let is_line = line.as_ref().is_some_and(|line| line.key_data() == key.key_data());
            if which.is_none_or(|which| which == comment || which == fingerprint || is_line) {
                keys.push((found, fingerprint));
            }
        }
        if keys.len() > 1 {
            let names: Vec<&str> = keys.iter().map(|(_, fingerprint)| fingerprint.as_str()).collect();
            return Err(agent(&format!("has several keys: name one of {}", names.join(", "))));
        }
        let none = "has no such key of kind ssh-ed25519 (ssh-add -l lists them, ssh-add FILE adds one)";
        keys.pop().map(|(key, _)| key).ok_or_else(|| agent(none))
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Its public line, as it is kept in a file.
    ///
    /// # Errors
    /// [`TrustFileError::Agent`] when it cannot be written.
    pub fn line(&self) -> Result<String, TrustFileError> {
        ssh_key::line(&ssh_key::public(self.public.as_bytes())).map_err(|error| agent(&error.to_string()))
    }

    fn signature(&self, message: &[u8]) -> Result<Signature, TrustFileError> {
        let (key, message) = (ssh_key::public(self.public.as_bytes()), message.to_vec());
        let sign = async move |mut client: Agent| client.sign_request_signature(&key, None, &message).await;
        let signed = asking(self.socket.clone(), sign)?;
        let bytes = signed.as_bytes().try_into().map_err(|_| agent("answers with no signature of kind ssh-ed25519"))?;
        Ok(Signature::from_bytes(bytes))
    }
}

fn agent(what: &str) -> TrustFileError {
    TrustFileError::Agent(what.to_owned())
}

type Agent = AgentClient<tokio::net::UnixStream>;

/// Where the agent of this process is.
fn agent_here() -> Option<PathBuf> {
    env::var_os("SSH_AUTH_SOCK").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Asks the agent. Blocks: on a thread of its own, since whoever wants a signature may be within a runtime.
fn asking<T, A>(socket: Option<PathBuf>, ask: A) -> Result<T, TrustFileError>
where
    T: Send + 'static,
    A: AsyncFnOnce(Agent) -> Result<T, russh::keys::Error> + Send + 'static,
{
    let socket = socket.ok_or_else(|| agent("is needed for the key, and there is none here"))?;
    let asked = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| agent(&format!("cannot be asked: {error}")))?;
        runtime.block_on(async {
            let answer = async { ask(AgentClient::connect_uds(socket).await?).await };
            let answer = tokio::time::timeout(ANSWER_MAX, answer).await;
            let answer = answer.map_err(|_| agent(&format!("has not answered in {} s", ANSWER_MAX.as_secs())))?;
            answer.map_err(|error| agent(&format!("does not do it ({error}); ssh-add -l lists its keys")))
        })
    });
    asked.join().unwrap_or_else(|_| Err(agent("cannot be asked")))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write as _},
        os::unix::net::{UnixListener, UnixStream},
    };

    use broker::{
        time::Time,
        trust::{Credential, Limits, Role, Subject},
    };
    use ed25519_dalek::Signer as _;

    use super::*;

    fn key(number: u8) -> SigningKey {
        SigningKey::from_bytes(&[number; 32])
    }

    fn statement() -> Credential {
        Credential {
            grid: "lab".to_owned(),
            subject: Subject::Key(PublicKey::of(&key(1))),
            role: Role::User,
            name: "ada".to_owned(),
            limits: Limits::default(),
            is_invitation: false,
            issued: Time(1),
            expires: Time(2),
        }
    }

    fn text(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    fn blob(key: &SigningKey) -> Vec<u8> {
        [text(b"ssh-ed25519"), text(key.verifying_key().as_bytes())].concat()
    }

    fn read_text(stream: &mut impl Read) -> Vec<u8> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// An agent that holds `held`, and signs with `signs` whatever key it is asked for; it answers so many questions.
    fn agent_with(path: &Path, held: Vec<(SigningKey, &'static str)>, signs: SigningKey, questions: usize) {
        let listener = UnixListener::bind(path).unwrap();
        let answer = move |mut stream: UnixStream| {
            let question = read_text(&mut stream);
            let answer = match question[0] {
                11 => {
                    let keys =
                        held.iter().flat_map(|(key, comment)| [text(&blob(key)), text(comment.as_bytes())].concat());
                    let count = u32::try_from(held.len()).unwrap().to_be_bytes();
                    [&[12][..], &count, &keys.collect::<Vec<u8>>()].concat()
                }
                13 => {
                    let mut rest = &question[1..];
                    assert_eq!(read_text(&mut rest), blob(&held[0].0), "the key that was taken");
                    let signature = signs.sign(&read_text(&mut rest)).to_bytes();
                    [vec![14], text(&[text(b"ssh-ed25519"), text(&signature)].concat())].concat()
                }
                other => panic!("{other}"),
            };
            stream.write_all(&text(&answer)).unwrap();
        };
        thread::spawn(move || (0..questions).for_each(|_| answer(listener.accept().unwrap().0)));
    }

    #[test]
    fn a_key_of_an_agent_is_found_by_its_names_and_signs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        agent_with(&path, vec![(key(1), "ada@home"), (key(2), "ada@work")], key(1), 5);
        let find = |which| AgentKey::find_in(Some(&path), which);
        let several = find(None).unwrap_err().to_string();
        assert!(several.contains("has several keys") && several.contains("SHA256:"), "{several}");
        assert!(find(Some("nobody")).unwrap_err().to_string().contains("has no such key"));
        let found = find(Some("ada@home")).unwrap();
        let line = format!("{} of ada", found.line().unwrap());
        assert_eq!(find(Some(&line)).unwrap().public(), found.public());
        let signed = UserKey::Agent(Box::new(found)).sign(&statement()).unwrap();
        assert_eq!(signed.author, PublicKey::of(&key(1)));
        assert_eq!(signed.open::<Credential>().unwrap(), statement());
        assert_eq!(signed, UserKey::from(key(1)).sign(&statement()).unwrap(), "the very bytes that a file signs");
    }

    #[test]
    fn an_agent_that_signs_by_another_key_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        agent_with(&path, vec![(key(1), "")], key(3), 2);
        let found = AgentKey::find_in(Some(&path), None).unwrap();
        let refused = UserKey::Agent(Box::new(found)).sign(&statement()).unwrap_err().to_string();
        assert_eq!(refused, "the SSH agent (SSH_AUTH_SOCK) has signed something else");
        let nowhere = AgentKey::find_in(None, None).unwrap_err().to_string();
        assert!(nowhere.contains("there is none here"), "{nowhere}");
    }

    #[test]
    fn a_file_names_the_key_of_an_agent_and_nobody_takes_it_for_a_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("user.key");
        assert!(UserKey::load(&path).unwrap().is_none());
        files::replace(&path, &format!("{}\n", "07".repeat(32))).unwrap();
        assert_eq!(UserKey::load(&path).unwrap().unwrap().public(), PublicKey::of(&key(7)));
        let line = ssh_key::line(&ssh_key::public(PublicKey::of(&key(7)).as_bytes())).unwrap();
        files::replace(&path, &line).unwrap();
        assert_eq!(UserKey::load(&path).unwrap().unwrap().public(), PublicKey::of(&key(7)));
        assert!(files::load_key(&path).unwrap_err().to_string().contains("an SSH agent has this key"));
        files::replace(&path, "ssh-ed25519 AAAA\n").unwrap();
        assert!(UserKey::load(&path).unwrap_err().to_string().contains("user.key: "));
    }
}
