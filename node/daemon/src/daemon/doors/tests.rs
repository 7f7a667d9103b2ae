//! Callers that do nothing, against doors of their own.

use std::future;

use axum::routing::get;
use kolo_runtime::metrics::DoorFigures;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

struct OpenDoor {
    address: SocketAddr,
    figures: DoorFigures,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

async fn open_door(connections_max: usize, idle: Duration) -> OpenDoor {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, figures) = (listener.local_addr().unwrap(), DoorFigures::default());
    let (stop, stopped) = watch::channel(false);
    let limits = DoorLimits { connections_max, per_prefix_max: connections_max, idle };
    let places = Places::new(limits, figures.clone());
    let router = Router::new().route("/", get(|| async { "here" })).route("/never", get(future::pending::<()>));
    let task = tokio::spawn(serve_door(Listener::Plain(listener), router, places, stopped));
    OpenDoor { address, figures, stop, task }
}

impl OpenDoor {
    async fn call(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }
}

/// All that the door says until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // One that was refused may also be reset.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn half_a_header_and_an_idle_connection_end_by_themselves() {
    let door = open_door(8, Duration::from_millis(300)).await;
    for text in ["", "GET / HTTP/1.1\r\nhost: lo"] {
        assert!(!rest(&mut door.call(text).await).await.contains("here"), "{text:?}");
    }
    let idle = rest(&mut door.call("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await).await;
    assert!(idle.starts_with("HTTP/1.1 200 OK") && idle.ends_with("here"), "{idle}");
}

#[tokio::test]
async fn a_full_door_closes_new_connections_and_opens_again() {
    let door = open_door(2, IDLE_TIMEOUT).await;
    let (one, two) = (door.call("GET /").await, door.call("GET /never HTTP/1.1\r\n\r\n").await);
    assert_eq!(rest(&mut door.call("").await).await, "");
    assert_eq!((door.figures.open.get(), door.figures.refused_full.get()), (2, 1));
    drop(one);
    // How soon the door sees that one has gone is the system's affair.
    let answer = loop {
        let mut stream = TcpStream::connect(door.address).await.unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await;
        let answer = rest(&mut stream).await;
        if !answer.is_empty() {
            break answer;
        }
    };
    assert!(answer.ends_with("here"), "{answer}");
    drop(two);
    door.stop.send_replace(true);
    door.task.await.unwrap();
    assert_eq!(door.figures.open.get(), 0);
}

/// A program that has a port.
fn other_program() -> (std::net::TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn a_port_that_another_program_has_is_replaced_or_waited_for() {
    let (other, address) = other_program();
    let failed = take_port(address, Otherwise::Fail).await.map(|_| ()).unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::AddrInUse);
    let (port, listener) = take_port(address, Otherwise::TakeAnother).await.unwrap();
    assert!(listener.is_some() && port.holder().is_none());
    assert!(port.address() != address && port.address().ip() == address.ip());
    let (port, listener) = take_port(address, Otherwise::Wait).await.unwrap();
    assert!(listener.is_none() && port.address() == address);
    assert!(port.holder().unwrap().contains("uid "), "{port:?}");
    drop(other);
    let (port, listener) = take_port(address, Otherwise::Wait).await.unwrap();
    assert!(listener.is_some() && port.holder().is_none());
}

/// A node that waits for the port at this address.
struct Waiting {
    port: LocalPort,
    told: tokio::sync::oneshot::Receiver<()>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Waiting {
    async fn at(address: SocketAddr) -> Waiting {
        let (port, listener) = take_port(address, Otherwise::Wait).await.unwrap();
        assert!(listener.is_none());
        let places = Places::new(shared(8), DoorFigures::default());
        let router = Router::new().route("/", get(|| async { "here" }));
        let (tell, told) = tokio::sync::oneshot::channel();
        let (stop, stopped) = watch::channel(false);
        let tell = move || {
            tell.send(()).unwrap();
            Ok(())
        };
        let (waiting, every) = (port.clone(), Duration::from_millis(10));
        let task = tokio::spawn(serve_when_free((waiting, every), (router, places), stopped, tell));
        Waiting { port, told, stop, task }
    }
}

#[tokio::test]
async fn a_node_takes_its_port_when_it_is_free_and_says_so() {
    let (other, address) = other_program();
    let mut node = Waiting::at(address).await;
    assert!(node.told.try_recv().is_err() && node.port.holder().is_some());
    drop(other);
    node.told.await.unwrap();
    assert_eq!(node.port.holder(), None);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.ends_with("here"));
    node.stop.send_replace(true);
    node.task.await.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_no_longer_waits_for_its_port() {
    let (_other, address) = other_program();
    let node = Waiting::at(address).await;
    node.stop.send_replace(true);
    node.task.await.unwrap();
    assert!(node.told.await.is_err(), "it is told of no port");
}
