//! What a request without a budget may cost: nothing that its user has not agreed to.
//!
//! Invariant: where the node knows of hosts with prices, a request goes out with a budget: the one that the user has given, by flag, in the environment
//! or in the user's file, or agreed to when asked, else none at all (0).

use std::{
    env,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use broker::{
    cost::Cost,
    request::{Request, RequestDocument},
};
use kolo_api::plan::LivePlan;
use kolo_text::{
    credits::parse_credits,
    document::{self, DocumentError, Syntax},
    words::counted,
};
use serde::Deserialize;
use ureq::http::StatusCode;

use super::{client::Client, error::CliError};

/// The environment variable for the budget of requests that have none.
const BUDGET_VARIABLE: &str = "KOLO_BUDGET";
/// The file in the user's directory that has one, too.
const USER_FILE: &str = "user.toml";

/// What a user says once for all requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UserFile {
    /// The budget of requests that have none, in credits.
    budget: Option<String>,
}

/// The budget of requests that have none: that of the environment, else that of the file in the user's directory.
///
/// # Errors
/// [`CliError`] that names the variable, or file, line and key.
pub fn usual_budget(user_dir: Option<PathBuf>) -> Result<Option<Cost>, CliError> {
    let text = env::var(BUDGET_VARIABLE).ok().filter(|text| !text.is_empty());
    match text {
        Some(text) => parsed(&text).map(Some),
        None => user_dir.map_or(Ok(None), |directory| budget_of_file(&directory.join(USER_FILE))),
    }
}

fn parsed(text: &str) -> Result<Cost, CliError> {
    parse_credits(text).map_err(|error| CliError::Usage(format!("{BUDGET_VARIABLE}: {error}")))
}

fn budget_of_file(file: &Path) -> Result<Option<Cost>, CliError> {
    if !file.exists() {
        return Ok(None);
    }
    let UserFile { budget } = document::parse(file, &document::read_text(file)?, Syntax::Toml)?;
    let budget = budget.map(|text| parse_credits(&text)).transpose();
    budget.map_err(|error| DocumentError::about(file, "budget", error).into())
}

/// The request with a budget, where hosts have prices; `usual` is that of requests which have none.
///
/// # Errors
/// [`CliError`] when the user does not agree to the price, or cannot be asked.
pub fn with_budget(client: &Client, request: Request, usual: Option<Cost>) -> Result<Request, CliError> {
    agreed(client, request, usual, ask)
}

/// The same for a request that costs what its parts cost, which are priced one by one; none: it is priced itself.
///
/// # Errors
/// As there.
pub fn with_budget_of(
    client: &Client,
    request: Request,
    parts: Vec<Request>,
    usual: Option<Cost>,
) -> Result<Request, CliError> {
    if parts.is_empty() || usual.is_some() {
        return agreed(client, request, usual, ask);
    }
    let priced = parts.into_iter().map(|part| Ok(agreed(client, part, None, ask)?.budget()));
    let budgets = priced.collect::<Result<Option<Vec<Cost>>, CliError>>()?;
    budgets.map_or_else(|| Ok(request.clone()), |budgets| limited(request.clone(), budgets.into_iter().sum()))
}

/// Planned requests with a budget, where hosts have prices: those without one get what their plan costs, which the user agrees to.
/// Where the batch has a budget (`is_limited`) all get that, so that what is planned again stays within it.
///
/// # Errors
/// [`CliError`] when the user does not agree to the price, or cannot be asked.
pub fn with_budgets(
    client: &Client,
    planned: Vec<(Request, Cost)>,
    (is_limited, usual): (bool, Option<Cost>),
) -> Result<Vec<Request>, CliError> {
    agreed_of_batch(client, planned, (is_limited, usual), ask)
}

/// Requests that are to wait, each with a budget, since nobody can be asked later: its own, else the usual one, else none at all (0).
///
/// # Errors
/// [`CliError`] when hosts have prices and some request has no budget.
pub fn with_budgets_to_wait(
    client: &Client,
    requests: Vec<Request>,
    usual: Option<Cost>,
) -> Result<Vec<Request>, CliError> {
    let without = requests.iter().filter(|request| request.budget().is_none()).count();
    if without > 0 && usual.is_none() && client.challenge("POST", "/v1/batches/waiting")?.has_prices {
        let without = counted(without, "request");
        let error = CliError::Usage(format!("{without} without a budget, and hosts have prices; nothing was added"));
        return Err(error.hinted(format!("give each a budget, or all of them with {BUDGET_VARIABLE}")));
    }
    let with_budget = |request: Request| match request.budget() {
        Some(_) => Ok(request),
        None => limited(request, usual.unwrap_or(Cost::ZERO)),
    };
    requests.into_iter().map(with_budget).collect()
}

fn agreed_of_batch(
    client: &Client,
    planned: Vec<(Request, Cost)>,
    (is_limited, usual): (bool, Option<Cost>),
    ask: impl FnOnce(&str) -> Result<Option<bool>, CliError>,
) -> Result<Vec<Request>, CliError> {
    if is_limited {
        return planned.into_iter().map(|(request, cost)| limited(request, cost)).collect();
    }
    if usual.is_none() && !client.challenge("POST", "/v1/batches/plan")?.has_prices {
        return Ok(planned.into_iter().map(|(request, _)| request).collect());
    }
    let without: Vec<Cost> =
        planned.iter().filter(|(request, _)| request.budget().is_none()).map(|(_, cost)| *cost).collect();
    let all: Cost = without.iter().copied().sum();
    if !all.is_zero() && usual.is_none() {
        let price = format!("{} without a budget for {all} credits", counted(without.len(), "request"));
        match ask(&price)? {
            Some(true) => {}
            Some(false) => return Err(CliError::failed("nothing was reserved")),
            None => {
                let error = CliError::Usage(format!("the batch has {price}"));
                return Err(error.hinted(format!(
                    "give them budgets, the batch one with --batch-budget {all}, or all requests with {BUDGET_VARIABLE}"
                )));
            }
        }
    }
    let with_budget = |(request, cost): (Request, Cost)| match request.budget() {
        Some(_) => Ok(request),
        None => limited(request, usual.unwrap_or(cost)),
    };
    planned.into_iter().map(with_budget).collect()
}

/// See [`with_budget`]; `ask` tells whether the user agrees, and nothing when there is nobody to ask.
fn agreed(
    client: &Client,
    request: Request,
    usual: Option<Cost>,
    ask: impl FnOnce(&str) -> Result<Option<bool>, CliError>,
) -> Result<Request, CliError> {
    if request.budget().is_some() {
        return Ok(request);
    }
    if let Some(budget) = usual {
        return limited(request, budget);
    }
    if !client.challenge("POST", "/v1/plan")?.has_prices {
        return Ok(request);
    }
    let (cost, hosts) = match client.post::<LivePlan>("/v1/plan", &request) {
        Ok(LivePlan::Allocated(plan)) => (plan.cost, plan.hosts.len()),
        Ok(LivePlan::Rejected(_)) => (Cost::ZERO, 0),
        // Such a caller may submit, but not plan; a refusal for money names the price.
        Err(CliError::Problem { status: StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, .. }) => (Cost::ZERO, 0),
        Err(error) => return Err(error),
    };
    if cost.is_zero() {
        return limited(request, cost);
    }
    let price = format!("{} for {cost} credits", counted(hosts, "host"));
    match ask(&price)? {
        Some(true) => limited(request, cost),
        Some(false) => Err(CliError::failed("nothing was reserved")),
        None => {
            let error = CliError::Usage(format!("the plan is {price}, and the request has no budget"));
            Err(error.hinted(format!("give it one with --budget {cost}, or all requests with {BUDGET_VARIABLE}")))
        }
    }
}

/// The request with this budget.
///
/// # Errors
/// [`CliError`] when that is too large.
pub fn limited(request: Request, budget: Cost) -> Result<Request, CliError> {
    let document = RequestDocument { budget: Some(budget), ..request.into() };
    Request::try_from(document).map_err(|error| CliError::Usage(error.to_string()))
}

/// Asks on the terminal, if there is one.
fn ask(price: &str) -> Result<Option<bool>, CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    let failed = |source| CliError::Io { doing: "asking whether to pay", source };
    write!(io::stderr(), "{price}. Reserve? [y/N] ").map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(Some(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{exit::Exit, samples::serve};

    const PLAN: &str = r#"{"id":null,"outcome":"allocated","start":5,"end":65,"objective":{"kind":"start","value":5},"cost":12500,
        "hosts_seen":1,"hosts":[{"id":"h1","site":"s1","site_name":"","end":65,"amounts":{},"cost":12500,"schedule_age_s":2}],
        "efficiency":1.0,"efficiency_bound":1.0,"start_proven":true,"phases_us":{},"schedules":[]}"#;

    fn challenge(has_prices: bool) -> (&'static str, String) {
        let body = format!(
            r#"{{"nonce":"","expires_in_s":1,"site":"s","grid":"g","grid_form":"open","has_prices":{has_prices}}}"#
        );
        ("200 OK", body)
    }

    fn request(more: &str) -> Request {
        serde_json::from_str(&format!(r#"{{"hosts":1,"duration":60{more}}}"#)).unwrap()
    }

    /// The budget after all, in thousandths, or what is said; the node gives these answers.
    fn budget(
        answers: Vec<(&'static str, String)>,
        more: &str,
        usual: Option<Cost>,
        says: Option<bool>,
    ) -> Result<Option<u64>, CliError> {
        let (client, server) = serve(answers);
        let request = agreed(&client, request(more), usual, |_| Ok(says));
        server.join().unwrap();
        Ok(request?.budget().map(|budget| budget.0))
    }

    #[test]
    fn nothing_is_spent_that_was_not_agreed_to() {
        let priced = || vec![challenge(true), ("200 OK", PLAN.to_owned())];
        assert_eq!(budget(vec![], r#","budget":7"#, Some(Cost(1_000)), None).unwrap(), Some(7), "its own");
        assert_eq!(budget(vec![], "", Some(Cost(1_500)), None).unwrap(), Some(1500), "the usual one");
        assert_eq!(budget(vec![challenge(false)], "", None, None).unwrap(), None, "all is free");
        assert_eq!(budget(priced(), "", None, Some(true)).unwrap(), Some(12_500));
        let error = budget(priced(), "", None, Some(false)).unwrap_err();
        assert_eq!(error.to_string(), "nothing was reserved");
        let error = budget(priced(), "", None, None).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert_eq!(error.to_string(), "the plan is 1 host for 12.50 credits, and the request has no budget");
        assert!(error.hint().is_some_and(|hint| hint.contains("--budget 12.50")));
        let error = parsed("much").unwrap_err();
        assert!(error.to_string().starts_with("KOLO_BUDGET: \"much\": expected credits"), "{error}");
    }

    #[test]
    fn the_file_of_the_user_has_a_budget_for_requests_without_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(USER_FILE);
        assert_eq!(budget_of_file(&file).unwrap(), None);
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            budget_of_file(&file).map_err(|error| error.to_string())
        };
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("budget = \"12.50\"\n"), Ok(Some(Cost(12_500))));
        for (text, expected) in
            [("budget = \"much\"", "user.toml: budget: "), ("max_price = 5", "user.toml:1: max_price: ")]
        {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_batch_costs_no_more_than_was_agreed_to() {
        let budgets = |answers, is_limited, usual, says| {
            let (client, server) = serve(answers);
            let planned = vec![(request(r#","budget":7"#), Cost(5)), (request(""), Cost(900)), (request(""), Cost(0))];
            let agreed = agreed_of_batch(&client, planned, (is_limited, usual), |_| Ok(says));
            server.join().unwrap();
            let budget = |request: Request| request.budget().map(|budget| budget.0);
            agreed.map(|requests| requests.into_iter().map(budget).collect::<Vec<_>>())
        };
        assert_eq!(budgets(vec![challenge(false)], false, None, None).unwrap(), [Some(7), None, None]);
        for usual in [None, Some(Cost(2_000))] {
            assert_eq!(budgets(vec![], true, usual, None).unwrap(), [Some(5), Some(900), Some(0)]);
        }
        assert_eq!(budgets(vec![challenge(true)], false, None, Some(true)).unwrap(), [Some(7), Some(900), Some(0)]);
        assert_eq!(budgets(vec![], false, Some(Cost(2_000)), None).unwrap(), [Some(7), Some(2_000), Some(2_000)]);
        assert_eq!(
            budgets(vec![challenge(true)], false, None, Some(false)).unwrap_err().to_string(),
            "nothing was reserved"
        );
        let error = budgets(vec![challenge(true)], false, None, None).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert_eq!(error.to_string(), "the batch has 2 requests without a budget for 0.90 credits");
    }

    #[test]
    fn what_waits_costs_what_was_said_or_nothing() {
        let budgets = |answers, usual| {
            let (client, server) = serve(answers);
            let waiting = with_budgets_to_wait(&client, vec![request(r#","budget":7"#), request("")], usual);
            server.join().unwrap();
            let budget = |request: Request| request.budget().map(|budget| budget.0);
            waiting.map(|requests| requests.into_iter().map(budget).collect::<Vec<_>>())
        };
        assert_eq!(budgets(vec![challenge(false)], None).unwrap(), [Some(7), Some(0)]);
        assert_eq!(budgets(vec![], Some(Cost(2_000))).unwrap(), [Some(7), Some(2_000)]);
        let error = budgets(vec![challenge(true)], None).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert_eq!(error.to_string(), "1 request without a budget, and hosts have prices; nothing was added");
    }

    #[test]
    fn who_may_not_plan_gets_free_hosts_only() {
        let refused =
            ("403 Forbidden", r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"no"}"#.to_owned());
        assert_eq!(budget(vec![challenge(true), refused], "", None, None).unwrap(), Some(0));
        let free = PLAN.replace("12500", "0");
        assert_eq!(budget(vec![challenge(true), ("200 OK", free)], "", None, None).unwrap(), Some(0));
    }
}
