//! Denials: a site refuses a hold by the name of a rule, however much is free.

use serde::{Deserialize, Serialize};

use super::TrustError;
use crate::{
    needs::{Lack, Needs},
    offered::Breach,
};

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal,)*) => {
        /// A rule by which a site refuses. The names are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// The rule's name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }
        }
    };
}

rules! {
    /// Of this grid.
    Grid = "grid",
    /// Signed by its author, and readable.
    Signature = "signature",
    /// Of a version, and without any key, that the site does not know.
    Understood = "understood",
    /// Coordinated by the entry point that the user named.
    EntryPoint = "entry-point",
    /// The attempt is one of the request that the user signed.
    RequestId = "request-id",
    /// Credentials lead to the root of the grid, and belong to who shows them.
    Credential = "credential",
    /// The credential is for this.
    Role = "role",
    /// Statement and credentials have not expired.
    Expired = "expired",
    /// Nobody in the line of credentials is revoked.
    Revoked = "revoked",
    /// The start is one that the user asked for.
    Window = "window",
    /// Over by the time that the user asked for.
    Deadline = "deadline",
    /// Of one of the shapes that the user gave, and of no two.
    Shape = "shape",
    /// At one of the factors that the user allows, and at no two.
    Scale = "scale",
    /// As long as the user asked for, on a host of this speed.
    Duration = "duration",
    /// At least as much on each host as the user asked for.
    PerHost = "per-host",
    /// No more in sum than the user asked for.
    Total = "total",
    /// No more in sum than the user wants to pay.
    Budget = "budget",
    /// The hosts have the attributes that the user asked for.
    Attributes = "attributes",
    /// The hosts are among those that the user named.
    Candidates = "candidates",
    /// The hosts are as fast as the user asked for.
    SpeedMin = "speed-min",
    /// The hosts are taken whole, where the user asked for that.
    Exclusive = "exclusive",
    /// No more sites than the user asked for.
    SitesMax = "sites-max",
    /// No more hosts than the user asked for.
    HostCount = "host-count",
    /// The owner allows certain users only.
    OwnerAllow = "owner-allow",
    /// The owner does not allow this user.
    OwnerDeny = "owner-deny",
    /// The owner's longest reservation.
    OwnerMaxDuration = "owner-max-duration",
    /// The owner's farthest future.
    OwnerMaxReach = "owner-max-reach",
    /// The owner's hours of the day.
    OwnerHours = "owner-hours",
    /// One user's share of a host.
    UserShare = "user-share",
    /// One user's holds at a time.
    MaxHolds = "max-holds",
    /// One user's reservations at a time.
    MaxReservations = "max-reservations",
    /// One user's hours, summed over hosts.
    MaxHostHours = "max-host-hours",
    /// What is agreed for one user's reservations.
    MaxCredits = "max-credits",
    /// One user's farthest future.
    MaxReach = "max-reach",
    /// The share of the site of one user, of one other node, or of one network.
    SiteShare = "site-share",
    /// What the owner's own jobs lose by it.
    OwnQueue = "own-queue",
    /// Holds that a node let lapse.
    LapsedHolds = "lapsed-holds",
    /// The owner is not emptying the site.
    Draining = "draining",
    /// The site knows what its owner runs there.
    OwnWork = "own-work",
    /// The owner gives commands what the request needs for them.
    Needs = "needs",
    /// The site believes its own clock.
    Clock = "clock",
    /// The site's disk has room for what it would promise.
    Disk = "disk",
}

impl From<Breach> for Rule {
    fn from(breach: Breach) -> Rule {
        match breach {
            Breach::Draining => Rule::Draining,
            Breach::Disk => Rule::Disk,
            Breach::Longest(_) => Rule::OwnerMaxDuration,
            Breach::Reach(_) => Rule::OwnerMaxReach,
            Breach::Spans(_) => Rule::OwnerHours,
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal by rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("refused by rule `{rule}`: {detail}")]
pub struct Denial {
    /// Which.
    pub rule: Rule,
    /// What was seen and what was expected.
    pub detail: String,
}

impl Denial {
    /// A refusal by `rule`.
    #[must_use]
    pub fn new(rule: Rule, detail: impl Into<String>) -> Denial {
        Denial { rule, detail: detail.into() }
    }

    /// A refusal for the lack of something that the request needs.
    #[must_use]
    pub fn of_lack(lack: &Lack) -> Denial {
        Denial::new(Rule::Needs, format!("the request needs {lack}, which the owner does not give now"))
    }

    /// What of these needs a site lacks that has refused so, if it is that.
    #[must_use]
    pub fn lack_of(&self, needs: &Needs) -> Option<Lack> {
        needs.lacks().find(|lack| Denial::of_lack(lack) == *self)
    }

    /// Why a user's signed request is not accepted.
    pub(super) fn of_request(error: &TrustError) -> Denial {
        let is_unknown = matches!(error, TrustError::NotUnderstood { .. });
        Denial::new(if is_unknown { Rule::Understood } else { Rule::Signature }, error.to_string())
    }

    /// Why a user's or an entry point's credentials are not accepted.
    pub(super) fn of_chain(whose: &str, error: &TrustError) -> Denial {
        let rule = match error {
            TrustError::WrongGrid { .. } => Rule::Grid,
            TrustError::Expired { .. } | TrustError::RootFollowed { .. } => Rule::Expired,
            TrustError::Rival { .. } => Rule::Revoked,
            TrustError::NotUnderstood { .. } => Rule::Understood,
            _ => Rule::Credential,
        };
        Denial::new(rule, format!("{whose}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_same_name_in_text_and_in_json() {
        for rule in Rule::ALL {
            assert_eq!(serde_json::to_string(rule).unwrap(), format!("\"{rule}\""));
        }
        let denial = Denial::new(Rule::OwnerHours, "not at night");
        assert_eq!(denial.to_string(), "refused by rule `owner-hours`: not at night");
    }
}
