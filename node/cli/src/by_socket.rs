//! HTTP through the socket in a node's data directory.
//!
//! Invariant: whoever is spoken to is the directory's owner or root.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use kolo_runtime::own_socket;
use ureq::{
    Error,
    unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport},
};

/// Connects to the socket at this path, whatever the address says.
#[derive(Debug)]
pub struct BySocket(pub PathBuf);

impl Connector for BySocket {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = own_socket::connect(&self.0)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers }))
    }
}

/// A connection by the socket.
pub struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(limit(timeout))?;
        match self.stream.write_all(&self.buffers.output()[..amount]) {
            // The node may answer before it has taken the whole call, and closes then: its answer is still to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| failed(error, timeout)),
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(limit(timeout))?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                // A signal, mostly that the terminal has another size.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| failed(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        let mut probe = || {
            self.stream.set_nonblocking(true)?;
            let read = self.stream.read(&mut [0]);
            self.stream.set_nonblocking(false)?;
            read
        };
        // Nothing is to be read between two calls, and no end either.
        probe().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The time limit of the next step, at least a millisecond: setsockopt refuses a limit of zero.
fn limit(timeout: NextTimeout) -> Option<Duration> {
    timeout.not_zero().map(|limit| (*limit).max(Duration::from_millis(1)))
}

fn failed(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use serde_json::{Value, json};

    use crate::{client::Client, exit::Exit, samples::answer};

    #[test]
    fn calls_go_by_the_socket_and_nobody_there_is_exit_3() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let listener = kolo_runtime::own_socket::listen(&path).unwrap();
        listener.set_nonblocking(false).unwrap();
        let server = thread::spawn(move || {
            [1, 2].map(|number: u8| answer(&mut listener.accept().unwrap().0, "200 OK", |_| number.to_string()))
        });
        let client = Client::by_socket(path.clone());
        assert_eq!(client.get::<Value>("/v1/status").unwrap(), 1);
        assert_eq!(client.post::<Value>("/v1/drain", &json!({ "a": 1 })).unwrap(), 2);
        let asked = server.join().unwrap();
        assert!(asked[0].starts_with("GET /v1/status HTTP/1.1\r\n") && !asked[0].contains("uthorization"), "{asked:?}");
        assert!(asked[1].ends_with("\r\n\r\n{\"a\":1}"), "{asked:?}");
        let error = client.get::<Value>("/v1/status").unwrap_err();
        assert_eq!(error.exit(), Exit::Unreachable);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("kolo node")));
    }
}
