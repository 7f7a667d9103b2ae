//! What sites have answered about a request that a user wants a node to take over.
//!
//! Invariant: each site counts once, and only its answer to the last look-up.

use std::collections::BTreeSet;

use broker::{ids::SiteId, negotiation::LookupAnswers, protocol::SiteAnswer};

use super::names;

/// A look-up under way.
#[derive(Debug)]
pub struct Lookup {
    name: u64,
    /// Sites that have not answered.
    waiting: BTreeSet<usize>,
    answers: LookupAnswers,
}

impl Lookup {
    /// A look-up that no site has answered yet.
    pub fn new(name: u64, sites: usize) -> Lookup {
        Lookup { name, waiting: (0..sites).collect(), answers: LookupAnswers::default() }
    }

    /// Whether it has this name, and was not begun anew since.
    pub fn is_named(&self, name: u64) -> bool {
        self.name == name
    }

    /// The node `own` has got the answer of a site. Returns whether all have answered.
    pub fn receive(&mut self, own: usize, from: usize, answer: SiteAnswer) -> bool {
        let SiteAnswer::Found { parts, is_coordinated, .. } = answer else { return false };
        if self.waiting.remove(&from) {
            let site = names::site(from);
            self.answers.parts.extend(parts.into_iter().map(|part| (site.clone(), part)));
            self.answers.coordinating.extend(Some(site).filter(|_| is_coordinated && from != own));
        }
        self.waiting.is_empty()
    }

    /// The answers, in an order that does not depend on their arrival, and the sites that have given none.
    pub fn finish(mut self, own: usize) -> LookupAnswers {
        let silent = self.waiting.iter().filter(|silent| **silent != own);
        self.answers.silent = silent.map(|silent| names::site(*silent)).collect::<BTreeSet<SiteId>>();
        self.answers.parts.sort_by(|a, b| (&a.0, &a.1.attempt).cmp(&(&b.0, &b.1.attempt)));
        self.answers
    }
}
