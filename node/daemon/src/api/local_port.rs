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
}

impl LocalPort {
    /// A port that the node has, or that `holder` has in its place.
    pub fn new(address: SocketAddr, holder: Option<String>) -> LocalPort {
        LocalPort { address, holder: Arc::new(Mutex::new(holder)) }
    }

    /// Where the node listens, or will once it has the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Words for who has the port in the node's place; none when the node has it.
    pub fn holder(&self) -> Option<String> {
        locked(&self.holder).clone()
    }

    /// Takes note of who has the port; none for the node.
    pub fn set_holder(&self, holder: Option<String>) {
        *locked(&self.holder) = holder;
    }
}
