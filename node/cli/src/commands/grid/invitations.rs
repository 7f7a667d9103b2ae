//! `kolo grid invitations`: which invitations there are, and who came by each, as far as the node here knows.
//!
//! Invariant: an invitation is listed once, whether it is known from being made here, from those who came by it, or both.

use std::collections::BTreeMap;

use broker::{
    time::Time,
    trust::{PublicKey, Role, Subject},
};
use kolo_api::members::{GridView, InvitationView, MemberView};
use kolo_text::{time::format_time, words::or_dash};
use kolo_trust::{Issued, IssuedList};
use serde::Serialize;

use super::closed_grid;
use crate::{
    commands::Context,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`] when the node does not run, or its grid is open.
pub fn run(context: &mut Context) -> Result<Exit, CliError> {
    let data_dir = context.data_dir()?;
    let _ = closed_grid(&data_dir)?;
    let list = IssuedList::load(&data_dir)?;
    let known: GridView = context.connect()?.get("/v1/grid")?;
    context.done(&Invitations::of(list.entries(), &known, context.time()))
}

/// Invitations that this node knows, oldest first.
#[derive(Debug, Serialize)]
struct Invitations {
    root: Option<PublicKey>,
    /// All roots that are known, `root` among them.
    #[serde(skip)]
    roots: Vec<PublicKey>,
    invitations: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    invitation: InvitationView,
    made_here: bool,
    /// Empty, `revoked` or `expired`.
    state: &'static str,
    /// Who is known to have come by it.
    members: Vec<MemberView>,
}

impl Invitations {
    fn of(issued: &[Issued], known: &GridView, now: Time) -> Invitations {
        let mut rows: BTreeMap<PublicKey, Row> = BTreeMap::new();
        for one in issued {
            let Subject::Key(key) = one.subject else { continue };
            let row = rows.entry(key).or_insert_with(|| Row::new(InvitationView::of_key(key)));
            row.made_here = true;
            row.invitation = InvitationView {
                key,
                issuer: one.issuer,
                role: Some(one.role),
                name: Some(one.name.clone()),
                issued: Some(one.issued),
                expires: Some(one.expires),
            };
        }
        for member in &known.members {
            let Some(invitation) = &member.invitation else { continue };
            let row = rows.entry(invitation.key).or_insert_with(|| Row::new(invitation.clone()));
            row.invitation.learn(invitation);
            row.members.push(member.clone());
        }
        for row in rows.values_mut() {
            let subject = Subject::Key(row.invitation.key);
            let is_expired = row.invitation.expires.is_some_and(|expires| expires <= now);
            row.state = match known.revocations.iter().any(|revocation| revocation.subject == subject) {
                true => "revoked",
                false if is_expired => "expired",
                false => "",
            };
        }
        let mut invitations: Vec<Row> = rows.into_values().collect();
        invitations.sort_by_key(|row| row.invitation.issued);
        let roots = known.roots.iter().map(|root| root.key).collect();
        Invitations { root: known.root, roots, invitations }
    }
}

impl Row {
    fn new(invitation: InvitationView) -> Row {
        Row { invitation, made_here: false, state: "", members: Vec::new() }
    }
}

impl Report for Invitations {
    fn text(&self, look: &Look) -> String {
        let time = |at: Option<Time>| or_dash(at.map_or_else(String::new, |at| format_time(at, &look.zone)));
        let role = |role: Option<Role>| or_dash(role.map_or_else(String::new, |role| role.to_string()));
        let issuer = |issuer: Option<PublicKey>| match issuer {
            Some(key) if self.roots.contains(&key) => "root".to_owned(),
            Some(key) => key.fingerprint(),
            None => "-".to_owned(),
        };
        let invitations = self.invitations.iter().map(|row| {
            let InvitationView { key, issuer: by, role: of, name, issued, expires } = &row.invitation;
            let name = or_dash(name.clone().unwrap_or_default());
            [key.fingerprint(), role(*of), name, issuer(*by), time(*issued), time(*expires), row.state.to_owned()]
        });
        let head = ["INVITATION", "ROLE", "NAME", "ISSUER", "MADE", "LAPSES", "STATE"];
        let mut text = columns(look, head, invitations);
        let used =
            self.invitations.iter().flat_map(|row| row.members.iter().map(|member| (&row.invitation.key, member)));
        let members = used.map(|(key, member)| {
            let state = if member.revoked { "revoked" } else { "" };
            let who = member.subject.to_string();
            [key.fingerprint(), member.role.to_string(), member.name.clone(), time(member.since), state.to_owned(), who]
        });
        text.push('\n');
        text.push_str(&columns(look, ["USED", "ROLE", "NAME", "SINCE", "STATE", "WHO"], members));
        text.push_str(
            "\nas far as this node knows: invitations made from its data directory, sites that it has met, and users who have \
             reserved here or asked through it; others may have joined too\n",
        );
        text
    }
    fn ids(&self) -> Vec<String> {
        self.invitations.iter().map(|row| row.invitation.key.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use broker::ids::SiteId;
    use kolo_api::members::RootView;

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    const MADE: Time = Time(1_763_712_000);

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    fn member(number: u8, invitation: InvitationView) -> MemberView {
        MemberView {
            subject: Subject::Key(key(number)),
            role: Role::User,
            name: "ada".to_owned(),
            expires: None,
            revoked: false,
            since: Some(MADE),
            invitation: Some(invitation),
        }
    }

    #[test]
    fn each_invitation_is_listed_once_with_all_who_came_by_it() {
        let (expires, root) = (MADE + broker::time::Span(3_600), Some(key(1)));
        let issued = |number: u8, issuer: Option<PublicKey>| Issued {
            subject: Subject::Key(key(number)),
            role: Role::User,
            name: String::new(),
            issued: MADE,
            expires,
            issuer,
        };
        let elsewhere = InvitationView { issuer: Some(key(8)), ..InvitationView::of_key(key(3)) };
        let of_here = InvitationView { issuer: root, ..InvitationView::of_key(key(2)) };
        let members = vec![member(5, of_here.clone()), member(6, of_here), member(7, elsewhere)];
        let site = SiteId::new("s").unwrap();
        let (id, form, revocations) = (String::new(), String::new(), Vec::new());
        let roots = vec![RootView { key: key(1), until: None }];
        let known = GridView { id, form, root, roots, rival: None, site, members, revocations };
        let listed = Invitations::of(&[issued(2, None), issued(4, root)], &known, expires);
        let counts: Vec<_> = listed.invitations.iter().map(|row| (row.members.len(), row.state)).collect();
        assert_eq!(counts, [(1, ""), (2, "expired"), (0, "expired")]);
        let text = printed(&listed, OutputFormat::Table);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>()[3], "0808080808080808", "{text}");
        assert!(lines[2].starts_with("0202020202020202") && lines[2].contains(" root "), "{text}");
        assert!(lines[3].contains("2025-11-21 09:00:00+00:00"), "{text}");
        assert!(lines[7].contains("ada") && lines[7].contains("2025-11-21 08:00:00+00:00"), "{text}");
        assert!(text.contains("as far as this node knows"), "{text}");
    }
}
