//! How a user reaches the hosts of a site: a text of the site's owner with places for host, user and request.
//!
//! It travels in the site's advert and is what somebody else has written: it is shown, never run. Invariant: what is filled in cannot
//! bring further places in.

use discovery::check::CONTACT_BYTES_MAX;

/// Checks what an owner has written.
pub fn check(template: &str) -> Result<(), String> {
    if template.trim().is_empty() || template.len() > CONTACT_BYTES_MAX || template.chars().any(char::is_control) {
        return Err(format!("expected 1 to {CONTACT_BYTES_MAX} bytes without control characters"));
    }
    let known = |name: &str| (name == "host" || name == "user" || name == "request").then_some(String::new());
    match fill_with(template, known) {
        (_, Some(unknown)) => Err(format!("{{{unknown}}} is no place: expected {{host}}, {{user}} or {{request}}")),
        (_, None) => Ok(()),
    }
}

/// The contact of one host, for one user and request. Places that are not known stay as they are: another version of Kolo
/// may know them.
pub fn fill(template: &str, host: &str, user: &str, request: &str) -> String {
    let value = |name: &str| {
        let value = match name {
            "host" => host,
            "user" => user,
            "request" => request,
            _ => return None,
        };
        Some(value.to_owned())
    };
    fill_with(template, value).0
}

/// The text with its places filled in, and the first place without a value.
fn fill_with(template: &str, value: impl Fn(&str) -> Option<String>) -> (String, Option<String>) {
    let (mut text, mut unknown) = (String::with_capacity(template.len()), None);
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        text.push_str(before);
        let Some((name, after)) = behind.split_once('}') else {
            text.push('{');
            rest = behind;
            continue;
        };
        if let Some(value) = value(name) {
            text.push_str(&value);
        } else {
            text.push_str(&format!("{{{name}}}"));
            unknown.get_or_insert_with(|| name.to_owned());
        }
        rest = after;
    }
    text.push_str(rest);
    (text, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once() {
        let template = "ssh {user}@{host}.example.org # {request} {else} {";
        assert_eq!(fill(template, "h1", "{host}", "r-7"), "ssh {host}@h1.example.org # r-7 {else} {");
        assert_eq!(fill("no places", "h", "u", "r"), "no places");
    }

    #[test]
    fn an_owner_is_told_what_is_wrong() {
        assert_eq!(check("ssh {user}@{host}"), Ok(()));
        for (template, expected) in
            [("", "1 to"), ("a\nb", "control"), ("ssh {hosts}", "{hosts} is no place"), (&"x".repeat(999), "1 to 256")]
        {
            assert!(check(template).is_err_and(|error| error.contains(expected)), "{template}");
        }
    }
}
