//! `kolo grid revoke`: takes a member's rights away and lets the node here tell the others.
//!
//! Invariant: a name revokes at most one member of each role; when it could mean several, nothing happens.

use std::collections::BTreeMap;

use broker::{
    ids::SiteId,
    time::Time,
    trust::{PublicKey, Role, Subject},
};
use kolo_api::members::{self, GridView};
use kolo_text::safe::safe;
use kolo_trust::{GridFile, Issued, IssuedList, LIFE_OF_FOUNDER, member};
use serde::Serialize;

use super::{closed_grid, invite::issuer};
use crate::{
    commands::Context,
    error::CliError,
    exit::Exit,
    grid_args::RevokeArgs,
    output::{Look, Report},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; the root's or an admin's key must be at hand, and the node must run.
pub fn run(context: &mut Context, args: &RevokeArgs) -> Result<Exit, CliError> {
    let data_dir = context.data_dir()?;
    let (grid, _) = closed_grid(&data_dir)?;
    let issuer = issuer(context, &grid)?;
    let client = context.connect()?;
    let now = context.time();
    let known: GridView = client.get("/v1/grid")?;
    let list = IssuedList::load(&data_dir)?;
    let targets = targets(args, list.entries(), &known, now)?;
    if !args.myself {
        refuse_oneself(&args.who, &targets, &own_subjects(context, &grid, now)?)?;
    }
    if args.take_back && targets.iter().all(|target| matches!(target.subject, Subject::Site(_))) {
        return Err(CliError::Usage(format!(
            "--take-back: {} is a site, which reserves nothing; nothing was revoked",
            args.who
        )));
    }
    let mut revoked = Vec::new();
    for target in targets {
        // A site holds no hosts.
        let take_back = args.take_back && matches!(target.subject, Subject::Key(_));
        let [plain, taking] = issuer.revoke_taking_back(&grid, target.subject.clone(), now, target.expires)?;
        let mut answer: members::Revoked = client.post("/v1/grid/revocations", &plain)?;
        if take_back {
            let taken: members::Revoked = client.post("/v1/grid/revocations", &taking)?;
            answer.added |= taken.added;
        }
        revoked.push(Row { target, was_known: !answer.added, take_back });
    }
    context.done(&Revoked { who: args.who.clone(), revoked })
}

/// Whose loss would be one's own: this site and the users here, and the invitations that they came with.
fn own_subjects(context: &Context, grid: &GridFile, now: Time) -> Result<Vec<Subject>, CliError> {
    let mut own = Vec::new();
    for wallet in context.wallets()? {
        for role in [Role::Site, Role::Admin, Role::User] {
            let Some(chain) = wallet.credential(&grid.id, role)? else { continue };
            // One that does not count any more has nothing to lose.
            own.extend(member(grid, &chain, now).ok().flatten().map(|holder| holder.lineage).unwrap_or_default());
        }
    }
    Ok(own)
}

fn refuse_oneself(who: &str, targets: &[Target], own: &[Subject]) -> Result<(), CliError> {
    match targets.iter().find(|target| own.contains(&target.subject)) {
        None => Ok(()),
        Some(target) => Err(CliError::Usage(format!(
            "{who}: {} is this site itself, you, or an invitation that one of you came with; nothing was revoked. If that is \
             meant, say --myself",
            target.subject
        ))),
    }
}

/// Who is to be revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Target {
    subject: Subject,
    role: Option<Role>,
    expires: Time,
    /// Whether it is an invitation that was made here: with it goes whoever joined by it.
    issued_here: bool,
}

/// What `who` means: a key, a site id, the name of members, or the fingerprint of an invitation, which stands behind names that users have
/// chosen (`ada@FINGERPRINT`); invitations made here come first, since with one of them goes whoever joined with it.
fn targets(args: &RevokeArgs, issued: &[Issued], known: &GridView, now: Time) -> Result<Vec<Target>, CliError> {
    let who = args.who.as_str();
    let named = if let Ok(key) = PublicKey::from_text(who) {
        Some(Subject::Key(key))
    } else if who.parse::<discovery::PeerId>().is_ok() {
        SiteId::new(who).ok().map(Subject::Site)
    } else {
        None
    };
    if let Some(subject) = named {
        let issued = issued.iter().find(|issued| issued.subject == subject);
        let expires = issued.map(|issued| issued.expires);
        let expires = expires.or_else(|| known.members.iter().find(|member| member.subject == subject)?.expires);
        let (role, issued_here) = (issued.map(|issued| issued.role), issued.is_some());
        return Ok(vec![Target { subject, role, expires: expires.unwrap_or(now + LIFE_OF_FOUNDER), issued_here }]);
    }
    let account = who.rsplit_once('@').map_or(who, |(_, account)| account);
    let is_meant = |issued: &Issued| match &issued.subject {
        Subject::Key(key) if key.fingerprint() == account => true,
        _ => issued.name == who,
    };
    let is_asked = |role: Role| args.role.is_none_or(|asked| Role::from(asked) == role);
    let of_issued = issued.iter().filter(|issued| is_meant(issued) && is_asked(issued.role) && issued.expires > now);
    let of_issued = of_issued.map(|issued| (issued.role, issued.subject.clone(), issued.expires));
    let mut candidates: Vec<(Role, Subject, Time)> = of_issued.collect();
    let issued_here = !candidates.is_empty();
    if !issued_here {
        let of_known = known.members.iter().filter(|member| member.name == who && is_asked(member.role));
        let expires = |expires: Option<Time>| expires.unwrap_or(now + LIFE_OF_FOUNDER);
        candidates = of_known.map(|member| (member.role, member.subject.clone(), expires(member.expires))).collect();
    }
    one_of_each_role(who, candidates, issued_here)
}

fn one_of_each_role(
    who: &str,
    candidates: Vec<(Role, Subject, Time)>,
    issued_here: bool,
) -> Result<Vec<Target>, CliError> {
    let mut by_role: BTreeMap<Role, Vec<Target>> = BTreeMap::new();
    for (role, subject, expires) in candidates {
        by_role.entry(role).or_default().push(Target { subject, role: Some(role), expires, issued_here });
    }
    if by_role.is_empty() {
        return Err(CliError::failed(format!(
            "nobody of the name {who:?} is known here: kolo grid show lists who is; a key or a site id always works"
        )));
    }
    if let Some((role, several)) = by_role.iter().find(|(_, of_role)| of_role.len() > 1) {
        let subjects: Vec<String> = several.iter().map(|target| target.subject.to_string()).collect();
        return Err(CliError::failed(format!(
            "{who:?} may mean several members of role {role}: name one of {}",
            subjects.join(", ")
        )));
    }
    Ok(by_role.into_values().flatten().collect())
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    target: Target,
    was_known: bool,
    take_back: bool,
}

/// Who was revoked.
#[derive(Serialize)]
struct Revoked {
    who: String,
    revoked: Vec<Row>,
}

impl Report for Revoked {
    fn text(&self, _: &Look) -> String {
        let row = |row: &Row| {
            let role = row.target.role.map(|role| format!("{role} ")).unwrap_or_default();
            let note = if row.was_known { " (was revoked before)" } else { "" };
            format!("revoked {role}{}: {}{note}\n", safe(&self.who), row.target.subject)
        };
        let mut text: String = self.revoked.iter().map(row).collect();
        text.push_str(match self.revoked.iter().any(|row| row.take_back) {
            true => "other nodes learn of it within seconds; each frees the hosts that are reserved with it there\n",
            false => "other nodes learn of it within seconds; what is reserved already stays reserved (--take-back frees it)\n",
        });
        let is_own_key = |row: &Row| !row.target.issued_here && matches!(row.target.subject, Subject::Key(_));
        if self.revoked.iter().any(is_own_key) {
            text.push_str(
                "only this key was revoked, and no invitation: if it came with one, others can be made with that. Revoke it too, where it \
                 was made, by its name or by what stands behind the @ of the user's name\n",
            );
        }
        text
    }
    fn ids(&self) -> Vec<String> {
        self.revoked.iter().map(|row| row.target.subject.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use kolo_api::members::MemberView;

    use super::*;
    use crate::{grid_args::RoleArg, output::OutputFormat, samples::printed};

    const NOW: Time = Time(100);

    fn key(number: u8) -> Subject {
        Subject::Key(PublicKey::from_bytes([number; 32]))
    }

    fn nobody() -> GridView {
        let site = SiteId::new("s").unwrap();
        let (members, revocations) = (Vec::new(), Vec::new());
        let (id, form, roots) = ("lab".to_owned(), "closed".to_owned(), Vec::new());
        GridView { id, form, root: None, roots, rival: None, site, members, revocations }
    }

    fn issued(number: u8, role: Role, name: &str) -> Issued {
        Issued { subject: key(number), role, name: name.to_owned(), issued: Time(1), expires: Time(200), issuer: None }
    }

    fn meant(who: &str, role: Option<RoleArg>, issued: &[Issued], known: &GridView) -> Result<Vec<Subject>, String> {
        let args = RevokeArgs { who: who.to_owned(), role, myself: false, take_back: false };
        let targets = targets(&args, issued, known, NOW).map_err(|error| error.to_string())?;
        Ok(targets.into_iter().map(|target| target.subject).collect())
    }

    #[test]
    fn a_name_means_the_invitations_of_that_name_one_of_each_role() {
        let known = nobody();
        let list = [issued(1, Role::Site, "lab"), issued(2, Role::User, "lab"), issued(3, Role::User, "ada")];
        assert_eq!(meant("lab", None, &list, &known), Ok(vec![key(1), key(2)]));
        assert_eq!(meant("lab", Some(RoleArg::User), &list, &known), Ok(vec![key(2)]));
        let twice = [issued(3, Role::User, "ada"), issued(4, Role::User, "ada")];
        assert!(meant("ada", None, &twice, &known).unwrap_err().contains("several members of role user"));
        assert!(meant("bob", None, &list, &known).unwrap_err().contains("nobody of the name \"bob\""));
    }

    #[test]
    fn what_stands_behind_a_chosen_name_means_the_invitation() {
        let Subject::Key(of_invitation) = key(4) else { panic!() };
        let (list, fingerprint) = ([issued(4, Role::User, ""), issued(5, Role::User, "")], of_invitation.fingerprint());
        for who in [fingerprint.clone(), format!("ada@{fingerprint}")] {
            assert_eq!(meant(&who, None, &list, &nobody()), Ok(vec![key(4)]), "{who}");
        }
    }

    #[test]
    fn who_revokes_a_key_whose_invitation_was_made_elsewhere_is_told() {
        let Subject::Key(of_invitation) = key(4) else { panic!() };
        let who = format!("ada@{}", of_invitation.fingerprint());
        let member = MemberView {
            subject: key(6),
            role: Role::User,
            name: who.clone(),
            expires: None,
            revoked: false,
            since: None,
            invitation: None,
        };
        let known = GridView { members: vec![member], ..nobody() };
        let said = |issued: &[Issued]| {
            let args = RevokeArgs { who: who.clone(), role: None, myself: false, take_back: false };
            let targets = targets(&args, issued, &known, NOW).unwrap();
            let revoked =
                targets.into_iter().map(|target| Row { target, was_known: false, take_back: false }).collect();
            printed(&Revoked { who: who.clone(), revoked }, OutputFormat::Table)
        };
        assert!(said(&[]).contains(&key(6).to_string()) && said(&[]).contains("where it was made"), "{}", said(&[]));
        let here = said(&[issued(4, Role::User, "")]);
        assert!(here.contains(&key(4).to_string()) && !here.contains("where it was made"), "{here}");
    }

    #[test]
    fn oneself_is_revoked_only_when_that_is_said() {
        let target = |number| Target { subject: key(number), role: None, expires: NOW, issued_here: false };
        assert!(refuse_oneself("lab", &[target(1), target(2)], &[key(3)]).is_ok());
        let error = refuse_oneself("lab", &[target(1), target(2)], &[key(3), key(2)]).unwrap_err();
        assert!(error.to_string().contains("--myself"), "{error}");
    }

    #[test]
    fn a_key_or_a_site_is_meant_itself() {
        let known = nobody();
        let text = "07".repeat(32);
        assert_eq!(meant(&text, None, &[], &known), Ok(vec![key(7)]));
        let site = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp";
        assert_eq!(meant(site, None, &[], &known), Ok(vec![Subject::Site(SiteId::new(site).unwrap())]));
    }
}
