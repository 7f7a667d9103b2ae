//! Every rule of the gate, tripped one at a time.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    amount::Amount,
    cost::Cost,
    features::Images,
    host::{Host, Speed},
    ids::{HostId, RequestId, SeatNumber, ShapeNumber, SiteId},
    needs::{Lack, Need},
    plan::Place,
    protocol::{AttemptId, Grant, HoldRequest},
    request::{Request, RequestDocument},
    resources::{Amounts, Attributes, ResourceName},
    scale::Factor,
    shapes::ShapeDocument,
    time::{Millis, Span, Time, Window},
    traffic::Traffic,
    trust::{
        Authorization, Chain, Credential, Denial, Gate, Limits, OwnerPolicy, Permit, RequestStatement, Role, Rule,
        SignedRevocation, Subject, Trust, testing,
    },
    variant::Variant,
};

fn site(name: &str) -> SiteId {
    SiteId::new(name).unwrap()
}

fn cpu(amount: u64) -> Amounts {
    Amounts::from([(ResourceName::new("cpu").unwrap(), Amount(amount))])
}

fn host_id(name: &str) -> HostId {
    HostId::new(name).unwrap()
}

/// Seats on these hosts for 100 s from 2,500 on.
fn grants(hosts: &[&str], amount: u64) -> Vec<Grant> {
    let window = Window::starting(Time(2_500), Span(100));
    let grant = |(seat, name): (u32, &&str)| {
        let place = Place::Host(host_id(name));
        Grant { seat: SeatNumber(seat), place, window, amounts: cpu(amount), agreed: Default::default() }
    };
    (0..).zip(hosts).map(grant).collect()
}

/// A hold and everything around it. As made, it is admitted.
#[derive(Clone)]
struct Case {
    now: Time,
    from: SiteId,
    attempt: AttemptId,
    participants: Vec<SiteId>,
    variant: Variant,
    grants: Vec<Grant>,
    request: RequestDocument,
    statement: RequestStatement,
    /// The number of the key that signs the statement.
    signer: u64,
    user: Option<Chain>,
    entry_point: Option<Chain>,
    trust: Trust,
    policy: OwnerPolicy,
    /// What the owner lets commands have, where requests are refused for that.
    allowed: Option<(Vec<Need>, Images)>,
    revocations: Vec<SignedRevocation>,
    /// Changes what was signed, afterwards.
    tamper: fn(&mut Authorization),
}

/// User 1 (`ada`) asks through site `e`, at time 1,000, for two hosts for 100 s from 2,000 to 3,000 on.
fn case() -> Case {
    let text = r#"{"hosts":2,"duration":100,"earliest":2000,"latest":3000,"per_host":{"cpu":100},"total":{"cpu":1000},
        "attributes":{"arch":"x86_64"},"candidates":["h1","h2","h3"]}"#;
    let request: RequestDocument = serde_json::from_str(text).unwrap();
    let checked: Request = request.clone().try_into().unwrap();
    let id = RequestId::new("r").unwrap();
    let statement = testing::statement(&site("e"), &id, &checked);
    Case {
        now: Time(1_000),
        from: site("e"),
        attempt: AttemptId { entry_point: site("e"), request: id, attempt: 1 },
        participants: vec![site("here"), site("there")],
        variant: Variant::default(),
        grants: grants(&["h1", "h2"], 500),
        request,
        statement: RequestStatement { issued: Time(990), expires: Time(5_000), ..statement },
        signer: 1,
        user: Some(testing::member(Subject::Key(testing::public(1)), Role::User, "ada")),
        entry_point: Some(testing::member(Subject::Site(site("e")), Role::Site, "lab")),
        trust: testing::closed(),
        policy: OwnerPolicy::default(),
        allowed: None,
        revocations: Vec::new(),
        tamper: |_| {},
    }
}

impl Case {
    fn hold(&self) -> HoldRequest {
        let statement =
            RequestStatement { request: self.request.clone().try_into().unwrap(), ..self.statement.clone() };
        let mut authorization = Authorization {
            request: testing::sign(&statement, &testing::key(self.signer)),
            user: self.user.clone(),
            entry_point: self.entry_point.clone(),
        };
        (self.tamper)(&mut authorization);
        HoldRequest {
            variant: self.variant,
            attempt: self.attempt.clone(),
            grants: self.grants.clone(),
            participants: self.participants.clone(),
            hold_for: Millis(1_000),
            may_substitute: false,
            authorization: Arc::new(authorization),
        }
    }

    /// All seats have this window.
    fn at(&mut self, start: i64, length: u64) {
        let window = Window::starting(Time(start), Span(length));
        self.grants.iter_mut().for_each(|grant| grant.window = window);
    }

    /// Host `h2`, which is half as fast as the reference host, takes twice as long for 100 s of work.
    fn asks_for_work(&mut self) {
        (self.request.duration, self.request.work) = (None, Some(100));
        self.grants[1].window.end = Time(2_700);
    }

    /// Hosts send to each other.
    fn talk(&mut self) {
        self.request.traffic = Some(Traffic { mbps: Amount(1), compute: Traffic::COMPUTE_MAX });
    }

    /// One host for 50 s; or what is held, as the second shape.
    fn asks_for_shapes(&mut self) {
        let RequestDocument { hosts, duration, .. } = self.request;
        let shape = |hosts, duration| ShapeDocument { hosts, duration, ..ShapeDocument::default() };
        self.request.shapes = Some(vec![shape(1, Some(50)), shape(hosts, duration)]);
        (self.request.hosts, self.request.duration) = (0, None);
        self.variant.shape = ShapeNumber(1);
    }

    /// What is held is twice as much for half as long.
    fn asks_for_scale(&mut self) {
        self.request.scale = serde_json::from_str("[500,2000]").ok();
        self.variant.scale = Factor::of_thousandths(2000);
        self.at(2_500, 50);
        self.grants.iter_mut().for_each(|grant| grant.amounts = cpu(1_000));
    }

    /// Commands are run, with the network, where the owner gives this.
    fn asks_for_network(&mut self, given: &[Need]) {
        self.request.needs = [Need::Run, Need::Network].into();
        self.allowed = Some((given.to_vec(), Images::default()));
    }

    /// Hosts are taken whole.
    fn asks_for_whole_hosts(&mut self) {
        self.request.exclusive = true;
        self.grants.iter_mut().for_each(|grant| grant.amounts = cpu(4_000));
    }

    fn gate(&self) -> Gate {
        let mut gate = Gate::new(self.trust.clone(), self.policy.clone());
        if let Some((needs, images)) = self.allowed.clone() {
            gate.set_allowed(needs, images);
        }
        for revocation in &self.revocations {
            gate.revoke(revocation, self.now).unwrap();
        }
        gate
    }

    /// What a new gate says, and that it says the same again from what it remembers.
    fn admit(&self) -> Result<Permit, Denial> {
        let arch = Attributes::from([("arch".to_owned(), "x86_64".to_owned())]);
        let host = |name: &str, attributes| Host {
            id: host_id(name),
            capacity: cpu(4_000),
            attributes,
            speed: Speed::try_from(if name == "h2" { 500 } else { 1_000 }).unwrap(),
            tariff: Default::default(),
        };
        let hosts =
            [host("h1", arch.clone()), host("h2", arch.clone()), host("h3", Attributes::new()), host("h4", arch)];
        let mut gate = self.gate();
        let hold = self.hold();
        let mut admit =
            || gate.admit(self.now, (&self.from, &site("here")), &hold, |id| hosts.iter().find(|host| host.id == *id));
        let first = admit();
        assert_eq!(first, admit());
        first
    }
}

fn user_key() -> Subject {
    Subject::Key(testing::public(1))
}

fn chain(credential: &Credential) -> Chain {
    Chain::of_root(testing::sign(credential, &testing::key(0)))
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

type Change = fn(&mut Case);

/// Each change trips exactly the rule beside it.
const SIGNED: &[(Rule, Change)] = &[
    (Rule::Understood, |case| {
        case.tamper = |authorization| {
            let later = authorization.request.text.replace("request/1", "request/99");
            authorization.request = testing::sign_text(later, &testing::key(1));
        };
    }),
    (Rule::Understood, |case| {
        let later = testing::sign(&testing::credential(user_key(), Role::User, "ada"), &testing::key(0)).text;
        let later = later.replace(r#""role""#, r#""rank":1,"role""#);
        case.user = Some(Chain::of_root(testing::sign_text(later, &testing::key(0))));
    }),
    (Rule::Signature, |case| case.tamper = |signed| signed.request.text = signed.request.text.replace("3000", "9000")),
    (Rule::Signature, |case| case.tamper = |signed| signed.request.author = testing::public(2)),
    (Rule::Grid, |case| case.statement.grid = "other".to_owned()),
    (Rule::Grid, |case| {
        let foreign = Credential { grid: "other".to_owned(), ..testing::credential(user_key(), Role::User, "ada") };
        case.user = Some(chain(&foreign));
    }),
    (Rule::EntryPoint, |case| case.from = site("thief")),
    (Rule::EntryPoint, |case| case.attempt.entry_point = site("thief")),
    (Rule::EntryPoint, |case| case.statement.entry_point = site("elsewhere")),
    (Rule::RequestId, |case| case.attempt.request = RequestId::new("r2").unwrap()),
    (Rule::Expired, |case| case.statement.expires = Time(1_000)),
    (Rule::Expired, |case| {
        let old = Credential { expires: Time(1_000), ..testing::credential(user_key(), Role::User, "ada") };
        case.user = Some(chain(&old));
    }),
    (Rule::Credential, |case| case.user = None),
    (Rule::Credential, |case| case.entry_point = None),
    (Rule::Credential, |case| case.signer = 2),
    (Rule::Credential, |case| {
        case.entry_point = Some(testing::member(Subject::Site(site("other")), Role::Site, "lab"));
    }),
    (Rule::Credential, |case| {
        let own = testing::sign(&testing::credential(user_key(), Role::User, "ada"), &testing::key(1));
        case.user = Some(Chain::of_root(own));
    }),
    (Rule::Credential, |case| {
        case.user =
            Some(chain(&Credential { is_invitation: true, ..testing::credential(user_key(), Role::User, "ada") }));
    }),
    (Rule::Role, |case| case.user = case.entry_point.clone()),
    (Rule::Role, |case| case.entry_point = case.user.clone()),
    (Rule::Revoked, |case| case.revocations.push(testing::revoke(user_key()))),
    (Rule::Revoked, |case| case.revocations.push(testing::revoke(Subject::Site(site("e"))))),
    (Rule::Revoked, |case| {
        let admin = testing::credential(Subject::Key(testing::public(7)), Role::Admin, "eva");
        let ada = testing::credential(user_key(), Role::User, "ada");
        case.user = Some(chain(&admin).with(testing::sign(&ada, &testing::key(7))));
        case.revocations.push(testing::revoke(Subject::Key(testing::public(7))));
    }),
];

const ASKED: &[(Rule, Change)] = &[
    (Rule::Shape, |case| case.variant.shape = ShapeNumber(1)),
    (Rule::Shape, |case| {
        case.asks_for_shapes();
        case.variant.shape = ShapeNumber(2);
    }),
    (Rule::HostCount, |case| {
        // What the second shape asks for, under the name of the first.
        case.asks_for_shapes();
        case.variant.shape = ShapeNumber(0);
    }),
    (Rule::Duration, |case| {
        case.asks_for_shapes();
        case.at(2_500, 50);
    }),
    (Rule::Total, |case| {
        case.asks_for_shapes();
        case.grants[0].amounts = cpu(501);
    }),
    (Rule::Scale, |case| case.variant.scale = Factor::of_thousandths(1001)),
    (Rule::Scale, |case| {
        case.asks_for_scale();
        case.variant.scale = Factor::of_thousandths(2001);
    }),
    (Rule::Scale, |case| {
        // What is held, under the name of a factor that is not allowed.
        case.asks_for_scale();
        case.request.scale = serde_json::from_str("[500,1999]").ok();
    }),
    (Rule::Total, |case| {
        case.asks_for_scale();
        case.variant.scale = Factor::ONE;
    }),
    (Rule::Total, |case| {
        case.asks_for_scale();
        case.grants[0].amounts = cpu(1_001);
    }),
    (Rule::PerHost, |case| {
        case.asks_for_scale();
        case.grants[0].amounts = cpu(199);
    }),
    (Rule::Duration, |case| {
        case.asks_for_scale();
        case.at(2_500, 100);
    }),
    (Rule::Duration, |case| case.at(2_500, 101)),
    (Rule::Window, |case| case.at(1_999, 100)),
    (Rule::Window, |case| case.at(3_001, 100)),
    (Rule::Window, |case| {
        case.request.earliest = None;
        case.statement.issued = Time(2_600);
        case.at(2_539, 100);
    }),
    (Rule::HostCount, |case| {
        case.grants = grants(&["h1", "h2", "h4"], 100);
    }),
    (Rule::Total, |case| case.grants[0].amounts = cpu(501)),
    (Rule::Total, |case| {
        case.grants[0].amounts.insert(ResourceName::new("gpu").unwrap(), Amount(1));
    }),
    (Rule::Budget, |case| {
        case.request.budget = Some(Cost(9));
        case.grants.iter_mut().for_each(|grant| grant.agreed.cost = Cost(5));
    }),
    (Rule::PerHost, |case| case.grants[1].amounts = cpu(99)),
    (Rule::PerHost, |case| case.grants[1].amounts = Amounts::new()),
    (Rule::HostCount, |case| case.grants[1].seat = SeatNumber(2)),
    (Rule::HostCount, |case| case.grants[1].place = case.grants[0].place.clone()),
    (Rule::Candidates, |case| case.grants[0].place = Place::Host(host_id("h4"))),
    (Rule::Candidates, |case| case.request.candidates = Some(["there/h1", "h2"].map(host_id).to_vec())),
    (Rule::Attributes, |case| case.grants[0].place = Place::Host(host_id("h3"))),
    (Rule::Window, |case| {
        // As long as the other, and later.
        case.grants[1].window = Window::starting(Time(2_501), Span(100));
    }),
    (Rule::Duration, |case| {
        case.asks_for_work();
        case.grants[1].window.end = Time(2_699);
    }),
    (Rule::Duration, |case| {
        case.asks_for_work();
        case.grants[0].window.end = Time(2_700);
    }),
    (Rule::Deadline, |case| {
        case.asks_for_work();
        case.request.deadline = Some(Time(2_699));
    }),
    (Rule::Duration, |case| {
        case.asks_for_work();
        case.talk();
    }),
    (Rule::Duration, |case| {
        case.asks_for_work();
        case.talk();
        case.grants.iter_mut().for_each(|grant| grant.window.end = Time(2_699));
    }),
    (Rule::SpeedMin, |case| case.request.speed_min = Some(Speed::try_from(501).unwrap())),
    (Rule::SitesMax, |case| case.request.sites_max = Some(1)),
    (Rule::Exclusive, |case| {
        case.asks_for_whole_hosts();
        case.grants[0].amounts = cpu(3_999);
    }),
    (Rule::Exclusive, |case| {
        case.asks_for_whole_hosts();
        case.grants[0].amounts.insert(ResourceName::new("gpu").unwrap(), Amount(1));
    }),
];

/// The user has joined with an invitation that leaves the name to whoever joins.
fn invited_as_anybody(case: &mut Case) {
    let user = testing::credential(Subject::Key(testing::public(7)), Role::User, "");
    let invitation = chain(&Credential { is_invitation: true, ..user });
    case.user =
        Some(invitation.with(testing::sign(&testing::credential(user_key(), Role::User, "ada"), &testing::key(7))));
}

fn behind(name: &str) -> String {
    format!("{name}@{}", testing::public(7).fingerprint())
}

const OWNED: &[(Rule, Change)] = &[
    (Rule::Needs, |case| case.asks_for_network(&[])),
    (Rule::Needs, |case| {
        case.request.needs = [Need::Run].into();
        let image = "a:1".to_owned().try_into().unwrap();
        case.allowed = Some((vec![Need::Run], Images::of([image].into())));
    }),
    (Rule::OwnerAllow, |case| case.policy.allow = Some(names(&["bob"]))),
    (Rule::OwnerAllow, |case| {
        invited_as_anybody(case);
        case.policy.allow = Some(names(&["ada"]));
    }),
    (Rule::OwnerDeny, |case| {
        invited_as_anybody(case);
        case.policy.deny = names(&[&behind("who it was before")]);
    }),
    (Rule::OwnerDeny, |case| {
        invited_as_anybody(case);
        case.policy.deny = names(&[&testing::public(7).fingerprint()]);
    }),
    (Rule::OwnerDeny, |case| case.policy.deny = names(&["ada"])),
    (Rule::OwnerDeny, |case| case.policy.deny = names(&[&testing::public(1).fingerprint()])),
    (Rule::OwnerDeny, |case| case.policy.deny = names(&[&testing::public(1).to_string()])),
    (Rule::OwnerDeny, |case| {
        case.policy.deny = names(&["ada"]);
        case.policy.spans = until(2_599);
    }),
    (Rule::OwnerMaxDuration, |case| case.policy.max_duration = Some(Span(99))),
    (Rule::OwnerMaxReach, |case| case.policy.max_reach = Some(Span(1_599))),
    (Rule::OwnerHours, |case| case.policy.spans = until(2_599)),
    (Rule::MaxReach, |case| case.policy.limits.max_reach_s = Some(Span(1_599))),
    (Rule::MaxReach, |case| {
        let limits = Limits { max_reach_s: Some(Span(1_599)), ..Limits::default() };
        case.user = Some(chain(&Credential { limits, ..testing::credential(user_key(), Role::User, "ada") }));
    }),
];

#[test]
fn what_an_owner_does_not_give_is_refused_by_its_name() {
    let mut asked = case();
    asked.request.needs = [Need::Run].into();
    assert!(asked.admit().is_ok(), "nothing is known of what is given");
    asked.asks_for_network(&[Need::Run, Need::Network]);
    assert!(asked.admit().is_ok());
    asked.asks_for_network(&[Need::Run]);
    let denial = asked.admit().unwrap_err();
    assert_eq!(
        denial.to_string(),
        "refused by rule `needs`: the request needs network, which the owner does not give now"
    );
    let needs = Request::try_from(asked.request).unwrap().demand().needs().clone();
    assert_eq!(denial.lack_of(&needs), Some(Lack::Need(Need::Network)));
    assert_eq!(Denial::new(Rule::Draining, denial.detail).lack_of(&needs), None);
}

/// The owner offers everything until then.
fn until(end: i64) -> Option<std::sync::Arc<crate::offered::Spans>> {
    Some(std::sync::Arc::new(vec![(0, end)].try_into().unwrap()))
}

#[test]
fn each_change_trips_exactly_its_rule() {
    let good = case().admit().unwrap();
    assert_eq!((good.user, good.name.as_str()), (testing::public(1), "ada"));
    let mut seen = BTreeSet::new();
    for (index, (rule, change)) in SIGNED.iter().chain(ASKED).chain(OWNED).enumerate() {
        let mut changed = case();
        change(&mut changed);
        match changed.admit() {
            Err(denial) => assert_eq!(denial.rule, *rule, "change {index}: {denial}"),
            Ok(_) => panic!("change {index} is admitted, expected {rule}"),
        }
        seen.insert(*rule);
    }
    // The ledger checks what is beside what stands, and its tests whether the site is being emptied, knows its owner's work,
    // believes its clock, and has room on its disk.
    let of_ledger = [
        Rule::UserShare,
        Rule::MaxHolds,
        Rule::MaxReservations,
        Rule::MaxHostHours,
        Rule::MaxCredits,
        Rule::SiteShare,
        Rule::LapsedHolds,
        Rule::Draining,
        Rule::OwnWork,
        Rule::Clock,
        Rule::Disk,
        Rule::OwnQueue,
    ];
    let missing: Vec<_> = Rule::ALL.iter().filter(|rule| !seen.contains(rule) && !of_ledger.contains(rule)).collect();
    assert!(missing.is_empty(), "no change trips {missing:?}");
}

#[test]
fn at_the_edge_of_every_rule_a_hold_is_admitted() {
    let edges: &[Change] = &[
        Case::asks_for_shapes,
        Case::asks_for_scale,
        |case| {
            case.asks_for_scale();
            case.asks_for_work();
            case.grants[1].window.end = Time(2_600);
        },
        |case| case.at(2_000, 100),
        |case| case.at(3_000, 100),
        |case| case.statement.expires = Time(1_001),
        |case| case.grants.truncate(1),
        |case| case.policy.max_duration = Some(Span(100)),
        |case| case.policy.max_reach = Some(Span(1_600)),
        |case| case.policy.limits.max_reach_s = Some(Span(1_600)),
        |case| case.policy.spans = until(2_600),
        |case| case.policy.allow = Some(names(&["ada"])),
        |case| {
            invited_as_anybody(case);
            (case.policy.allow, case.policy.deny) = (Some(names(&[&behind("ada")])), names(&["ada"]));
        },
        |case| case.policy.allow = Some(names(&[&testing::public(1).fingerprint()])),
        |case| case.policy.deny = names(&["bob"]),
        |case| case.user = Some(testing::member(user_key(), Role::Admin, "eva")),
        |case| case.revocations.push(testing::revoke(Subject::Key(testing::public(5)))),
        |case| {
            case.asks_for_work();
            case.request.deadline = Some(Time(2_700));
        },
        // Both as long as the slower one needs, or as one elsewhere does.
        |case| {
            case.asks_for_work();
            case.talk();
            case.grants[0].window.end = Time(2_700);
        },
        |case| {
            case.asks_for_work();
            case.talk();
            case.grants.iter_mut().for_each(|grant| grant.window.end = Time(2_950));
        },
        Case::asks_for_whole_hosts,
        |case| case.request.sites_max = Some(2),
        |case| case.request.speed_min = Some(Speed::try_from(500).unwrap()),
        |case| case.request.candidates = Some(["here/h1", "h2"].map(host_id).to_vec()),
        // A host that the site does not know is the ledger's to refuse.
        |case| case.request.candidates = None,
        |case| {
            case.trust = testing::open_gate().trust().clone();
            (case.user, case.entry_point) = (None, None);
        },
    ];
    for (index, change) in edges.iter().enumerate() {
        let mut changed = case();
        change(&mut changed);
        assert!(changed.admit().is_ok(), "change {index}: {:?}", changed.admit());
    }
}

#[test]
fn in_an_open_grid_a_user_is_a_key_and_nobody_is_revoked() {
    let mut open = case();
    open.trust = testing::open_gate().trust().clone();
    open.user = None;
    let permit = open.admit().unwrap();
    assert_eq!(permit.name, testing::public(1).fingerprint());
    assert_eq!(permit.limits, OwnerPolicy::default().limits);
    assert!(open.gate().revoke(&testing::revoke(user_key()), Time(0)).is_err());
    assert!(open.gate().check_member(&site("anybody"), None, Time(0)).is_ok());
}

#[test]
fn what_is_remembered_still_expires_and_can_still_be_revoked() {
    let mut changed = case();
    let credential = Credential { expires: Time(1_500), ..testing::credential(user_key(), Role::User, "ada") };
    changed.user = Some(chain(&credential));
    let (hold, mut gate) = (changed.hold(), changed.gate());
    let rule_at = |gate: &mut Gate, now| {
        gate.admit(Time(now), (&site("e"), &site("here")), &hold, |_| None).map_err(|no| no.rule)
    };
    assert!(rule_at(&mut gate, 1_000).is_ok() && rule_at(&mut gate, 1_499).is_ok());
    assert_eq!(rule_at(&mut gate, 1_500), Err(Rule::Expired));
    gate.revoke(&testing::revoke(Subject::Site(site("e"))), Time(1_000)).unwrap();
    assert_eq!(rule_at(&mut gate, 1_000), Err(Rule::Revoked));
}

#[test]
fn a_limit_of_the_credential_goes_before_the_owners() {
    let mut changed = case();
    changed.policy.limits = Limits { max_holds: Some(64), max_host_hours: Some(9), ..Limits::default() };
    let limits = Limits { max_holds: Some(2), max_reservations: Some(3), ..Limits::default() };
    changed.user = Some(chain(&Credential { limits, ..testing::credential(user_key(), Role::User, "ada") }));
    let permitted = changed.admit().unwrap().limits;
    let expected =
        Limits { max_holds: Some(2), max_reservations: Some(3), max_host_hours: Some(9), ..Limits::default() };
    assert_eq!(permitted, expected);
}

#[test]
fn an_entry_point_hears_the_same_when_a_request_arrives() {
    let accepted = case();
    let signed = accepted.hold().authorization.request.clone();
    let mut gate = accepted.gate();
    let mut check = |entry_point: &str, user: Option<&Chain>| {
        gate.check_submission(Time(1_000), &site(entry_point), &signed, user).map_err(|denial| denial.rule)
    };
    let permit = check("e", accepted.user.as_ref()).unwrap();
    assert_eq!((permit.name.as_str(), permit.statement.id.as_str()), ("ada", "r"));
    assert_eq!(check("other", accepted.user.as_ref()), Err(Rule::EntryPoint));
    assert_eq!(check("e", None), Err(Rule::Credential));
}
