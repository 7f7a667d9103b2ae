//! `kolo grid show`: the grid, its members and revocations, as the node here knows them.

use kolo_api::members::GridView;
use kolo_text::{safe::safe, time::format_time};

use crate::{
    commands::Context,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`] when the node does not run.
pub fn run(context: &mut Context) -> Result<Exit, CliError> {
    let view: GridView = context.connect()?.get("/v1/grid")?;
    context.done(&view)
}

impl Report for GridView {
    fn text(&self, look: &Look) -> String {
        let mut text = format!("{} grid {}\n", safe(&self.form), safe(&self.id));
        for root in &self.roots {
            let until = root.until.map(|at| format!(", which counts until {}", format_time(at, &look.zone)));
            text.push_str(&format!("root key {}{}\n", root.key, until.unwrap_or_default()));
        }
        if let Some(rival) = &self.rival {
            text.push_str(&format!(
                "somebody has the key of an older root: it has signed {rival} as another successor, which is refused\n"
            ));
        }
        let members = self.members.iter().map(|member| {
            let expires = member.expires.map_or_else(|| "-".to_owned(), |at| format_time(at, &look.zone));
            let state = if member.revoked { "revoked" } else { "" };
            [member.role.to_string(), member.name.clone(), expires, state.to_owned(), member.subject.to_string()]
        });
        text.push('\n');
        text.push_str(&columns(look, ["ROLE", "NAME", "EXPIRES", "STATE", "WHO"], members));
        if !self.revocations.is_empty() {
            text.push('\n');
            let rows = self.revocations.iter().map(|revocation| {
                let by =
                    if self.is_root(&revocation.author) { "root".to_owned() } else { revocation.author.fingerprint() };
                let hosts = if revocation.takes_back { "taken back" } else { "stay" };
                [format_time(revocation.revoked, &look.zone), by, hosts.to_owned(), revocation.subject.to_string()]
            });
            text.push_str(&columns(look, ["REVOKED", "BY", "HOSTS", "WHO"], rows));
        }
        text
    }
    fn ids(&self) -> Vec<String> {
        vec![self.id.clone()]
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        ids::SiteId,
        time::Time,
        trust::{PublicKey, Role, Subject},
    };
    use kolo_api::members::{MemberView, RevocationView, RootView};

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn members_and_revocations_are_listed() {
        let root = PublicKey::from_bytes([1; 32]);
        let view = GridView {
            id: "lab-aaaa".to_owned(),
            form: "closed".to_owned(),
            root: Some(root),
            roots: vec![
                RootView { key: root, until: Some(Time(1_763_712_000)) },
                RootView { key: PublicKey::from_bytes([2; 32]), until: None },
            ],
            rival: None,
            site: SiteId::new("12D3").unwrap(),
            members: vec![MemberView {
                subject: Subject::Site(SiteId::new("12D3").unwrap()),
                role: Role::Site,
                name: "alpha\u{1b}".to_owned(),
                expires: Some(Time(1_763_712_000)),
                revoked: true,
                since: None,
                invitation: None,
            }],
            revocations: vec![RevocationView {
                subject: Subject::Site(SiteId::new("12D3").unwrap()),
                revoked: Time(1_763_712_000),
                keep_until: Time(1_763_798_400),
                author: root,
                takes_back: true,
            }],
        };
        let (root, next) = ("01".repeat(32), "02".repeat(32));
        assert_eq!(
            printed(&view, OutputFormat::Table),
            format!(
                "closed grid lab-aaaa\nroot key {root}, which counts until 2025-11-21 08:00:00+00:00\nroot key {next}\n\n\
                 ROLE  NAME         EXPIRES                    STATE    WHO\n\
                 site  alpha\\u{{1b}}  2025-11-21 08:00:00+00:00  revoked  site 12D3\n\n\
                 REVOKED                    BY    HOSTS       WHO\n\
                 2025-11-21 08:00:00+00:00  root  taken back  site 12D3\n"
            )
        );
    }
}
