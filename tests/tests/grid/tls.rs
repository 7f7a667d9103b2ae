//! The page and the API for other machines: over TLS, with a certificate that the test makes.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, process::Command, sync::Arc};

use end_to_end::{Ended, Node, binary, hosts, run, wait_until};
use serde_json::{Value, json};
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig},
};

/// What the certificate says the node is called: an address, since not every machine can look `localhost` up.
const NAME: &str = "127.0.0.1";

struct Door {
    agent: Agent,
    base: String,
}

impl Door {
    /// Status, cookie and body; `headers` beside those that every call has.
    fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = self.agent.run(request.body(body.to_owned()).unwrap()).unwrap();
        let cookie = answer.headers().get("set-cookie").map_or("", |value| value.to_str().unwrap()).to_owned();
        (answer.status().as_u16(), cookie, answer.body_mut().read_to_string().unwrap())
    }
}

fn agent(authorities: &[Certificate<'static>]) -> Agent {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(authorities))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder().http_status_as_error(false).tls_config(tls).build().into()
}

/// A node behind a self-signed certificate of `name`, the URL of its address, and the certificate's file.
fn with_tls(node: &str, name: &str, directory: &Path) -> (Node, String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let path = |kind: &str| directory.join(format!("{node}.{kind}.pem")).display().to_string();
    let (cert, key) = (path("cert"), path("key"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.key_pair.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    // The port is free now; that another takes it before the node does is next to impossible.
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let arguments = ["--remote-listen", &listen, "--remote-cert", &cert, "--remote-key", &key, "--remote-names", name];
    let node = Node::start(node, &hosts(node, 1), &arguments);
    node.wait_until_it_knows(1);
    let base = format!("https://{listen}");
    wait_until("the second door", || node.log(), |log| log.contains(&base));
    (node, base, cert)
}

#[test]
fn other_machines_come_in_by_tls_with_the_token_and_nobody_trusts_a_stranger() {
    let directory = tempfile::tempdir().unwrap();
    let (node, base, cert) = with_tls("alpha", NAME, directory.path());
    let pem = fs::read(&cert).unwrap();
    let door = Door { agent: agent(&[Certificate::from_pem(&pem).unwrap()]), base: base.clone() };
    let (status, _, page) = door.call("GET", "/", &[], "");
    assert!(status == 200 && page.contains("<title>Kolo"), "{status} {page}");
    for path in ["/v1/status", "/metrics", "/openapi.json"] {
        assert_eq!(door.call("GET", path, &[], "").0, 401, "{path}");
    }

    // A browser: the token once, then the cookie, which goes nowhere without TLS; pages of others get nothing.
    let token = node.token();
    let (status, cookie, state) =
        door.call("POST", "/v1/session", &[("origin", &base)], &json!({ "token": token }).to_string());
    assert!(status == 201 && cookie.contains("; Secure") && cookie.contains("; HttpOnly"), "{status} {cookie}");
    let session = cookie.split(';').next().unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let page = ("kolo-page", state["page"].as_str().unwrap());
    assert_eq!(
        door.call("GET", "/openapi.json", &[("cookie", session), ("origin", &base)], "").0,
        401,
        "without the page's half"
    );
    assert_eq!(door.call("GET", "/openapi.json", &[("cookie", session), page, ("origin", &base)], "").0, 200);
    let (status, _, told) = door.call("GET", "/v1/status", &[("cookie", session), page, ("origin", &base)], "");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((status, &told["name"]), (200, &json!("alpha")));
    let plain = base.replace("https", "http");
    assert_eq!(door.call("GET", "/v1/status", &[("cookie", session), page, ("origin", &plain)], "").0, 403);
    let (status, _, link) = door.call("POST", "/v1/links", &[("cookie", session), page], "");
    assert!(status == 201 && link.contains(&base), "{link}");

    // The command line, with and without the one who has signed.
    let kolo = |api: &str, more: &[&str]| {
        let mut command = Command::new(binary("kolo"));
        command.args(["sites", "--output", "quiet", "--api", api, "--token-file"]).arg(node.data().join("api.token"));
        let Ended { code, out, err } = run(command.args(more).env_remove("KOLO_CA_FILE"));
        (code, out + &err)
    };
    let (code, told) = kolo(&base, &["--ca-file", &cert]);
    assert_eq!((code, told.trim()), (Some(0), node.get("/v1/status")["site"].as_str().unwrap()));
    let (_elsewhere, elsewhere, cert_of_name) = with_tls("beta", "kolo.example.org", directory.path());
    // The address is not in the certificate, and the other certificate has not signed it.
    for (api, ca) in [(&elsewhere, &cert_of_name), (&base, &cert_of_name)] {
        let (code, told) = kolo(api, &["--ca-file", ca]);
        assert!(code == Some(1) && told.contains("is not trusted") && told.contains("--ca-file"), "{code:?} {told}");
    }
    let (code, told) = kolo(&plain, &["--ca-file", &cert]);
    assert!(code == Some(64) && told.contains("only an https address"), "{told}");
}

#[test]
fn a_renewed_certificate_is_in_force_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (node, base, cert) = with_tls("alpha", NAME, directory.path());
    let is_trusted = |pem: &str| {
        let agent = agent(&[Certificate::from_pem(pem.as_bytes()).unwrap()]);
        agent.get(format!("{base}/v1/status")).call().is_ok()
    };
    let before = fs::read_to_string(&cert).unwrap();
    assert!(is_trusted(&before));
    let renewed = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    fs::write(&cert, renewed.cert.pem()).unwrap();
    let ended = node.kolo(&["reload"]);
    assert!(ended.code != Some(0) && ended.err.contains("remote.cert and remote.key"), "{ended:?}");
    assert!(is_trusted(&before), "a certificate without its key changes nothing");
    fs::write(cert.replace(".cert.", ".key."), renewed.key_pair.serialize_pem()).unwrap();
    assert_eq!(node.kolo_json(&["reload"], 0)["changed"], json!(["remote.cert"]));
    assert!(is_trusted(&renewed.cert.pem()) && !is_trusted(&before));
    fs::set_permissions(cert.replace(".cert.", ".key."), fs::Permissions::from_mode(0o644)).unwrap();
    let ended = node.kolo(&["reload"]);
    assert!(ended.code != Some(0) && ended.err.contains("chmod"), "a key that others can read: {ended:?}");
}
