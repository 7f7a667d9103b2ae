//! A site's plan of its own jobs: when and where each waits to run, kept while jobs come, end early, run on, and hosts fail.
//!
//! The plan answers "when" the moment a job comes, and says what it is worth: jobs in time first, then their mean slowdown. A job is put
//! into a gap and disturbs no other; what waits moves forward when something ends early. [`Timetable::improve`] looks for better plans.
//!
//! Source: the paper on plan-based scheduling with quality of service (2010), whose rule for arrivals is [`Arrivals::Source`]. Invariant:
//! a plan takes of a host at most what it has, whatever happens, except where a job that has begun runs on beyond its plan.

mod host;
mod job;
mod room;
mod search;
#[cfg(test)]
mod tests;
mod timetable;

pub use self::{
    job::{Amounts, Job, JobKey, Place, Quality, RESOURCES_MAX},
    timetable::{Arrivals, PlanError, Taken, Timetable},
};
