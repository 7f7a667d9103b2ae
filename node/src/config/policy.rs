//! `[policy]`: what the owner of the site allows whom.
//!
//! Invariant: what is printed of a policy reads back as the same policy; hours are always UTC, whatever zone the machine
//! is in, because reservations cross zones.

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    resources::ResourceName,
    trust::{DailyHours, OwnerPolicy},
};
use clap::Args;

use super::{
    ConfigError, Percent,
    file::PolicySection,
    resolve::{Layers, Placed},
};

/// Most users in a list.
const USERS_MAX: usize = 10_000;

/// The flags of `[policy]`.
#[derive(Debug, Clone, Default, Args)]
pub struct PolicyArgs {
    /// User who may book here, by name or key; may be repeated [default: everybody]
    #[arg(long, value_name = "USER")]
    policy_allow: Option<Vec<String>>,
    /// User who may not book here, by name or key; may be repeated
    #[arg(long, value_name = "USER")]
    policy_deny: Option<Vec<String>>,
    /// Longest reservation here [default: any]
    #[arg(long, value_name = "DURATION")]
    policy_max_duration: Option<String>,
    /// How far ahead a reservation may end here [default: as ledger.farthest_future]
    #[arg(long, value_name = "DURATION")]
    policy_max_reach: Option<String>,
    /// Hours of the day (UTC) in which reservations may run here, such as 18:00-08:00 [default: all]
    #[arg(long, value_name = "FROM-TO")]
    policy_hours: Option<String>,
    /// Share of a resource of each host that one user may have, such as cpu=50%; may be repeated [default: all]
    #[arg(long, value_name = "RESOURCE=PERCENT", value_parser = parse_share)]
    policy_user_share: Option<Vec<(ResourceName, String)>>,
    /// Most holds at a time of one user whose credential does not say [default: 64]
    #[arg(long, value_name = "COUNT")]
    policy_max_holds: Option<u32>,
    /// Most reservations at a time of one user whose credential does not say [default: 1000]
    #[arg(long, value_name = "COUNT")]
    policy_max_reservations: Option<u32>,
    /// Most hours, summed over hosts, of one user whose credential does not say [default: any]
    #[arg(long, value_name = "HOURS")]
    policy_max_host_hours: Option<u64>,
    /// Whether the rest of the grid is told who has reserved what here [default: true]
    #[arg(long, value_name = "BOOL")]
    policy_tell_bookings: Option<bool>,
}

impl PolicyArgs {
    /// The flags as a written layer.
    pub(super) fn layer(&self) -> PolicySection {
        PolicySection {
            allow: self.policy_allow.clone(),
            deny: self.policy_deny.clone(),
            max_duration: self.policy_max_duration.clone(),
            max_reach: self.policy_max_reach.clone(),
            hours: self.policy_hours.clone(),
            user_share: self.policy_user_share.as_ref().map(|shares| shares.iter().cloned().collect()),
            max_holds: self.policy_max_holds,
            max_reservations: self.policy_max_reservations,
            max_host_hours: self.policy_max_host_hours,
            tell_bookings: self.policy_tell_bookings,
        }
    }
}

/// Reads `cpu=50%`.
fn parse_share(text: &str) -> Result<(ResourceName, String), String> {
    let (name, share) = text.split_once('=').ok_or("expected resource=percent, such as cpu=50%")?;
    let name = ResourceName::new(name).map_err(|error| error.to_string())?;
    Percent::parse(share)?;
    Ok((name, share.to_owned()))
}

impl Layers {
    /// The policy in force.
    pub(super) fn policy(&self) -> Result<OwnerPolicy, ConfigError> {
        let default = OwnerPolicy::default();
        let allow = self.users("policy.allow", |section| section.allow.clone())?;
        if let Some(allow) = &allow
            && allow.value.is_empty()
        {
            return Err(allow.wrong("nobody could book: name somebody, or leave the key out to allow everybody"));
        }
        let deny = self.users("policy.deny", |section| section.deny.clone())?;
        let hours = self.written("policy.hours", |file| file.policy.hours.clone());
        let hours = hours.map(|text| parse_hours(&text.value).map_err(|error| text.wrong(error))).transpose()?;
        let mut limits = default.limits;
        limits.max_holds = self.limit("policy.max_holds", limits.max_holds, |section| section.max_holds)?;
        limits.max_reservations =
            self.limit("policy.max_reservations", limits.max_reservations, |section| section.max_reservations)?;
        limits.max_host_hours =
            self.limit("policy.max_host_hours", limits.max_host_hours, |section| section.max_host_hours)?;
        Ok(OwnerPolicy {
            allow: allow.map(|allow| allow.value),
            deny: deny.map(|deny| deny.value).unwrap_or_default(),
            max_duration: self.optional_span("policy.max_duration", |file| file.policy.max_duration.clone())?,
            max_reach: self.optional_span("policy.max_reach", |file| file.policy.max_reach.clone())?,
            hours,
            user_share_percent: self.user_shares()?,
            limits,
            tells_bookings: self
                .written("policy.tell_bookings", |file| file.policy.tell_bookings)
                .map_or(default.tells_bookings, |tells| tells.value),
        })
    }

    fn users(
        &self,
        key: &str,
        get: impl Fn(&PolicySection) -> Option<Vec<String>>,
    ) -> Result<Option<Placed<BTreeSet<String>>>, ConfigError> {
        let Some(users) = self.written(key, |file| get(&file.policy)) else { return Ok(None) };
        if users.value.len() > USERS_MAX {
            return Err(users.wrong(format!("at most {USERS_MAX} users")));
        }
        if let Some(user) = users.value.iter().find(|user| user.trim().is_empty() || user.chars().any(char::is_control))
        {
            return Err(
                users.wrong(format!("{user:?} is no user: expected a name, a key, or the first 16 digits of one"))
            );
        }
        let Placed { value, place } = users;
        Ok(Some(Placed { value: value.into_iter().collect(), place }))
    }

    fn limit<T: PartialEq + From<u8> + Copy>(
        &self,
        key: &str,
        default: Option<T>,
        get: impl Fn(&PolicySection) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(limit) = self.written(key, |file| get(&file.policy)) else { return Ok(default) };
        if limit.value == T::from(0) {
            return Err(limit.wrong("expected at least 1"));
        }
        Ok(Some(limit.value))
    }

    fn user_shares(&self) -> Result<BTreeMap<ResourceName, u8>, ConfigError> {
        let Some(shares) = self.written("policy.user_share", |file| file.policy.user_share.clone()) else {
            return Ok(BTreeMap::new());
        };
        let parse = |(name, text): (&ResourceName, &String)| {
            let share = Percent::parse(text).map_err(|error| shares.wrong(format!("{name}: {error}")))?;
            Ok((name.clone(), share.number()))
        };
        shares.value.iter().map(parse).collect()
    }
}

/// Reads `18:00-08:00`.
///
/// # Errors
/// What was expected.
pub fn parse_hours(text: &str) -> Result<DailyHours, String> {
    let expected = || format!("{text:?}: expected hours of the day in UTC, such as 18:00-08:00");
    let clock = |text: &str| {
        let (hour, minute) = text.trim().split_once(':')?;
        let is_number = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(hour) || minute.len() != 2 || !is_number(minute) {
            return None;
        }
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
        (minute < 60).then_some(hour * 3600 + minute * 60)
    };
    let (start, end) = text.trim().trim_end_matches("UTC").split_once('-').ok_or_else(expected)?;
    let (start, end) = clock(start).zip(clock(end)).ok_or_else(expected)?;
    DailyHours::new(start, end).map_err(|_| expected())
}

/// Hours as [`parse_hours`] reads them.
#[must_use]
pub fn format_hours(hours: DailyHours) -> String {
    hours.to_string().trim_end_matches(" UTC").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_as_they_are_shown() {
        for (text, shown) in
            [("18:00-08:00", "18:00-08:00"), (" 8:30 - 17:05 UTC", "08:30-17:05"), ("00:00-24:00", "00:00-24:00")]
        {
            let hours = parse_hours(text).unwrap();
            assert_eq!(format_hours(hours), shown);
            assert_eq!(parse_hours(shown), Ok(hours));
        }
        for text in [
            "",
            "18-8",
            "18:00",
            "18:00-18:00",
            "18:60-08:00",
            "25:00-08:00",
            "24:00-08:00",
            "-1:00-08:00",
            "a:bc-1:00",
        ] {
            let error = parse_hours(text).unwrap_err();
            assert!(error.contains("18:00-08:00") && error.contains("UTC"), "{text}: {error}");
        }
    }

    #[test]
    fn a_share_has_a_resource_and_a_sign() {
        assert_eq!(parse_share("cpu=50%").map(|(_, share)| share), Ok("50%".to_owned()));
        for text in ["cpu", "cpu=50", "CPU=50%", "cpu=0%", "=5%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }
}
