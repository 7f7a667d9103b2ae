//! `kolo grid rotate-root`: lets a new root key follow the one of the grid, and lets the node here tell the others.
//!
//! Invariant: the node has the statement on disk before the new key takes the old one's place, and an interrupted command goes on with the
//! same new key.

use std::path::{Path, PathBuf};

use broker::{
    time::Time,
    trust::{PublicKey, Role},
};
use kolo_api::members::{self, GridView};
use kolo_text::{safe::safe, time::format_time};
use kolo_trust::{GridFile, Issued, IssuedList, ROOT_KEY_FILE, Renewed, Rotation, former_root_key_path};
use serde::Serialize;

use super::{closed_grid, invite::issuer};
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
        let _: members::Revoked = client.post("/v1/grid/revocations", &rotation.statement)?;
        let (old, new, until) = (rotation.successor.old, rotation.successor.new, rotation.successor.until);
        return context.done(&Ended { grid: grid.id, old, new, until });
    }
    let rotation = Rotation::begin(at, old_key, now, args.overlap)?;
    let _: members::Revoked = client.post("/v1/grid/revocations", &rotation.statement)?;
    let renewed = rotation.finish(at, &context.wallets()?, now)?;
    let revocations = revoke_again(context, &client, &grid)?;
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

/// Signs with the new root what older ones have revoked for longer than they count; how many.
fn revoke_again(context: &Context, client: &Client, grid: &GridFile) -> Result<usize, CliError> {
    let known: GridView = client.get("/v1/grid")?;
    let issuer = issuer(context, grid)?;
    let mut count = 0;
    for one in &known.revocations {
        let root = known.roots.iter().find(|root| root.key == one.author);
        let Some(until) = root.and_then(|root| root.until) else { continue };
        if one.keep_until <= until {
            continue;
        }
        let again = issuer.revoke_taking_back(grid, one.subject.clone(), one.revoked, one.keep_until)?;
        for statement in again.iter().take(if one.takes_back { 2 } else { 1 }) {
            let _: members::Revoked = client.post("/v1/grid/revocations", statement)?;
        }
        count += 1;
    }
    Ok(count)
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

/// A root key that counts no more.
#[derive(Serialize)]
struct Ended {
    grid: String,
    old: PublicKey,
    new: PublicKey,
    until: Time,
}

impl Report for Ended {
    fn text(&self, look: &Look) -> String {
        format!(
            "what leads to root key {} of grid {}, or to an older one, counts until {}; other nodes learn of it within seconds. {} follows it\n",
            self.old.fingerprint(),
            self.grid,
            format_time(self.until, &look.zone),
            self.new.fingerprint()
        )
    }
    fn ids(&self) -> Vec<String> {
        vec![self.new.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    const UNTIL: Time = Time(1_763_712_000);

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
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
            revocations: 0,
            invitations: vec![invited],
        };
        assert_eq!(printed(&rotated, OutputFormat::Quiet), format!("{}\n", "02".repeat(32)));
        let text = printed(&rotated, OutputFormat::Table);
        for expected in [
            "root key 0101010101010101 of grid lab-aaaa is followed by 0202020202020202",
            "  renewed    site /d/lab-aaaa.site.json\n",
            "until 2025-11-21 08:00:00+00:00 credentials count",
            "  admin eva\\u{1b} (0303)\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
