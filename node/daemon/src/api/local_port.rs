//! Whether the node has its port on loopback: any user of the machine may have taken it first.
//!
//! Invariant: while another program has the port the node sends nobody there: a link that is opened there tells that program its code.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use kolo_runtime::lock::locked;

/// The port; clones share what is known of it.
#[derive(Debug, Clone)]
pub struct LocalPort {
    address: SocketAddr,
    /// Words for who has it in the node's place.
    holder: Arc<Mutex<Option<String>>>,
    /// Words for who had the usual port at the start, where this is another one.
    displaced_by: Option<Arc<str>>,
}

impl LocalPort {
    /// A port that the node has, or that `holder` has in its place.
    pub fn new(address: SocketAddr, holder: Option<String>) -> LocalPort {
        LocalPort { address, holder: Arc::new(Mutex::new(holder)), displaced_by: None }
    }

    /// A port that the node has because another program, in these words, has the usual one.
    pub fn in_place_of_usual(address: SocketAddr, other: &str) -> LocalPort {
        LocalPort { displaced_by: Some(other.into()), ..LocalPort::new(address, None) }
    }

    /// Where the node listens, or will once it has the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Words for who has the port in the node's place; none when the node has it.
    pub fn holder(&self) -> Option<String> {
        locked(&self.holder).clone()
    }

    /// Words for who had the usual port at the start; none where the node has that, or its owner has chosen one.
    pub fn displaced_by(&self) -> Option<&str> {
        self.displaced_by.as_deref()
    }

    /// Takes note of who has the port; none for the node.
    pub fn set_holder(&self, holder: Option<String>) {
        *locked(&self.holder) = holder;
    }
}
