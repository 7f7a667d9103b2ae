//! Requests: read or generated, sent by users in rounds or at random moments, and what they measure.

pub mod answer;
pub mod batch;
pub mod figures;
pub mod live;
pub mod rounds;
pub mod search;
pub mod user;
pub mod users;
pub mod workload;
