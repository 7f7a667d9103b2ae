//! A node that answers what a test wants, and what is printed for it.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener},
    rc::Rc,
    thread,
};

use jiff::tz::TimeZone;
use kolo_api::session::NodeProof;
use kolo_trust::TokenKey;

use super::{
    client::{Client, Shown},
    output::{Look, Output, OutputFormat, Report},
};

/// The token that [`serve`] knows.
pub const TOKEN: &str = "00ff";

/// Serves one call an answer (status and body), in order, each after it has shown that it knows the client's token; gives the client and, on
/// joining, what was asked.
pub fn serve(answers: Vec<(&'static str, String)>) -> (Client, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let next = |(status, body): (&str, String)| {
            answer(&mut listener.accept().unwrap().0, "200 OK", |asked| proof(asked, address));
            answer(&mut listener.accept().unwrap().0, status, |_| body)
        };
        answers.into_iter().map(next).collect()
    });
    (Client::new(format!("http://{address}"), Shown::Token { token: TOKEN.to_owned(), file: "t".into() }), server)
}

/// Answers one call, and says what was asked.
pub fn answer(stream: &mut (impl Read + Write), status: &str, body: impl FnOnce(&str) -> String) -> String {
    let asked = read_request(stream);
    let body = body(&asked);
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).unwrap();
    asked
}

/// The answer to `/v1/proof` of a node at this address that knows [`TOKEN`].
pub fn proof(asked: &str, address: SocketAddr) -> String {
    let key = TokenKey::of(TOKEN);
    let nonce = asked.split_once("&nonce=").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0;
    assert!(asked.starts_with(&format!("GET /v1/proof?token={}&nonce={nonce} HTTP", key.name())), "{asked}");
    let proof = NodeProof { nonce: "n-1".to_owned(), proof: key.of_node(address, nonce, "n-1") };
    serde_json::to_string(&proof).unwrap()
}

/// Everything that was sent: a connection closed before that would be reset under the client.
fn read_request(stream: &mut impl Read) -> String {
    let mut asked = String::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).unwrap();
        asked.push_str(&String::from_utf8_lossy(&piece[..count]));
        let Some((head, body)) = asked.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        if count == 0 || body.len() >= length {
            return asked;
        }
    }
}

/// What a report prints in a format, in UTC.
pub fn printed(report: &impl Report, format: OutputFormat) -> String {
    #[derive(Clone, Default)]
    struct Sink(Rc<RefCell<Vec<u8>>>);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = Sink::default();
    Output::new(format, Box::new(sink.clone()), Look::plain(TimeZone::UTC)).print(report).unwrap();
    let bytes = sink.0.borrow().clone();
    String::from_utf8(bytes).unwrap()
}
