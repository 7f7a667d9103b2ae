//! `kolo hosts`: the hosts of the grid, as this node knows them.

use super::Context;
use crate::{
    api::grid::{HostList, HostView},
    cli::{
        error::CliError,
        exit::Exit,
        output::{Look, Report, columns},
    },
    text::words::{age_text, amounts_text, attributes_text, site_text},
};

pub fn run(context: &mut Context) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let list = client.hosts()?;
    context.done(&list)
}

impl Report for HostList {
    fn text(&self, look: &Look) -> String {
        columns(
            look,
            ["HOST", "SITE", "CAPACITY", "FREE NOW", "ATTRIBUTES", "AGE"],
            self.hosts.iter().map(|host| {
                [
                    host.host.to_string(),
                    site_text(host.site.as_str(), &host.site_name),
                    capacity_text(host),
                    host.free_now.as_ref().map_or_else(|| "unknown".to_owned(), amounts_text),
                    attributes_text(&host.attributes),
                    age_text(host.schedule_age_s),
                ]
            }),
        )
    }
    fn ids(&self) -> Vec<String> {
        self.hosts.iter().map(|host| format!("{}/{}", host.site, host.host)).collect()
    }
}

/// What a host has, and how fast it is where that is not the reference speed.
fn capacity_text(host: &HostView) -> String {
    let speed = if host.speed.is_reference() { String::new() } else { format!(" speed={}", host.speed) };
    format!("{}{speed}", amounts_text(&host.resources))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{output::OutputFormat, samples::printed};

    #[test]
    fn hosts_are_listed_with_capacity_and_what_is_free() {
        let list: HostList = serde_json::from_str(
            r#"{"hosts":[{"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h1","resources":{"cpu":4000,
            "memory":3072},"attributes":{"arch":"x86_64"},"free_now":{"cpu":500},
            "schedule_age_s":3},{"site":"12D3KooWaaaa1111","site_name":"alpha","host":"h2","resources":{"cpu":4000},
            "attributes":{},"speed":1500,"free_now":null,"schedule_age_s":3}],"next":null}"#,
        )
        .unwrap();
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "HOST  SITE                CAPACITY           FREE NOW  ATTRIBUTES   AGE\n\
             h1    alpha (..aaaa1111)  cpu=4 memory=3GiB  cpu=0.5   arch=x86_64  3s\n\
             h2    alpha (..aaaa1111)  cpu=4 speed=1.5    unknown   -            3s\n"
        );
        assert_eq!(printed(&list, OutputFormat::Quiet), "12D3KooWaaaa1111/h1\n12D3KooWaaaa1111/h2\n");
    }
}
