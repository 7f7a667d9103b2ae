//! Where notices go: to a program of the node's operator, or to a web server that the operator has named.
//!
//! Invariant: nobody but the operator says where. A receiver takes no longer than the time limit, and a server's answer is neither
//! followed elsewhere nor kept.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kolo_api::notice::Notice;
use kolo_config::{NodeConfig, NoticesSettings, WebUrl};
use kolo_runtime::https;
use kolo_storage::activation::Outcome;
use ureq::Agent;

use crate::site::activation::process::Hook;

/// Characters of what a program says that fails, in the log.
const SAID_SHOWN: usize = 400;

/// Where notices go.
#[derive(Clone)]
pub enum Receiver {
    Program(Arc<Hook>),
    Server { agent: Agent, url: WebUrl },
}

impl Receiver {
    /// What the operator has named, if anything.
    ///
    /// # Errors
    /// Why a server cannot be asked.
    pub fn of(config: &NodeConfig) -> Result<Option<Receiver>, String> {
        let NoticesSettings { command, url, timeout, .. } = config.settings.notices.clone();
        if let Some(url) = url {
            return Receiver::server(url, timeout).map(Some);
        }
        let hook = || Arc::new(Hook { command: command.0.clone(), timeout, path: config.search_path.clone() });
        Ok((!command.0.is_empty()).then(|| Receiver::Program(hook())))
    }

    fn server(url: WebUrl, timeout: Duration) -> Result<Receiver, String> {
        let limited = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(timeout));
        let config =
            if url.is_tls() { limited.tls_config(https::trusting(https::system_authorities()?)) } else { limited };
        Ok(Receiver::Server { agent: config.build().into(), url })
    }

    /// Tells it; why that has failed, if it has.
    pub async fn tell(&self, telling: Telling) -> Result<(), String> {
        match self {
            Receiver::Program(hook) => {
                let run = hook.run(&telling.variables, &telling.document).await;
                match run.outcome {
                    Outcome::Done => Ok(()),
                    Outcome::Failed(why) => {
                        let said: String = run.said.trim().chars().take(SAID_SHOWN).collect();
                        Err(if said.is_empty() { why } else { format!("{why}: {said}") })
                    }
                }
            }
            Receiver::Server { agent, url } => {
                let (agent, url) = (agent.clone(), url.clone());
                let asked = tokio::task::spawn_blocking(move || {
                    let request = agent.post(url.as_str()).header("content-type", "application/json");
                    request.send(&telling.document[..]).map(|answer| answer.status())
                });
                match asked.await {
                    Ok(Ok(status)) if status.is_success() => Ok(()),
                    Ok(Ok(status)) => Err(format!("the server answers {status}")),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
        }
    }
}

/// A notice as it goes out.
pub struct Telling {
    variables: BTreeMap<String, String>,
    document: Vec<u8>,
}

impl From<&Notice<'_>> for Telling {
    fn from(notice: &Notice<'_>) -> Telling {
        Telling { variables: notice.variables(), document: notice.document() }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use kolo_api::{notice::NoticeEvent, samples::view};

    use super::*;

    fn telling() -> Telling {
        Telling::from(&Notice::new(NoticeEvent::Start, 2, 1, &view("active", None)))
    }

    /// What becomes of a notice to a server that answers this, and what the server was sent.
    async fn posted(answer: &'static str) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = WebUrl::parse(&format!("http://{}/hook", listener.local_addr().unwrap())).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut piece) = (String::new(), [0; 4096]);
            while !asked.ends_with("}}") {
                let count = stream.read(&mut piece).unwrap();
                asked.push_str(std::str::from_utf8(&piece[..count]).unwrap());
            }
            stream.write_all(answer.as_bytes()).unwrap();
            asked
        });
        let told = Receiver::server(url, Duration::from_secs(20)).unwrap().tell(telling()).await;
        (told, server.join().unwrap())
    }

    #[tokio::test]
    async fn a_server_gets_the_document_and_only_success_counts() {
        let (told, asked) = posted("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
        assert_eq!(told, Ok(()));
        assert!(asked.starts_with("POST /hook HTTP/1.1\r\n") && asked.contains("application/json"), "{asked}");
        assert!(asked.contains(r#"{"schema":"kolo-notice/1","event":"start","number":2,"run":1,"#), "{asked}");
        let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\n\r\n";
        assert_eq!(posted(elsewhere).await.0, Err("the server answers 302 Found".to_owned()));
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_takes_no_longer_than_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = WebUrl::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let told = Receiver::server(url, Duration::from_millis(100)).unwrap().tell(telling()).await;
        assert!(told.unwrap_err().contains("timeout"));
    }

    #[tokio::test]
    async fn a_program_that_fails_is_quoted() {
        let command = ["/bin/sh", "-c", "cat >/dev/null; echo no $KOLO_EVENT; exit 3"].map(str::to_owned).to_vec();
        let hook = Hook { command, timeout: Duration::from_secs(20), path: std::env::var_os("PATH") };
        let told = Receiver::Program(Arc::new(hook)).tell(telling()).await;
        assert_eq!(told, Err("exit status: 3: no start".to_owned()));
    }
}
