//! The nodes of a grid, in the order of their start.
//!
//! Nodes join while others are asked, so the list only grows and is shared. Invariant: a node that is in it stays where it
//! is; there is room for no more than was said at first.

use std::{ops::Index, sync::OnceLock};

use super::cluster::Node;

/// Nodes that have been started.
pub struct Nodes(Box<[OnceLock<Node>]>);

impl Nodes {
    /// No nodes yet, and room for `most`.
    pub fn with_room(most: usize) -> Nodes {
        Nodes((0..most).map(|_| OnceLock::new()).collect())
    }

    /// For how many there is room.
    pub fn room(&self) -> usize {
        self.0.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// All that are there by now.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map_while(OnceLock::get)
    }

    /// Adds a node behind the others; false, and the node is ended, when there is no room for it.
    pub fn add(&self, node: Node) -> bool {
        let mut waiting = Some(node);
        for place in &self.0 {
            if let Some(node) = waiting.take() {
                waiting = place.set(node).err();
            }
        }
        waiting.is_none()
    }
}

impl Index<usize> for Nodes {
    type Output = Node;

    fn index(&self, position: usize) -> &Node {
        self.0[position].get().expect("whoever has a position has it from a node that is there")
    }
}
