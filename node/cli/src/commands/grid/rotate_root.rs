//! `kolo grid rotate-root`: lets a new root key follow the one of the grid, and lets the node here tell the others.
//!
//! Invariant: the node has the statement on disk, and who is revoked is so by the new root, before the new key takes the old one's place;
//! until then an interrupted command goes on with the same new key.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use broker::{
    time::Time,
    trust::{PublicKey, Role, SignedRevocation, Subject},
};
use kolo_api::members::{self, GridView};
use kolo_text::{safe::safe, time::format_time};
use kolo_trust::{GridFile, Issued, IssuedList, ROOT_KEY_FILE, Renewed, Rotation, former_root_key_path};
use serde::Serialize;

use super::closed_grid;
use crate::{
    client::Client,
    commands::Context,
    error::CliError,
    exit::Exit,
    grid_args::RotateRootArgs,
    output::{Look, Report},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`]; the old root's key must be at hand, and the node must run.
pub fn run(context: &mut Context, args: &RotateRootArgs) -> Result<Exit, CliError> {
    let data_dir = context.data_dir()?;
    let (grid, _) = closed_grid(&data_dir)?;
    let client = context.connect()?;
    let (at, now) = ((&grid, data_dir.as_path()), context.time());
    let old_key = args.root_key.as_deref();
    if args.end_overlap {
        let rotation = Rotation::end_overlap(at, old_key, now)?;
        let revocations = end(&client, &rotation, &grid, now)?;
        let (old, new, until) = (rotation.successor.old, rotation.successor.new, rotation.successor.until);
        return context.done(&Ended { grid: grid.id, old, new, until, revocations });
    }
    let rotation = Rotation::begin(at, old_key, now, args.overlap)?;
    tell(&client, &rotation.statement)?;
    let revoke_again = || revoke_again(&client, &rotation, &grid, now);
    let (renewed, revocations) = rotation.finish(at, &context.wallets()?, now, revoke_again)?;
    let report = Rotated {
        old: rotation.successor.old,
        new: rotation.successor.new,
        until: rotation.successor.until,
        root_key: data_dir.join(ROOT_KEY_FILE),
        old_root_key: former_root_key_path(&data_dir, &rotation.successor.old),
        renewed,
        revocations,
        invitations: to_be_made_again(&data_dir, rotation.successor.issued, now)?,
        grid: grid.id,
    };
    context.done(&report)
}

fn tell(client: &Client, statement: &SignedRevocation) -> Result<(), CliError> {
    let _: members::Revoked = client.post("/v1/grid/revocations", statement)?;
    Ok(())
}

/// Ends the time of older roots, after all is revoked again that would lapse with them; how many were.
fn end(client: &Client, rotation: &Rotation, grid: &GridFile, now: Time) -> Result<usize, CliError> {
    let revocations = revoke_again(client, rotation, grid, now)?;
    tell(client, &rotation.statement)?;
    Ok(revocations)
}

/// Lets the node revoke by the new root whom others have revoked; how many.
fn revoke_again(client: &Client, rotation: &Rotation, grid: &GridFile, now: Time) -> Result<usize, CliError> {
    let known: GridView = client.get("/v1/grid")?;
    let all = to_be_revoked_again(&known, &rotation.successor.new, now);
    for (subject, Again { revoked, keep_until, takes_back }) in &all {
        let statements = rotation.revoke_taking_back(grid, subject.clone(), *revoked, *keep_until)?;
        for statement in statements.iter().take(if *takes_back { 2 } else { 1 }) {
            tell(client, statement)?;
        }
    }
    Ok(all.len())
}

/// What the new root is to say of somebody who is revoked.
#[derive(Debug, PartialEq, Eq)]
struct Again {
    revoked: Time,
    keep_until: Time,
    takes_back: bool,
}

/// Whom others than the newest root have revoked, as far as that root has not done so for as long and as much. Admins are among them: what
/// they have revoked lapses with their old credentials, but whom they had made leads to the new root once they have joined again. Those
/// who have revoked somebody come last: as soon as the root revokes them, what they have revoked is forgotten.
fn to_be_revoked_again(known: &GridView, newest: &PublicKey, now: Time) -> Vec<(Subject, Again)> {
    let mut all: BTreeMap<&Subject, Again> = BTreeMap::new();
    for one in known.revocations.iter().filter(|one| one.author != *newest && one.keep_until > now) {
        let keep_until = one.keep_until.min(Time::MAX);
        let again = all.entry(&one.subject).or_insert(Again { revoked: one.revoked, keep_until, takes_back: false });
        again.revoked = again.revoked.min(one.revoked);
        again.keep_until = again.keep_until.max(keep_until);
        again.takes_back |= one.takes_back;
    }
    for own in known.revocations.iter().filter(|one| one.author == *newest) {
        let is_said = |again: &Again| own.keep_until >= again.keep_until && (own.takes_back || !again.takes_back);
        if all.get(&own.subject).is_some_and(is_said) {
            all.remove(&own.subject);
        }
    }
    let authors: BTreeSet<Subject> = known.revocations.iter().map(|one| Subject::Key(one.author)).collect();
    let (last, first): (Vec<_>, Vec<_>) = all.into_iter().partition(|(subject, _)| authors.contains(*subject));
    first.into_iter().chain(last).map(|(subject, again)| (subject.clone(), again)).collect()
}

/// The invitations from this data directory that lead to an older root.
fn to_be_made_again(data_dir: &Path, rotated: Time, now: Time) -> Result<Vec<Invited>, CliError> {
    let list = IssuedList::load(data_dir)?;
    let is_old = |issued: &&Issued| issued.issued <= rotated && issued.expires > now;
    let old = list.entries().iter().filter(is_old);
    let invited = old.map(|issued| Invited {
        role: issued.role,
        name: issued.name.clone(),
        fingerprint: issued.subject.key().map(PublicKey::fingerprint).unwrap_or_default(),
        expires: issued.expires,
    });
    Ok(invited.collect())
}

#[derive(Serialize)]
struct Invited {
    role: Role,
    name: String,
    fingerprint: String,
    expires: Time,
}

/// A root key that was followed by another.
#[derive(Serialize)]
struct Rotated {
    grid: String,
    old: PublicKey,
    new: PublicKey,
    until: Time,
    root_key: PathBuf,
    old_root_key: PathBuf,
    #[serde(serialize_with = "paths")]
    renewed: Vec<Renewed>,
    revocations: usize,
    invitations: Vec<Invited>,
}

fn paths<S: serde::Serializer>(renewed: &[Renewed], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(renewed.iter().map(|renewed| &renewed.path))
}

impl Report for Rotated {
    fn text(&self, look: &Look) -> String {
        let path = |path: &Path| safe(&path.display().to_string());
        let until = format_time(self.until, &look.zone);
        let mut text = format!(
            "root key {} of grid {} is followed by {}; other nodes learn of it within seconds\n",
            self.old.fingerprint(),
            self.grid,
            self.new.fingerprint()
        );
        text.push_str(&format!(
            "  new key    {}: who has it decides who belongs to the grid; keep a copy offline\n",
            path(&self.root_key)
        ));
        text.push_str(&format!(
            "  old key    {}, unless it is elsewhere: keep it offline until {until}, then delete it\n",
            path(&self.old_root_key)
        ));
        for renewed in &self.renewed {
            text.push_str(&format!("  renewed    {} {}\n", renewed.role, path(&renewed.path)));
        }
        text.push_str(&format!(
            "until {until} credentials count that lead to the old key, and from then on at no site any more; kolo grid rotate-root \
             --end-overlap ends it at once\n"
        ));
        text.push_str(&revoked_again(self.revocations));
        if !self.invitations.is_empty() {
            text.push_str("invited from here under an old key; who came by one joins again with a new token (kolo grid invite):\n");
        }
        for invited in &self.invitations {
            let name = if invited.name.is_empty() { "-".to_owned() } else { safe(&invited.name) };
            text.push_str(&format!("  {} {name} ({})\n", invited.role, invited.fingerprint));
        }
        text.push_str(
            "next: restart the node here, so that it shows its new credential. Invite admins first: they invite again whom they had invited\n",
        );
        text
    }
    fn ids(&self) -> Vec<String> {
        vec![self.new.to_string()]
    }
}

/// A line about those whom the new root has revoked as well, if any.
fn revoked_again(count: usize) -> String {
    if count == 0 {
        String::new()
    } else {
        format!("revoked by the new key as well: {count}, as kolo grid show lists them\n")
    }
}

/// A root key that counts no more.
#[derive(Serialize)]
struct Ended {
    grid: String,
    old: PublicKey,
    new: PublicKey,
    until: Time,
    revocations: usize,
}

impl Report for Ended {
    fn text(&self, look: &Look) -> String {
        let mut text = format!(
            "what leads to root key {} of grid {}, or to an older one, counts until {}; other nodes learn of it within seconds. {} follows it\n",
            self.old.fingerprint(),
            self.grid,
            format_time(self.until, &look.zone),
            self.new.fingerprint()
        );
        text.push_str(&revoked_again(self.revocations));
        text
    }
    fn ids(&self) -> Vec<String> {
        vec![self.new.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use broker::{ids::SiteId, time::Span, trust::closed_grid_id};
    use kolo_api::members::RevocationView;
    use kolo_trust::load_or_create_key;

    use super::*;
    use crate::{
        output::OutputFormat,
        samples::{printed, serve},
    };

    const UNTIL: Time = Time(1_763_712_000);

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    /// The key of the number `of` is revoked.
    fn by(author: PublicKey, of: u8, keep_until: i64, takes_back: bool) -> RevocationView {
        let (subject, keep_until) = (Subject::Key(key(of)), Time(keep_until));
        RevocationView { subject, revoked: Time(50), keep_until, author, takes_back }
    }

    fn knowing(revocations: Vec<RevocationView>) -> GridView {
        GridView {
            id: "lab-aaaa".to_owned(),
            form: "closed".to_owned(),
            root: None,
            roots: Vec::new(),
            rival: None,
            site: SiteId::new("s").unwrap(),
            members: Vec::new(),
            revocations,
        }
    }

    #[test]
    fn whom_anybody_else_has_revoked_the_newest_root_revokes_as_long_and_as_much() {
        let (old, newest, eva, ida) = (key(1), key(2), key(3), key(4));
        let known = knowing(vec![
            by(old, 3, 400, false),
            by(old, 10, 5_000, false),
            by(eva, 11, 200, true),
            by(ida, 11, 300, false),
            by(newest, 12, 900, false),
            by(eva, 13, 700, false),
            by(newest, 13, 900, false),
            by(old, 14, 700, true),
            by(newest, 14, 900, false),
            by(old, 15, 100, false),
        ]);
        let again = |of: u8, keep_until: i64, takes_back: bool| {
            let (revoked, keep_until) = (Time(50), Time(keep_until));
            (Subject::Key(key(of)), Again { revoked, keep_until, takes_back })
        };
        // Eva, who is revoked, comes behind those whom she has revoked.
        let expected = [again(10, 5_000, false), again(11, 300, true), again(14, 700, true), again(3, 400, false)];
        assert_eq!(to_be_revoked_again(&known, &newest, Time(100)), expected);
    }

    #[test]
    fn what_would_lapse_is_revoked_again_before_the_end_is_told() {
        let (directory, now) = (tempfile::tempdir().unwrap(), Time(1_000));
        let root = PublicKey::of(&load_or_create_key(&directory.path().join(ROOT_KEY_FILE)).unwrap());
        let grid = GridFile::new(closed_grid_id("lab", &root).unwrap(), Some(root), Vec::new());
        let rotation = Rotation::begin((&grid, directory.path()), None, now, Span(60)).unwrap();
        // It lapses before the old root does, which is about to end earlier.
        let known = serde_json::to_string(&knowing(vec![by(root, 30, 1_050, true)])).unwrap();
        let told = serde_json::to_string(&members::Revoked { added: true, revocations: 1 }).unwrap();
        let answers = [known, told.clone(), told.clone(), told].map(|answer| ("200 OK", answer));
        let (client, server) = serve(answers.into());
        assert_eq!(end(&client, &rotation, &grid, now).unwrap(), 1);
        let asked = server.join().unwrap();
        assert!(asked[0].starts_with("GET /v1/grid "), "{}", asked[0]);
        for (asked, expected) in asked[1..].iter().zip(["kolo-revocation/1", "take_back", "kolo-successor/1"]) {
            assert!(asked.starts_with("POST /v1/grid/revocations ") && asked.contains(expected), "{asked}");
            assert!(asked.contains(&rotation.successor.new.to_string()), "by the new root: {asked}");
        }
    }

    #[test]
    fn what_happens_and_until_when_is_said() {
        let invited =
            Invited { role: Role::Admin, name: "eva\u{1b}".to_owned(), fingerprint: "0303".to_owned(), expires: UNTIL };
        let rotated = Rotated {
            grid: "lab-aaaa".to_owned(),
            old: key(1),
            new: key(2),
            until: UNTIL,
            root_key: PathBuf::from("/d/grid-root.key"),
            old_root_key: PathBuf::from("/d/grid-root-0101010101010101.key"),
            renewed: vec![Renewed { role: Role::Site, path: PathBuf::from("/d/lab-aaaa.site.json") }],
            revocations: 3,
            invitations: vec![invited],
        };
        assert_eq!(printed(&rotated, OutputFormat::Quiet), format!("{}\n", "02".repeat(32)));
        let text = printed(&rotated, OutputFormat::Table);
        for expected in [
            "root key 0101010101010101 of grid lab-aaaa is followed by 0202020202020202",
            "  renewed    site /d/lab-aaaa.site.json\n",
            "until 2025-11-21 08:00:00+00:00 credentials count",
            "revoked by the new key as well: 3,",
            "  admin eva\\u{1b} (0303)\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
