//! The link to another site, beside the uplinks that both have configured.
//!
//! Invariant: it is measured only when the owner asks for it by `--link-with`.

use kolo_api::grid::{LinkView, SiteList, SiteView};
use kolo_text::{safe::safe, traffic::format_rate};
use ureq::http::StatusCode;

use super::finding::Finding;
use crate::{client::Client, error::CliError};

const CHECK: &str = "link";

/// Has the node here measure the link to a site: an id, or a name that one site has.
pub(super) fn check(client: Result<Client, CliError>, with: &str) -> Finding {
    let to_do = "start kolo node here, and see in kolo sites whether the other one runs and what its id is";
    let failed = |error: CliError| {
        let to_do = error.hint().unwrap_or_else(|| to_do.to_owned());
        Finding::problem(CHECK, error.to_string(), to_do)
    };
    let client = match client {
        Ok(client) => client,
        Err(error) => return failed(error),
    };
    let site = match client.sites() {
        Ok(list) => match site_of(list, with) {
            Ok(site) => site,
            Err(many) => return Finding::problem(CHECK, many, "name it by its id (kolo sites)"),
        },
        Err(error) => return failed(error),
    };
    match client.link_with(&site.site) {
        Ok(link) => finding(&site.name, &link),
        Err(error) => not_measured(&error),
    }
}

fn site_of(list: SiteList, with: &str) -> Result<SiteView, String> {
    let is_meant = |site: &SiteView| site.site.as_str() == with || site.name == with;
    let mut meant: Vec<SiteView> = list.sites.into_iter().filter(is_meant).collect();
    match (meant.len(), meant.pop()) {
        (1, Some(site)) => Ok(site),
        (0, _) => Err(format!("no site {with:?} is known")),
        (many, _) => Err(format!("{many} sites are called {with:?}")),
    }
}

/// That a site is busy says nothing of the link.
fn not_measured(error: &CliError) -> Finding {
    let what = format!("not measured: {error}");
    match error {
        CliError::Problem { status: StatusCode::TOO_MANY_REQUESTS, .. } => {
            Finding::note(CHECK, what, "try again in a minute: a site tests one link at a time, and each once a minute")
        }
        CliError::Problem { status: StatusCode::FORBIDDEN, .. } => {
            Finding::problem(CHECK, what, "its owner allows it with uplink_tests = true in the configuration")
        }
        _ => Finding::problem(CHECK, what, "see in kolo sites whether the other one runs and can be reached"),
    }
}

/// The link carries what the smaller uplink does: with the larger one nothing is wrong. Of a link some per cent carry no payload, so
/// less than a tenth below says nothing.
fn finding(name: &str, link: &LinkView) -> Finding {
    let configured = |mbps: Option<u64>| mbps.map_or_else(|| "without a limit".to_owned(), format_rate);
    let what = format!(
        "{} to {}, {} from it; uplink configured here {}, there {}",
        format_rate(link.to_mbps),
        safe(name),
        format_rate(link.from_mbps),
        configured(link.uplink_mbps),
        configured(link.their_uplink_mbps)
    );
    let measured = link.to_mbps.min(link.from_mbps);
    let smaller = link.uplink_mbps.into_iter().chain(link.their_uplink_mbps).min();
    if smaller.is_none_or(|smaller| smaller <= measured.saturating_add(measured / 9)) {
        return Finding::good(CHECK, what);
    }
    let to_do = "measure again when nothing else uses the link, and with other sites; if it stays so, set uplink to what the link \
                 carries, or requests with traffic are promised what it does not have";
    Finding::note(CHECK, format!("{what}: more than was measured"), to_do)
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Level, *};
    use crate::samples::serve;

    #[test]
    fn an_uplink_above_what_was_measured_is_told() {
        let check = |to_mbps, from_mbps, uplink_mbps, their_uplink_mbps| {
            finding("beta", &LinkView { to_mbps, from_mbps, uplink_mbps, their_uplink_mbps })
        };
        let good = check(930, 910, Some(1000), Some(2000));
        assert_eq!(good.level, Level::Good);
        assert_eq!(good.what, "930Mbit/s to beta, 910Mbit/s from it; uplink configured here 1Gbit/s, there 2Gbit/s");
        let above = check(930, 600, Some(1000), None);
        assert_eq!(above.level, Level::Note);
        assert!(above.what.ends_with("here 1Gbit/s, there without a limit: more than was measured"), "{}", above.what);
        assert_eq!(check(95, 95, Some(1000), Some(100)).level, Level::Good, "the other one is the smaller");
        assert_eq!(check(95, 0, Some(1), None).level, Level::Note);
        assert_eq!(check(1, 1, None, None).level, Level::Good);
    }

    #[test]
    fn a_site_is_named_by_its_id_or_by_a_name_of_its_own() {
        let site = |id: &str, name: &str| {
            format!(
                r#"{{"site":"{id}","name":"{name}","this_node":false,"hosts":0,"advert_age_s":0,"expires_in_s":9,
                "schedule":"unknown","ledger_version":null,"schedule_age_s":null,"addresses":[]}}"#
            )
        };
        let sites = [site("s1", "one"), site("s2", "two"), site("s3", "two")].join(",");
        let list =
            || serde_json::from_str::<SiteList>(&format!(r#"{{"sites":[{sites}],"bans":[],"next":null}}"#)).unwrap();
        assert_eq!(site_of(list(), "one").unwrap().site.as_str(), "s1");
        assert_eq!(site_of(list(), "s3").unwrap().site.as_str(), "s3");
        assert!(site_of(list(), "two").unwrap_err().starts_with("2 sites"));
        assert!(site_of(list(), "three").unwrap_err().starts_with("no site"));

        let refused = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"its owner does not allow tests of links"}"#;
        let sites = serde_json::to_string(&list()).unwrap();
        let (client, server) = serve(vec![("200 OK", sites), ("403 Forbidden", refused.to_owned())]);
        let found = check(Ok(client), "one");
        assert!(server.join().unwrap()[1].starts_with("GET /v1/uplink?with=s1 "));
        assert_eq!(found.level, Level::Problem);
        assert!(found.what.contains("does not allow") && found.to_do.unwrap().contains("uplink_tests"));
        for (status, level, to_do) in [
            (StatusCode::TOO_MANY_REQUESTS, Level::Note, "try again"),
            (StatusCode::BAD_GATEWAY, Level::Problem, "kolo sites"),
        ] {
            let found = not_measured(&CliError::Problem { status, message: "why".to_owned(), hint: None });
            assert!(found.level == level && found.to_do.as_ref().unwrap().contains(to_do), "{found:?}");
        }
        assert_eq!(check(Err(CliError::failed("no node")), "one").level, Level::Problem);
    }
}
