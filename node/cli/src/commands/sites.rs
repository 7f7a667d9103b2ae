//! `kolo sites`: the sites of the grid, as this node knows them, and the peers that it refuses to talk to.

use kolo_api::grid::{SiteList, UplinkView};
use kolo_text::{
    safe::safe,
    time::format_time,
    traffic::format_rate,
    words::{age_text, or_dash, site_text},
};

use super::Context;
use crate::{
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
};

pub fn run(context: &mut Context) -> Result<Exit, CliError> {
    let client = context.connect()?;
    let list = client.sites()?;
    context.done(&list)
}

impl Report for SiteList {
    fn text(&self, look: &Look) -> String {
        let mut text = columns(
            look,
            ["SITE", "NAME", "HOSTS", "UPLINK", "SCHEDULE", "AGE", "ADVERT AGE", "EXPIRES IN", "ADDRESS"],
            self.sites.iter().map(|site| {
                let name = if site.this_node { format!("{} (this node)", site.name) } else { site.name.clone() };
                [
                    site.site.to_string(),
                    name,
                    site.hosts.to_string(),
                    or_dash(site.uplink.as_ref().map(uplink_text).unwrap_or_default()),
                    site.schedule.as_str().to_owned(),
                    age_text(site.schedule_age_s),
                    age_text(Some(site.advert_age_s)),
                    age_text(Some(site.expires_in_s)),
                    or_dash(site.addresses.first().cloned().unwrap_or_default()),
                ]
            }),
        );
        for site in &self.sites {
            let name = safe(&site_text(site.site.as_str(), &site.name));
            if let Some(why) = &site.schedule_trouble {
                text.push_str(&format!("{name}: schedule {}: {}\n", site.schedule.as_str(), safe(why)));
            }
            if let Some(from) = site.coarse_from {
                let from = format_time(from, &look.zone);
                text.push_str(&format!(
                    "{name}: from {from} on its hosts look busier to others than they are: it has more steps than are told\n"
                ));
            }
        }
        if !self.apart.is_empty() {
            text.push('\n');
            let rows = self.apart.iter().map(|apart| [apart.site.to_string(), apart.why.clone()]);
            text.push_str(&columns(look, ["NOT UNDERSTOOD", "WHY"], rows));
        }
        if !self.bans.is_empty() {
            text.push('\n');
            text.push_str(&columns(
                look,
                ["BANNED", "UNTIL", "TIMES", "WHY"],
                self.bans.iter().map(|ban| {
                    [ban.site.to_string(), format_time(ban.until, &look.zone), ban.times.to_string(), ban.why.clone()]
                }),
            ));
        }
        text
    }
    fn ids(&self) -> Vec<String> {
        self.sites.iter().map(|site| site.site.to_string()).collect()
    }
}

/// What a link carries, and what of it is free now.
fn uplink_text(uplink: &UplinkView) -> String {
    let free = uplink.free_now_mbps.map_or_else(|| "unknown".to_owned(), format_rate);
    format!("{}, {free} free", format_rate(uplink.mbps))
}

#[cfg(test)]
mod tests {
    use broker::{ids::SiteId, time::Time};
    use kolo_api::grid::{ApartView, BanView, ScheduleState};

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn sites_are_listed_with_the_age_of_what_is_known() {
        let list: SiteList = serde_json::from_str(
            r#"{"sites":[{"site":"12D3","name":"al\u001bpha","this_node":true,"hosts":4,"advert_age_s":0,
            "expires_in_s":600,"schedule":"current","ledger_version":null,"schedule_age_s":null,
            "addresses":["/ip4/127.0.0.1/tcp/1"]},{"site":"12D4","name":"beta","this_node":false,"hosts":1,"advert_age_s":0,
            "expires_in_s":600,"schedule":"current","ledger_version":null,"schedule_age_s":null,"addresses":[],
            "uplink":{"mbps":1000,"free_now_mbps":700}}],"bans":[],"next":null}"#,
        )
        .unwrap();
        let expected = "SITE  NAME                     HOSTS  UPLINK                   SCHEDULE  AGE  ADVERT AGE  EXPIRES IN  ADDRESS\n\
             12D3  al\\u{1b}pha (this node)  4      -                        current   -    0s          10m         /ip4/127.0.0.1/tcp/1\n\
             12D4  beta                     1      1Gbit/s, 700Mbit/s free  current   -    0s          10m         -\n";
        assert_eq!(printed(&list, OutputFormat::Table), expected);
        let mut troubled = list.clone();
        troubled.sites[1].schedule = ScheduleState::Unknown;
        troubled.sites[1].schedule_trouble = Some("its schedules are on their way: 3 of 9 parts are here".to_owned());
        troubled.sites[0].coarse_from = Some(Time(86_400));
        troubled.apart =
            vec![ApartView { site: SiteId::new("12F").unwrap(), why: "its program is too old".to_owned() }];
        let text = printed(&troubled, OutputFormat::Table);
        for expected in [
            "): schedule unknown: its schedules are on their way: 3 of 9 parts are here\n",
            "from 1970-01-02 00:00:00+00:00 on its hosts look busier to others than they are",
            " its program is too old\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        let ban = BanView { site: SiteId::new("12E").unwrap(), why: "lies".to_owned(), until: Time(86_400), times: 2 };
        let with_ban = printed(&SiteList { bans: vec![ban], ..list }, OutputFormat::Table);
        assert_eq!(
            with_ban.strip_prefix(expected).unwrap(),
            "\nBANNED  UNTIL                      TIMES  WHY\n\
             12E     1970-01-02 00:00:00+00:00  2      lies\n"
        );
    }
}
