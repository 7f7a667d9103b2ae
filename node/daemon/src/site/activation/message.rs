//! What a hook gets: `KOLO_*` variables, and the same as JSON on standard input.
//!
//! Invariant: names and units of both are a contract with the owners' hooks (`docs/activation.md`). All of it together is
//! smaller than what a system lets a program be started with; what does not fit is in the JSON alone.

use std::{collections::BTreeMap, fmt::Write as _};

use broker::{ids::RequestId, protocol::AttemptId, resources::ResourceName, time::Time};
use data_encoding::HEXLOWER;
use kolo_storage::activation::{ActivationEvent, ActivationRecord};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The format of the JSON.
const SCHEMA: &str = "kolo-activation/1";
/// Characters of the request's name at the head of a booking's name.
const HEAD_CHARACTERS: usize = 24;
/// Bytes of the digest behind it: nobody makes a request whose booking has the name of another one's.
const DIGEST_BYTES: usize = 12;
/// Longest list of host names in one variable, in bytes; Linux takes 128 KiB.
const HOST_LIST_BYTES_MAX: usize = 96 << 10;
/// Most bytes of variables of single hosts; Linux takes 2 MiB in all, with the default limit of the stack.
const HOST_VARIABLES_BYTES_MAX: usize = 512 << 10;

/// A stable name of a booking, fit for a file, a systemd unit and a Slurm reservation: at most 60 of `a` to `z`, `0` to `9`
/// and `-`.
pub fn booking_name(attempt: &AttemptId) -> String {
    let mut name: String = attempt
        .request
        .as_str()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(HEAD_CHARACTERS)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    // Ids hold no control characters, so that no two attempts give the same text.
    let text = format!("{}\n{}\n{}", attempt.entry_point, attempt.request, attempt.attempt);
    let digest = HEXLOWER.encode(&Sha256::digest(text.as_bytes())[..DIGEST_BYTES]);
    if name.is_empty() {
        return digest;
    }
    // Writing to a string does not fail.
    let _ = write!(name, "-{digest}");
    name
}

/// The name of an amount with its unit.
fn with_unit(resource: &ResourceName) -> String {
    match resource.as_str() {
        "cpu" => "cpu_millicores".to_owned(),
        "memory" => "memory_mib".to_owned(),
        "disk" => "disk_mib".to_owned(),
        other => other.to_owned(),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    event: ActivationEvent,
    booking: &'a str,
    request: &'a RequestId,
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a RequestId>,
    site: &'a str,
    start: Time,
    end: Time,
    hosts: Vec<DocumentHost<'a>>,
    run: u32,
}

#[derive(Serialize)]
struct DocumentHost<'a> {
    name: &'a str,
    end: Time,
    amounts: BTreeMap<String, u64>,
}

/// What one run gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telling {
    pub booking: String,
    pub variables: BTreeMap<String, String>,
    pub document: Vec<u8>,
}

/// What the run that `record` has begun gets; none when it has begun none. `site` is the site's name for people.
pub fn telling(record: &ActivationRecord, site: &str) -> Option<Telling> {
    let begun = record.begun.as_ref()?;
    let (window, grants) = (record.told.window, &record.told.grants);
    let booking = booking_name(&record.attempt);
    let key = record.user_key.map(|key| key.to_string());
    let user = key.as_deref().unwrap_or(&record.user);
    let user_name = Some(record.user.as_str()).filter(|name| !name.is_empty());
    let hosts: Vec<DocumentHost<'_>> = grants
        .iter()
        .map(|grant| DocumentHost {
            name: grant.host().as_str(),
            end: record.told.end_of(grant),
            amounts: grant.amounts.iter().map(|(name, amount)| (with_unit(name), amount.0)).collect(),
        })
        .collect();
    let duration_s = window.duration().0.to_string();
    let mut variables: BTreeMap<String, String> = [
        ("EVENT", begun.event.name().to_owned()),
        ("REQUEST", record.attempt.request.to_string()),
        ("BOOKING", booking.clone()),
        ("USER", user.to_owned()),
        ("SITE", site.to_owned()),
        ("START", window.start.0.to_string()),
        ("END", window.end.0.to_string()),
        ("DURATION_S", duration_s),
        ("HOST_COUNT", hosts.len().to_string()),
        ("RUN", begun.runs.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (format!("KOLO_{name}"), value))
    .collect();
    let names: Vec<&str> = hosts.iter().map(|host| host.name).collect();
    let optional = [
        ("KOLO_USER_NAME", user_name.map(str::to_owned)),
        ("KOLO_LABEL", record.label.as_ref().map(ToString::to_string)),
        ("KOLO_HOSTS", Some(names.join(",")).filter(|list| list.len() <= HOST_LIST_BYTES_MAX)),
    ];
    variables.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    variables.extend(host_variables(&hosts));
    let label = record.label.as_ref();
    let document = Document {
        schema: SCHEMA,
        event: begun.event,
        booking: &booking,
        request: &record.attempt.request,
        user,
        user_name,
        label,
        site,
        start: window.start,
        end: window.end,
        hosts,
        run: begun.runs,
    };
    let document = serde_json::to_vec(&document).ok()?;
    Some(Telling { booking, variables, document })
}

/// The variables of the first hosts, as many as fit.
fn host_variables(hosts: &[DocumentHost<'_>]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut bytes = 0;
    for (number, host) in hosts.iter().enumerate() {
        let mut of_host = vec![(format!("KOLO_HOST_{number}"), host.name.to_owned())];
        of_host.extend(host.amounts.iter().map(|(name, amount)| {
            let name = name.to_ascii_uppercase().replace(['.', '-'], "_");
            (format!("KOLO_HOST_{number}_{name}"), amount.to_string())
        }));
        of_host.push((format!("KOLO_HOST_{number}_END"), host.end.0.to_string()));
        bytes += of_host.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        if bytes > HOST_VARIABLES_BYTES_MAX {
            break;
        }
        variables.extend(of_host);
    }
    variables
}

#[cfg(test)]
mod tests {
    use broker::{
        amount::Amount,
        ids::{HostId, SeatNumber, SiteId},
        plan::Place,
        protocol::Grant,
        time::Window,
    };
    use kolo_storage::activation::{Begun, Stage, Terms};

    use super::*;

    fn record(hosts: usize) -> ActivationRecord {
        let amounts = [("cpu", 2500), ("memory", 4096), ("gpu", 1), ("lic.x-y", 2)];
        let amounts = amounts.map(|(name, amount)| (ResourceName::new(name).unwrap(), Amount(amount)));
        let host = |number| HostId::new(&format!("h{number}")).unwrap();
        let grant = |(seat, number)| Grant {
            seat: SeatNumber(seat),
            place: Place::Host(host(number)),
            window: Window { start: Time(100), end: Time(if seat == 0 { 130 } else { 160 }) },
            amounts: amounts.clone().into(),
            agreed: Default::default(),
        };
        let grants = (0..).zip(0..hosts).map(grant).collect();
        ActivationRecord {
            attempt: AttemptId {
                entry_point: SiteId::new("entry").unwrap(),
                request: RequestId::new("Ab c/7;$(x)").unwrap(),
                attempt: 2,
            },
            user: "ada".to_owned(),
            user_key: None,
            label: Some(RequestId::new("my $(job)").unwrap()),
            extends: None,
            told: Terms { window: Window { start: Time(100), end: Time(160) }, grants },
            stage: Stage::Reserved,
            begun: Some(Begun { event: ActivationEvent::Start, runs: 2, failures: 1 }),
            given_up: None,
            failed: Default::default(),
        }
    }

    #[test]
    fn a_hook_is_told_everything_twice() {
        let told = telling(&record(2), "alpha").unwrap();
        let shown: String = told.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        expect_test::expect![[r#"
            KOLO_BOOKING=abc7x-42b154eef6c10575e659e7f3
            KOLO_DURATION_S=60
            KOLO_END=160
            KOLO_EVENT=start
            KOLO_HOSTS=h0,h1
            KOLO_HOST_0=h0
            KOLO_HOST_0_CPU_MILLICORES=2500
            KOLO_HOST_0_END=130
            KOLO_HOST_0_GPU=1
            KOLO_HOST_0_LIC_X_Y=2
            KOLO_HOST_0_MEMORY_MIB=4096
            KOLO_HOST_1=h1
            KOLO_HOST_1_CPU_MILLICORES=2500
            KOLO_HOST_1_END=160
            KOLO_HOST_1_GPU=1
            KOLO_HOST_1_LIC_X_Y=2
            KOLO_HOST_1_MEMORY_MIB=4096
            KOLO_HOST_COUNT=2
            KOLO_LABEL=my $(job)
            KOLO_REQUEST=Ab c/7;$(x)
            KOLO_RUN=2
            KOLO_SITE=alpha
            KOLO_START=100
            KOLO_USER=ada
            KOLO_USER_NAME=ada
        "#]]
        .assert_eq(&shown);
        let document: serde_json::Value = serde_json::from_slice(&told.document).unwrap();
        assert_eq!(
            document,
            serde_json::json!({"schema": "kolo-activation/1", "event": "start", "booking": told.booking,
                "request": "Ab c/7;$(x)", "user": "ada", "user_name": "ada", "label": "my $(job)", "site": "alpha",
                "start": 100, "end": 160, "run": 2, "hosts": [
                    {"name": "h0", "end": 130, "amounts": {"cpu_millicores": 2500, "memory_mib": 4096, "gpu": 1, "lic.x-y": 2}},
                    {"name": "h1", "end": 160, "amounts": {"cpu_millicores": 2500, "memory_mib": 4096, "gpu": 1, "lic.x-y": 2}}]})
        );
    }

    #[test]
    fn names_of_bookings_are_short_safe_and_different() {
        let attempt = |request: &str, entry_point: &str, attempt| AttemptId {
            entry_point: SiteId::new(entry_point).unwrap(),
            request: RequestId::new(request).unwrap(),
            attempt,
        };
        let long = "y".repeat(128);
        let attempts = [
            attempt(&long, &long, u32::MAX),
            attempt("r", "a", 1),
            attempt("r", "a", 2),
            attempt("r", "b", 1),
            attempt("../../etc", "a", 1),
            attempt("čšž", "a", 1),
        ];
        let names: std::collections::BTreeSet<String> = attempts.iter().map(booking_name).collect();
        assert_eq!(names.len(), attempts.len());
        for name in &names {
            let is_safe = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(name.len() <= 60 && name.bytes().all(is_safe) && !name.starts_with('-'), "{name}");
        }
    }

    #[test]
    fn what_a_program_cannot_be_started_with_is_left_to_the_json() {
        let told = telling(&record(20_000), "alpha").unwrap();
        let bytes: usize = told.variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        assert!(bytes < 1 << 20 && told.variables.values().all(|value| value.len() < 128 << 10), "{bytes}");
        assert_eq!(told.variables["KOLO_HOST_COUNT"], "20000");
        assert!(!told.variables.contains_key("KOLO_HOSTS") && told.variables.contains_key("KOLO_HOST_1000"));
        let document: serde_json::Value = serde_json::from_slice(&told.document).unwrap();
        assert_eq!(document["hosts"].as_array().unwrap().len(), 20_000);
    }
}
