//! What carries connections, and how fast it is read.

mod stack;
mod throttle;

pub(crate) use self::{
    stack::build,
    throttle::{Throttle, Unthrottled},
};
