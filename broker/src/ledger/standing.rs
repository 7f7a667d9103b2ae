//! What the owner's rules about users leave to one, before anything is held: asked with the find.
//!
//! Invariant: it changes nothing, and says only what a hold of the same user, through the same node, would be told.

use std::collections::BTreeMap;

use super::{Books, Ledger};
use crate::{
    ids::{Network, SiteId},
    protocol::{SiteAnswer, Standing},
    time::Now,
    trust::{Authorization, Denial, Permit},
};

impl<B: Books> Ledger<B> {
    /// Answers as [`crate::protocol::SiteRequest::Standing`] says.
    pub(super) fn on_standing(
        &self,
        now: Now,
        (from, network): (&SiteId, Option<&Network>),
        authorization: &Authorization,
    ) -> SiteAnswer {
        let standing = match self.known_user(now, from, authorization) {
            Ok(permit) => self.standing_of(&permit, (from, network)),
            Err(denial) => Standing { denial: Some(denial), ..Standing::default() },
        };
        SiteAnswer::Standing(Box::new(Standing { version: self.version, ..standing }))
    }

    fn known_user(&self, now: Now, from: &SiteId, authorization: &Authorization) -> Result<Permit, Denial> {
        let Authorization { request, user, entry_point } = authorization;
        let mut gate = self.gate.lock();
        gate.check_member(from, entry_point.as_ref(), now.utc)?;
        let permit = gate.check_submission(now.utc, from, request, user.as_ref())?;
        gate.check_user(&permit)?;
        Ok(permit)
    }

    fn standing_of(&self, permit: &Permit, node: (&SiteId, Option<&Network>)) -> Standing {
        let (longest, denial) = match self.longest_left(permit) {
            Ok(longest) => (longest, None),
            Err(denial) => (None, Some(denial)),
        };
        let host_percent: BTreeMap<_, _> = self.gate.lock().policy().user_share_percent.clone();
        let on_hosts = if host_percent.is_empty() { Vec::new() } else { self.had_by(permit.account) };
        let of_site = self.left_of_shares((permit.user, permit.account), node);
        let (reach, credits) = (permit.limits.max_reach_s, self.credits_left(permit));
        Standing { denial, longest, reach, host_percent, on_hosts, of_site, credits, version: self.version }
    }
}
