//! A node that answers what a test wants, and what is printed for it.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    net::TcpListener,
    rc::Rc,
    thread,
};

use jiff::tz::TimeZone;

use super::{
    client::{Client, Shown},
    output::{Look, Output, OutputFormat, Report},
};

/// Serves one connection an answer (status and body), in order; gives the client and, on joining, what was asked.
pub fn serve(answers: Vec<(&'static str, String)>) -> (Client, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        answers
            .into_iter()
            .map(|(status, body)| {
                let (mut stream, _) = listener.accept().unwrap();
                let asked = read_request(&mut stream);
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all((head + &body).as_bytes()).unwrap();
                asked
            })
            .collect()
    });
    (Client::new(base, Shown::Token { token: "00ff".to_owned(), file: "t".into() }), server)
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
