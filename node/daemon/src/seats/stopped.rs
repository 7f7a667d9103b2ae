//! A stop of all commands of users at this site by its owner.
//!
//! Invariant: while they are stopped nothing starts and no files are taken; what runs ends with the next sweep. What was said and left until
//! then can be fetched.

use discovery::opening::Answer;
use kolo_runtime::lock::locked;

use super::RunSite;

impl RunSite {
    /// Stops all commands for a reason, or lets them start again where there is none.
    pub fn set_stopped(&self, why: Option<&str>) {
        *locked(&self.stopped) = why.map(str::to_owned);
    }

    /// The owner's reason for which all commands are stopped; none while they may start.
    pub fn stopped(&self) -> Option<String> {
        locked(&self.stopped).clone()
    }

    /// Notice to users while all commands are stopped.
    pub(super) fn stop_notice(&self) -> Option<String> {
        self.stopped().map(|why| format!("the owner has stopped all commands at this site: {why}"))
    }

    pub(super) fn check_not_stopped(&self) -> Result<(), Answer> {
        self.stop_notice().map_or(Ok(()), |notice| Err(Answer::Refused(notice)))
    }
}
