//! Chains of credentials, made link by link as choices say, mostly almost right.
//!
//! The model is the list of what makes a chain worth something, one sentence a line; it looks at what was meant, not at
//! signatures or texts.

use broker::{
    time::{Span, Time},
    trust::{Chain, Credential, Limits, Role, Subject, chain::LINKS_MAX, testing},
};

use super::fixed::site;
use crate::{Input, Target};

/// Chains of credentials: their number, then of each link: other signer; site, key; grid, role, name, limits, invitation, issued,
/// expires.
pub const CHAIN: Target = Target { name: "chain", run, golden: Vec::new };

const NOW: Time = Time(1_000);
const NAMES: [&str; 4] = ["ann", "", "bob", "0123456789abcdef"];
const TIMES: [i64; 5] = [2_000, 1_001, 1_000, 3_000, 0];
const ROOT: u64 = 0;

/// A link as it was meant.
struct Link {
    credential: Credential,
    signer: u64,
    /// The number of the subject's key; none of a site.
    subject: Option<u64>,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut links: Vec<Link> = Vec::new();
    for _ in 0..input.below(6) {
        let signer = if input.below(8) == 1 {
            u64::from(input.below(4))
        } else {
            links.last().map_or(ROOT, |last| last.subject.unwrap_or(ROOT))
        };
        let (credential, subject) = some_credential(&mut input);
        links.push(Link { credential, signer, subject });
    }
    let chain = chain_of(&links);
    for (to_invitation, verified) in [
        (false, chain.verify(testing::GRID, &testing::public(ROOT), NOW)),
        (true, chain.verify_invitation(testing::GRID, &testing::public(ROOT), NOW)),
    ] {
        assert_eq!(verified.is_ok(), is_good(&links, to_invitation), "{verified:?}");
        if let (Ok(holder), Some(last)) = (verified, links.last()) {
            let subjects = links.iter().map(|link| &link.credential.subject);
            assert!(holder.lineage.iter().eq(subjects), "{:?}", holder.lineage);
            assert_eq!((holder.role, holder.expires), (last.credential.role, last.credential.expires));
            assert_eq!(holder.limits, last.credential.limits);
            check_changed(&chain, &mut input);
        }
    }
    let written = serde_json::to_string(&chain).expect("a chain can be written");
    assert_eq!(serde_json::from_str::<Chain>(&written).ok(), Some(chain));
}

fn some_credential(input: &mut Input<'_>) -> (Credential, Option<u64>) {
    let (of_site, number) = (input.below(4) == 1, u64::from(1 + input.below(4)));
    let subject = if of_site { Subject::Site(site("s")) } else { Subject::Key(testing::public(number)) };
    let limit = |input: &mut Input<'_>| [None, Some(1), Some(2), Some(9)][usize::from(input.below(4))];
    let credential = Credential {
        grid: if input.below(16) == 1 { "other" } else { testing::GRID }.to_owned(),
        subject,
        role: input.one_of(&[Role::Admin, Role::User, Role::Site]),
        name: input.one_of(&NAMES).to_owned(),
        limits: Limits {
            max_holds: limit(input),
            max_reach_s: limit(input).map(|reach| Span(u64::from(reach))),
            ..Limits::default()
        },
        is_invitation: input.flag(),
        issued: Time(if input.below(8) == 1 { -1 } else { 0 }),
        expires: Time(input.one_of(&TIMES)),
    };
    (credential, (!of_site).then_some(number))
}

fn chain_of(links: &[Link]) -> Chain {
    let sign = |link: &Link| testing::sign(&link.credential, &testing::key(link.signer));
    let Some((first, rest)) = links.split_first() else {
        return serde_json::from_str("[]").expect("a chain of nothing");
    };
    rest.iter().fold(Chain::of_root(sign(first)), |chain, link| chain.with(sign(link)))
}

fn is_good(links: &[Link], to_invitation: bool) -> bool {
    let signers_fit = links.iter().enumerate().all(|(index, link)| match index {
        0 => link.signer == ROOT,
        _ => links[index - 1].subject == Some(link.signer),
    });
    let each_is_good = links.iter().all(|Link { credential, subject, .. }| {
        let is_member = !credential.is_invitation;
        let takes_site = credential.role == Role::Site && is_member;
        credential.grid == testing::GRID
            && credential.expires > NOW
            && credential.issued >= Time::ZERO
            && credential.name != "0123456789abcdef"
            && (!credential.name.is_empty() || !is_member)
            && takes_site == subject.is_none()
    });
    let pairs_are_good = links.windows(2).all(|pair| may_follow(&pair[0].credential, &pair[1].credential));
    let ends_well = links.last().is_some_and(|last| last.credential.is_invitation == to_invitation);
    links.len() <= LINKS_MAX && signers_fit && each_is_good && pairs_are_good && ends_well
}

fn may_follow(maker: &Credential, made: &Credential) -> bool {
    let may_make = if maker.is_invitation {
        !made.is_invitation && made.role == maker.role && (maker.name.is_empty() || made.name == maker.name)
    } else {
        maker.role == Role::Admin && made.role != Role::Admin
    };
    let is_within = |made: Option<u64>, maker: Option<u64>| maker.is_none_or(|most| made.is_some_and(|it| it <= most));
    let holds = is_within(made.limits.max_holds.map(u64::from), maker.limits.max_holds.map(u64::from));
    let reach = is_within(made.limits.max_reach_s.map(|it| it.0), maker.limits.max_reach_s.map(|it| it.0));
    may_make && holds && reach && made.expires <= maker.expires
}

/// One byte of what was signed, of an author or of a signature is changed: then it is worth nothing.
fn check_changed(chain: &Chain, input: &mut Input<'_>) {
    let mut links = chain.links().to_vec();
    let index = usize::from(input.byte()) % links.len();
    let link = &mut links[index];
    let at = usize::from(input.byte());
    match input.below(3) {
        0 => {
            let at = at % (link.text.len() + 1);
            link.text.insert(at, ' ');
        }
        1 => {
            let mut bytes = *link.author.as_bytes();
            bytes[at % 32] ^= 1 << input.below(8);
            link.author = broker::trust::PublicKey::from_bytes(bytes);
        }
        _ => {
            let mut bytes = *link.signature.as_bytes();
            bytes[at % 64] ^= 1 << input.below(8);
            link.signature = broker::trust::Signature::from_bytes(bytes);
        }
    }
    let written = serde_json::to_value(&links).expect("links can be written");
    let changed: Chain = serde_json::from_value(written).expect("and read as a chain");
    assert!(changed.verify(testing::GRID, &testing::public(ROOT), NOW).is_err(), "changed, and still believed");
    assert!(
        changed.verify_invitation(testing::GRID, &testing::public(ROOT), NOW).is_err(),
        "changed, and still believed"
    );
}
