//! A program that listens in the place of a node, and keeps what it hears.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Everything that a program hears that listens at `address` and answers every call with `status`.
///
/// # Panics
/// When nothing can listen there.
#[must_use]
pub fn squat(address: &str, status: &'static str) -> Arc<Mutex<Vec<u8>>> {
    let listener = TcpListener::bind(address).expect("the port is free");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hearing = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), hearing) = (stream, Arc::clone(&hearing)) else { return };
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    hearing.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..count]);
                    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
                }
            });
        }
    });
    heard
}

/// What was heard so far, as text.
#[must_use]
pub fn heard(by: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&by.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}
