//! The page of real nodes in a real browser. Says so and passes where there is no chromedriver.

use end_to_end::{Node, browser::Browser, hosts, run, skip, wait_until};
use serde_json::{Value, json};

use super::run_on_seats::{detached, two};

/// What a site would call itself to run a script in the pages of others.
const HOSTILE: &str = "<img src=x onerror='window.hacked=1'>&amp;";

pub(super) fn browser(width: u32, height: u32, more: &[&str]) -> Option<Browser> {
    let missing = skip::missing(&["chromedriver", "chromium"]);
    if missing.is_empty() {
        return Some(Browser::start(width, height, more));
    }
    skip::skip(&format!("not installed: {} (Debian: apt install chromium chromium-driver)", missing.join(", ")));
    None
}

pub(super) fn sign_in(browser: &Browser, node: &Node) {
    let (status, link) = node.post("/v1/links", "");
    assert_eq!(status, 201, "{link}");
    let url = link["url"].as_str().unwrap();
    browser.open(url);
    browser.wait_for_text("Sign out");
    let address = browser.run("return location.href", &json!([]));
    assert!(!address.as_str().unwrap().contains("link="), "the code stays in the address: {address}");
    browser.open("about:blank");
    browser.open(url);
    browser.wait_for_text("Sign out");
    assert!(browser.run("return document.cookie", &json!([])).as_str().unwrap().is_empty(), "scripts see the session");
}

/// Takes a picture of a view, which must have exactly one heading of level one.
fn look_at(browser: &Browser, view: &str) {
    let headings = browser.run("return document.querySelectorAll('h1').length", &json!([]));
    assert_eq!(headings, 1, "{view}");
    browser.picture(view);
}

#[test]
fn what_is_booked_on_one_nodes_page_shows_on_anothers_and_goes_when_taken_back() {
    let Some(browser) = browser(1280, 860, &[]) else { return };
    let first = Node::first("alpha", &hosts("a", 3));
    let contact = format!("reach {{host}} {HOSTILE}");
    let hostile_hosts = hosts("b", 3).replace("x86_64", HOSTILE);
    let second = Node::joining(HOSTILE, &hostile_hosts, &first, &["--contact", &contact]);
    first.wait_until_it_knows(6);
    second.wait_until_it_knows(6);

    sign_in(&browser, &first);
    browser.wait_for_text(HOSTILE);
    look_at(&browser, "overview");

    browser.click("a[href='#/book']");
    browser.fill("input[name=hosts]", "5");
    browser.fill("input[name=duration]", "90");
    browser.click("form button[type=submit]");
    browser.wait_for_text("has no unit");
    browser.fill("input[name=duration]", "1h30m");
    browser.fill("input[name='total.cpu']", "6");
    browser.click("form button[type=submit]");
    browser.wait_for_text("No earlier start exists");
    let held: usize = [&first, &second].into_iter().map(|node| node.bookings().len()).sum();
    assert_eq!(held, 0, "a plan holds nothing");
    look_at(&browser, "book");
    browser.click("#reserve");
    browser.wait_for_text("active");
    browser.wait_for_text("Cancel");
    // Its site says how to reach a host.
    let has_contact = |shown: &String| shown.lines().any(|line| line.contains("reach b") && line.contains(HOSTILE));
    wait_until("the contact, as text", || browser.text(), has_contact);
    assert!(
        browser.run("return window.hacked === undefined", &json!([])).as_bool().unwrap(),
        "a contact ran as a script"
    );
    look_at(&browser, "request");
    let id = first.get("/v1/requests")["requests"][0]["id"].as_str().unwrap().to_owned();

    // The other node runs at another port of the same name: its session must not be mixed up with the first one's.
    sign_in(&browser, &second);
    browser.click("a[href='#/gantt']");
    browser.click("#as-table");
    browser.wait_for_text(&id[..10]);
    look_at(&browser, "gantt");
    assert!(browser.run("return window.hacked === undefined", &json!([])).as_bool().unwrap(), "a name ran as a script");

    browser.click("a[href='#/slots']");
    browser.fill("input[name='per_host.cpu']", "3");
    browser.click("form button[type=submit]");
    browser.wait_for_text("Proven on the schedules used");
    browser.fill("input[name=hosts]", "50");
    browser.click("#another-shape");
    browser.fill("input[name='shapes[1].hosts']", "1");
    browser.fill("input[name='shapes[1].duration']", "70");
    browser.click("form button[type=submit]");
    browser.wait_for_text("shapes[1].duration");
    browser.fill("input[name='shapes[1].duration']", "70min");
    browser.click("form button[type=submit]");
    browser.wait_for_text("2 of 2: 1 host for");
    look_at(&browser, "slots");

    first.open_in(&browser, &format!("/#/requests/{id}"));
    browser.click("#cancel");
    browser.wait_for_text("Really cancel it");
    browser.click("#cancel");
    browser.wait_for_text("cancelled");

    second.open_in(&browser, "/#/gantt");
    browser.click("#as-table");
    wait_until("the reservation to go", || browser.text(), |shown| !shown.contains(&id[..10]));
}

#[test]
fn an_owner_ends_what_runs_with_a_button_and_a_reason() {
    let Some(browser) = browser(1280, 860, &[]) else { return };
    let (first, second) = two();
    let id = detached(&first, &["-N", "2", "--total", "cpu=5", "-t", "1h"], "sleep 1000");
    sign_in(&browser, &second);
    browser.wait_for_text("What users run here");
    assert!(browser.text().contains("sleep 1000"));
    look_at(&browser, "running");
    browser.click("table[aria-label=Running] button");
    browser.fill("dialog input[name=reason]", "the cat sleeps on it");
    browser.click("#end-run");
    wait_until("it to go", || browser.text(), |shown| !shown.contains("What users run here"));
    assert_eq!(first.kolo(&["local", "end", &id]).code, Some(0));
    let told = run(&mut first.command(&["attach", &id]));
    assert!(told.code == Some(123) && told.err.contains("the cat sleeps on it"), "{told:?}");

    // What was reserved and used here stands on the page of the site.
    second.open_in(&browser, "/#/requests");
    second.open_in(&browser, "/#/overview");
    browser.wait_for_text("Reserved and used here");
    let row = browser.run("return document.querySelector('table[aria-label=Used] tbody tr').innerText", &json!([]));
    let cells: Vec<&str> = row.as_str().unwrap().split('\t').collect();
    assert!(id.starts_with(cells[1].trim_end_matches('…')) && cells[3] == "1", "{row}");
}

#[test]
fn what_it_costs_to_start_earlier_is_drawn_where_hosts_have_prices() {
    let Some(browser) = browser(1280, 860, &[]) else { return };
    let surcharge = r#"surcharge = [{ within = "1h", percent = 50 }]"#;
    let prices = format!("[[price]]\nper_hour = {{ cpu = \"6.00\" }}\n[price.conditions]\n{surcharge}\n");
    let node = Node::first("alpha", &format!("{}{prices}", hosts("a", 2)));
    node.wait_until_it_knows(2);
    sign_in(&browser, &node);
    browser.click("a[href='#/slots']");
    browser.fill("input[name='per_host.cpu']", "1");
    browser.click("form button[type=submit]");
    browser.wait_for_text("What it costs to start earlier");
    look_at(&browser, "prices");
}

/// Frames while a chart of 2,000 hosts and 20,000 reservations is moved about, and how long the first paint took.
#[test]
#[ignore = "a measurement; run by hand: cargo test -p end-to-end --test grid -- --ignored --nocapture the_chart"]
fn the_chart_moves_smoothly_and_the_page_is_there_at_once() {
    let Some(browser) = browser(1280, 860, &[]) else { return };
    let node = Node::first("alpha", &hosts("a", 3));
    sign_in(&browser, &node);
    browser.open("about:blank");
    node.open_in(&browser, "/#/overview");
    browser.wait_for_text("Health");
    let paint = browser.run(
        "const marks = performance.getEntriesByType('mark').filter((mark) => mark.name === 'shown-overview');
         const paint = performance.getEntriesByName('first-contentful-paint')[0];
         const files = performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'));
         return { paint: paint ? paint.startTime : null, shown: marks.length ? marks[0].startTime : null,
                  bytes: files.filter((one) => !one.name.includes('/v1/')).reduce((sum, one) => sum + one.encodedBodySize, 0) }",
        &json!([]),
    );
    println!("first paint and overview (ms), weight (bytes): {paint}");
    browser.click("a[href='#/gantt']");
    browser.wait_for_text("reservations loaded");
    let frames: Value = browser.run_async(include_str!("pan.js"));
    println!("frames while panning: {frames}");
    assert!(paint["shown"].as_f64().unwrap() < 1000.0);
    assert!(paint["bytes"].as_u64().unwrap() < 1 << 20);
    for kind in ["sideways", "down", "zoom"] {
        assert!(frames[kind]["per_second"].as_f64().unwrap() >= 30.0, "{kind}: {frames}");
    }
}
