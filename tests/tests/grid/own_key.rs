//! A user's own key in place of a token: held by a real SSH agent, and behind the page.

use std::{
    process::{Child, Command, Stdio},
    thread,
};

use end_to_end::{Ended, Node, binary, hosts, run, skip, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user without a token, with keys and perhaps an agent of his own.
struct User {
    home: TempDir,
    api: String,
}

impl User {
    fn of(node: &Node) -> User {
        User { home: tempfile::tempdir().unwrap(), api: node.address() }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn kolo(&self, arguments: &[&str]) -> Ended {
        let mut kolo = Command::new(binary("kolo"));
        kolo.args(["--api", &self.api, "--data-dir", &self.path("mine")]).args(arguments);
        kolo.env("XDG_CONFIG_HOME", self.home.path()).env("SSH_AUTH_SOCK", self.path("agent"));
        run(kolo.env("TZ", "UTC").stdin(Stdio::null()))
    }

    fn done(&self, arguments: &[&str]) -> Value {
        let ended = self.kolo(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.json()
    }
}

/// An agent that ends with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_key_that_only_an_agent_has_signs_requests_and_calls() {
    let missing = skip::missing(&["ssh-agent", "ssh-add", "ssh-keygen"]);
    if !missing.is_empty() {
        skip::skip(&format!("not installed: {}", missing.join(", ")));
        return;
    }
    let node = Node::start("alpha", &hosts("a", 1), super::run_on_seats::runner());
    let user = User::of(&node);
    let without = user.kolo(&["login", "--agent"]);
    assert!(without.code == Some(1) && without.err.contains("the SSH agent (SSH_AUTH_SOCK)"), "{without:?}");
    let started = Command::new("ssh-agent").args(["-D", "-a", &user.path("agent")]).stdout(Stdio::null()).spawn();
    let agent = Agent(started.unwrap());
    let add = |name: &str| {
        let file = user.path(name);
        let made = run(Command::new("ssh-keygen").args(["-q", "-N", "", "-t", "ed25519", "-C", name, "-f", &file]));
        assert_eq!(made.code, Some(0), "{made:?}");
        let added = || run(Command::new("ssh-add").args(["-q", &file]).env("SSH_AUTH_SOCK", user.path("agent")));
        wait_until("the agent to take the key", added, |added| added.code == Some(0));
        std::fs::remove_file(&file).unwrap();
        std::fs::read_to_string(format!("{file}.pub")).unwrap()
    };
    let (public, _) = (add("work"), add("home"));
    let several = user.kolo(&["login", "--agent"]);
    assert!(several.code == Some(1) && several.err.contains("has several keys"), "{several:?}");
    let who = user.done(&["login", "--agent", "work"]);
    assert!(public.starts_with(who["ssh_key"].as_str().unwrap()), "{who}");
    let _ = user.done(&["login", "--agent", "work"]);
    let other = user.kolo(&["login", "--agent", "home"]);
    assert!(other.code == Some(1) && other.err.contains("exists already"), "{other:?}");

    let who = user.done(&["whoami"]);
    assert_eq!(who["node"]["access"], "key", "{who}");
    let ran = user.kolo(&["run", "-N", "1", "-t", "1h", "--", "sh", "-c", "echo in"]);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "in"), "{ran:?}");
    let view = user.done(&["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h"]);
    let cancelled = user.done(&["cancel", view["id"].as_str().unwrap()]);
    assert_eq!(cancelled["state"], "cancelled");

    drop(agent);
    let alone = user.kolo(&["submit", "-N", "1", "-t", "1h"]);
    assert!(alone.code == Some(1) && alone.err.contains("the SSH agent (SSH_AUTH_SOCK)"), "{alone:?}");
}

/// Status, session and body of a call to the node's API as a page makes it; a session is the cookie and, behind a space, the page's half.
fn call(node: &Node, method: &str, path: &str, session: &str, body: &Value) -> (u16, String, Value) {
    let (cookie, page) = session.split_once(' ').unwrap_or((session, ""));
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let url = format!("http://{}{path}", node.address());
    let answer = match method {
        "GET" => agent.get(&url).header("cookie", cookie).header("kolo-page", page).call(),
        "DELETE" => agent.delete(&url).header("cookie", cookie).header("kolo-page", page).call(),
        _ => agent.post(&url).header("cookie", cookie).header("kolo-page", page).send_json(body),
    };
    let mut answer = answer.unwrap();
    let cookie = answer.headers().get("set-cookie").map_or("", |value| value.to_str().unwrap()).to_owned();
    let text = answer.body_mut().read_to_string().unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    let session =
        format!("{} {}", cookie.split(';').next().unwrap_or_default(), body["page"].as_str().unwrap_or_default());
    (answer.status().as_u16(), session, body)
}

#[test]
fn the_page_shows_a_user_who_came_by_his_key_what_is_his_and_no_more() {
    let node = Node::start("alpha", &hosts("a", 1), &[]);
    let user = User::of(&node);
    let nobody = user.kolo(&["open", "--as-user"]);
    assert!(nobody.code == Some(1) && nobody.err.contains("kolo login"), "{nobody:?}");
    let _ = user.done(&["login"]);
    let own = user.done(&["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h"]);
    let others = node.kolo_json(&["submit", "-N", "1", "--per-host", "cpu=1", "-t", "1h"], 0);
    let [own, others] = [&own, &others].map(|view| view["id"].as_str().unwrap().to_owned());

    let link = user.done(&["open"]);
    let code = link["url"].as_str().unwrap().split_once("#link=").unwrap().1.to_owned();
    let none = json!(null);
    let (status, session, state) = call(&node, "POST", "/v1/session", "", &json!({"link": code}));
    assert_eq!((status, &state["signed_in"], state.get("scope")), (201, &json!(true), None), "{state}");
    assert_eq!(call(&node, "POST", "/v1/session", "", &json!({"link": code})).0, 401, "once");

    let ids = |answer: &Value| -> Vec<String> {
        answer["requests"].as_array().unwrap().iter().map(|view| view["id"].as_str().unwrap().to_owned()).collect()
    };
    let (cookie, page) = session.split_once(' ').unwrap();
    for half in [cookie.to_owned(), format!(" {page}"), format!("{cookie} {}", "0".repeat(page.len()))] {
        assert_eq!(call(&node, "GET", "/v1/requests", &half, &none).0, 401, "half of it opens nothing: {half}");
    }
    let (status, _, list) = call(&node, "GET", "/v1/requests", &session, &none);
    assert_eq!((status, ids(&list)), (200, vec![own.clone()]));
    for (method, path, expected) in [
        ("GET", format!("/v1/requests/{others}"), 404),
        ("DELETE", format!("/v1/requests/{others}"), 404),
        ("GET", "/v1/status".to_owned(), 401),
        ("GET", "/v1/tokens".to_owned(), 401),
        ("GET", "/v1/local/running".to_owned(), 401),
        ("POST", "/v1/plan".to_owned(), 401),
        // The node signs for nobody who has only a key.
        ("POST", "/v1/requests".to_owned(), 401),
        ("DELETE", format!("/v1/requests/{own}"), 200),
    ] {
        let (status, _, answer) = call(&node, method, &path, &session, &json!({"hosts": 1, "duration": 60}));
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
    // A session costs what signed calls do: many at once are refused, and the operator is not.
    let (address, many) = (node.address(), 100);
    let statuses = thread::scope(|scope| {
        let calls: Vec<_> =
            (0..many).map(|_| scope.spawn(|| call(&node, "GET", "/v1/requests", &session, &none).0)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<u16>>()
    });
    assert!(statuses.contains(&429), "{statuses:?} of {address}");
    assert_eq!(node.get("/v1/requests")["requests"].as_array().map(Vec::len), Some(2));
}
