//! The pictures of the documentation: four sites, four users, a day's reservations, and the page as it shows them.

use end_to_end::{Node, hosts};
use serde_json::json;

use super::{
    membership::{Person, founded, invite, joined},
    page::{browser, sign_in},
};

/// Who asks for how many hosts, with how many cores together, for how long, and from when on.
const ASKED: [(usize, &str, &str, &str, &str); 14] = [
    (0, "8", "20", "5h", "now"),
    (1, "5", "12", "3h", "now"),
    (2, "4", "14", "8h", "now"),
    (3, "3", "6", "2h30m", "now"),
    (0, "6", "18", "4h", "now+4h"),
    (1, "9", "30", "3h", "now+5h"),
    (2, "3", "12", "10h", "now+8h"),
    (3, "12", "40", "2h", "now+9h"),
    (0, "2", "8", "6h", "now+10h"),
    (1, "7", "21", "4h", "now+12h"),
    (2, "5", "16", "5h", "now+14h"),
    (3, "4", "12", "6h", "now+15h"),
    (0, "10", "34", "3h", "now+17h"),
    (1, "3", "9", "4h", "now+19h"),
];

#[test]
#[ignore = "makes pictures; run by hand: KOLO_SCREENSHOTS=$PWD/docs/images cargo test -p end-to-end --test grid -- --ignored pictures"]
fn pictures_of_a_day_on_four_sites() {
    let Some(browser) = browser(1400, 900, &["--lang=en-GB"]) else { return };
    let first = founded("ljubljana", &hosts("vega", 6));
    let others = [("maribor", "drava", 5), ("koper", "adria", 4), ("trieste", "carso", 4)]
        .map(|(name, prefix, count)| joined(&first, name, &hosts(prefix, count)));
    let nodes: Vec<&Node> = [&first].into_iter().chain(&others).collect();
    nodes.iter().for_each(|node| node.wait_until_it_knows(19));
    let users = ["kim", "iris", "maja", "luka"].map(|name| {
        let person = Person::new();
        person.join(&invite(&first, &["--role", "user", "--name", name]));
        person
    });
    for (user, count, cpu, duration, earliest) in ASKED {
        let total = format!("cpu={cpu}");
        let asked = ["submit", "-N", count, "--total", &total, "-t", duration, "--earliest", earliest];
        let told = users[user].told(&asked, &first.data(), 0);
        assert!(told.starts_with("reserved "), "{told}");
    }
    let _ = users[1].told(&["extend", "last", "--by", "2h"], &first.data(), 0);

    sign_in(&browser, &first);
    browser.wait_for_text("trieste");
    browser.picture("overview");
    browser.click("a[href='#/gantt']");
    browser.click("#as-table");
    browser.wait_for_text("carso4");
    browser.click("#as-table");
    browser.picture("gantt");
    browser.click("a[href='#/book']");
    browser.fill("input[name=hosts]", "5");
    browser.fill("input[name=duration]", "1h30m");
    browser.fill("input[name='total.cpu']", "12");
    browser.click("form button[type=submit]");
    browser.wait_for_text("Efficiency");
    browser.picture("book");
    browser.click("#reserve");
    browser.wait_for_text("active");
    browser.picture("request");
    browser.click("a[href='#/slots']");
    browser.fill("input[name=hosts]", "6");
    browser.fill("input[name='per_host.cpu']", "2");
    browser.click("form button[type=submit]");
    browser.wait_for_text("Proven on the schedules used");
    browser.picture("slots");
    let shown = browser.run("return location.hash", &json!([]));
    assert_eq!(shown, "#/slots");
}
