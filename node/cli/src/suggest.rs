//! What somebody may have meant who wrote a name that nobody knows.
//!
//! Invariant: pure; a name that is known is never corrected.

use std::collections::BTreeSet;

use broker::request::Request;
use kolo_api::grid::HostList;
use kolo_text::resource;
use strsim::osa_distance;

/// The resource that `name` may stand for, when it is none of the common ones itself.
pub fn resource(name: &str) -> Option<&'static str> {
    closest(name, resource::common())
}

/// What in `request` no known host has, and what may have been meant.
pub fn unknown_to_all(request: &Request, list: &HostList) -> Option<String> {
    if list.hosts.is_empty() {
        return Some(
            "no known site offers a host: kolo sites lists them, and one that is drained offers none".to_owned(),
        );
    }
    let hosts: BTreeSet<&str> = list.hosts.iter().map(|host| host.host.as_str()).collect();
    let named = request.shapes().flat_map(|demand| demand.candidates().into_iter().flatten());
    if let Some(name) = named.map(|host| host.as_str()).find(|name| !hosts.contains(name)) {
        return Some(no_host(name, &hosts));
    }
    let resources: BTreeSet<&str> =
        list.hosts.iter().flat_map(|host| host.resources.keys()).map(|name| name.as_str()).collect();
    let asked = request.shapes().flat_map(|demand| demand.per_host().keys().chain(demand.total().keys()));
    for name in asked.map(|name| name.as_str()) {
        if !resources.contains(name) {
            return Some(complaint(&format!("a resource {name}"), meant_resource(name, resources)));
        }
    }
    let attributes: BTreeSet<(&str, &str)> =
        list.hosts.iter().flat_map(|host| &host.attributes).map(|(key, value)| (&**key, &**value)).collect();
    for (key, value) in request.demand().attributes() {
        if !attributes.iter().any(|(known, _)| known == key) {
            let meant = closest(key, attributes.iter().map(|(known, _)| *known));
            return Some(complaint(&format!("an attribute {key}"), meant));
        }
        if !attributes.contains(&(key, value)) {
            let values = attributes.iter().filter(|(known, _)| known == key).map(|(_, value)| *value);
            let meant = closest(value, values).map(|value| format!("{key}={value}"));
            return Some(complaint(&format!("{key}={value}"), meant.as_deref()));
        }
    }
    None
}

/// Says that no host of a grid with these is called `name`.
fn no_host(name: &str, hosts: &BTreeSet<&str>) -> String {
    let bare = name.rsplit('/').next().unwrap_or(name);
    let meant = hosts.get(bare).copied().or_else(|| closest(bare, hosts.iter().copied()));
    let meant = match meant {
        // Lists as other programs have them.
        _ if name.contains([',', '[', '*', ' ']) => "; name each host with a --candidate of its own".to_owned(),
        Some(meant) => format!("; did you mean {meant}?"),
        None => "; kolo hosts lists them".to_owned(),
    };
    format!("no known host is called {name}{meant}")
}

fn complaint(what: &str, meant: Option<&str>) -> String {
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    format!("no known host has {what}{meant}")
}

/// The resource of these that is meant by a name that is none of them.
fn meant_resource<'a>(name: &str, known: BTreeSet<&'a str>) -> Option<&'a str> {
    let common = resource::common_named(name).and_then(|common| known.get(common).copied());
    common.or_else(|| closest(name, known))
}

/// The one of `known` that differs least from `name`, by at most a third of its letters and whatever the case and what parts the words;
/// none when that is `name` itself.
fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded =
        |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let of_name = folded(name);
    let far = (name.chars().count() / 3).max(1);
    let distances = known.into_iter().map(|known| (osa_distance(&of_name, &folded(known)), known));
    let (distance, best) = distances.min()?;
    (distance <= far && best != name).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_resource_is_recognised() {
        for (written, meant) in [
            ("memroy", Some("memory")),
            ("mem", None),
            ("Memory", Some("memory")),
            ("CPU", Some("cpu")),
            ("gpus", Some("gpu")),
            ("cpu", None),
            ("licences", None),
        ] {
            assert_eq!(resource(written), meant, "{written}");
        }
    }

    #[test]
    fn what_no_host_has_is_named_with_what_may_have_been_meant() {
        let list: HostList = serde_json::from_str(
            r#"{"hosts":[{"site":"s","site_name":"","host":"node-1","resources":{"cpu":1,"bandwidth":1,"memory":1},
            "attributes":{"arch":"x86_64","os":"linux","gpu_model":"rtx4090"},"free_now":null,"schedule_age_s":null}],"next":null}"#,
        )
        .unwrap();
        for (rest, expected) in [
            (r#""per_host":{"bandwith":1}"#, Some("no known host has a resource bandwith; did you mean bandwidth?")),
            (r#""per_host":{"mem":1}"#, Some("no known host has a resource mem; did you mean memory?")),
            (
                r#""attributes":{"gpu_model":"RTX4090"}"#,
                Some("no known host has gpu_model=RTX4090; did you mean gpu_model=rtx4090?"),
            ),
            (
                r#""attributes":{"gpu_model":"RTX 4090"}"#,
                Some("no known host has gpu_model=RTX 4090; did you mean gpu_model=rtx4090?"),
            ),
            (
                r#""attributes":{"GPU-model":"rtx4090"}"#,
                Some("no known host has an attribute GPU-model; did you mean gpu_model?"),
            ),
            (r#""attributes":{"os":"Linux"}"#, Some("no known host has os=Linux; did you mean os=linux?")),
            (r#""total":{"licence":1}"#, Some("no known host has a resource licence")),
            (r#""attributes":{"arhc":"x86_64"}"#, Some("no known host has an attribute arhc; did you mean arch?")),
            (r#""attributes":{"arch":"x86-64"}"#, Some("no known host has arch=x86-64; did you mean arch=x86_64?")),
            (r#""attributes":{"arch":"riscv"}"#, Some("no known host has arch=riscv")),
            (r#""total":{"cpu":1},"attributes":{"os":"linux"}"#, None),
            (r#""candidates":["node-1"]"#, None),
            (r#""candidates":["nosuch"]"#, Some("no known host is called nosuch; kolo hosts lists them")),
            (r#""candidates":["node-1","Node-2"]"#, Some("no known host is called Node-2; did you mean node-1?")),
            (r#""candidates":["NODE-1"]"#, Some("no known host is called NODE-1; did you mean node-1?")),
            (r#""candidates":["alpha/node-1"]"#, Some("no known host is called alpha/node-1; did you mean node-1?")),
            (
                r#""candidates":["node-1,node-2"]"#,
                Some("no known host is called node-1,node-2; name each host with a --candidate of its own"),
            ),
            (
                r#""candidates":["node-[1-4]"]"#,
                Some("no known host is called node-[1-4]; name each host with a --candidate of its own"),
            ),
        ] {
            let request: Request = serde_json::from_str(&format!(r#"{{"hosts":1,"duration":60,{rest}}}"#)).unwrap();
            assert_eq!(unknown_to_all(&request, &list).as_deref(), expected, "{rest}");
        }
    }
}
