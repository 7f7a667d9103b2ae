//! What the policies of multi-clusters decide, apart from when it is asked: [`super::clusters`] asks it on schedules, a simulation in virtual
//! time.
//!
//! Source: the thesis on parallel jobs over several clusters, chapter 3. A job takes a number of hosts of each cluster, or of each group of
//! like hosts in one; callers know what is free, how long a job lasts there, and what links bear. Invariant: the same questions and answers
//! give the same choice; among equals the job that comes first in the caller's order.

mod hosts;
mod least_slowdown;
mod package;

pub use self::{
    hosts::{allocated, filled, is_chunk},
    least_slowdown::{Choice, Grid, least_slowdown_first},
    package::{Assigned, Beside, cheapest, selected},
};
