//! The source's phases II to V, taken literally, as one placement policy among others.

use broker::phases::textbook::{self, TextbookLimits};

use super::{Asked, Choice, Placement};

/// See the module.
#[derive(Debug)]
pub struct Textbook;

impl Placement for Textbook {
    fn place(&mut self, asked: &Asked<'_>) -> Option<Choice> {
        let Asked { request, earliest, latest, candidates, seed } = *asked;
        let plan = textbook::plan(request, earliest, latest, candidates, TextbookLimits::default(), seed, &mut ())?;
        Some(Choice { start: plan.start, hosts: plan.hosts })
    }
}
