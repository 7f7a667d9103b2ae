//! A real browser for the tests: Chromium, driven by the W3C WebDriver protocol through chromedriver.
//!
//! The protocol is a dozen JSON calls, of which these tests need eight, so no crate is worth its dependencies. Invariant:
//! driver and browser end with the [`Browser`]; every wait has a deadline.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{wait_for, wait_until};

/// The name under which WebDriver hands out elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// How long a script in the page may take.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);

/// A browser with one window.
pub struct Browser {
    driver: Child,
    session: String,
}

impl Browser {
    /// Starts a browser with a window of this size in CSS pixels.
    ///
    /// # Panics
    /// When chromedriver or the browser does not work.
    #[must_use]
    pub fn start(width: u32, height: u32, more: &[&str]) -> Browser {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = driver.expect("chromedriver starts");
        let output = driver.stdout.take().expect("the output is a pipe");
        let port = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned()))
            .expect("chromedriver names its port");
        let size = format!("--window-size={width},{height}");
        let fixed = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", &size];
        let arguments: Vec<&str> = [&fixed[..], more].concat();
        let options = json!({ "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let mut browser = Browser { driver, session: format!("http://127.0.0.1:{port}/session") };
        let session = browser.post("", &wanted);
        let id = session["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {session}"));
        browser.session = format!("{}/{id}", browser.session);
        browser.post("/timeouts", &json!({ "script": SCRIPT_TIMEOUT.as_millis() as u64 }));
        browser
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut answer = ureq::post(format!("{}{path}", self.session))
            .config()
            .http_status_as_error(false)
            .build()
            .send_json(body)
            .expect("chromedriver answers");
        let mut answer: Value = answer.body_mut().read_json().expect("an answer in JSON");
        answer["value"].take()
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Runs a script in the page; what it returns. `arguments` are in `arguments`.
    #[must_use]
    pub fn run(&self, script: &str, arguments: &Value) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// Runs a script that gives its result to its last argument.
    #[must_use]
    pub fn run_async(&self, script: &str) -> Value {
        self.post("/execute/async", &json!({ "script": script, "args": [] }))
    }

    fn find(&self, selector: &str) -> Result<String, String> {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().map(str::to_owned).ok_or_else(|| format!("{selector}: {found}\n{}", self.text()))
    }

    /// Clicks on what `selector` names, as soon as it can be clicked on.
    pub fn click(&self, selector: &str) {
        wait_for(&format!("a click on {selector}"), || {
            let clicked = self.post(&format!("/element/{}/click", self.find(selector)?), &json!({}));
            if clicked.is_null() { Ok(()) } else { Err(clicked.to_string()) }
        });
    }

    /// Types into what `selector` names, in the place of what is there.
    pub fn fill(&self, selector: &str, text: &str) {
        let element = wait_for(selector, || self.find(selector));
        self.post(&format!("/element/{element}/clear"), &json!({}));
        self.post(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// All text that can be seen.
    #[must_use]
    pub fn text(&self) -> String {
        self.run("return document.body.innerText", &json!([])).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows `text`.
    pub fn wait_for_text(&self, text: &str) {
        wait_until(&format!("{text:?} on the page"), || self.text(), |shown| shown.contains(text));
    }

    /// Keeps a picture of the window, where `KOLO_SCREENSHOTS` names a directory for it.
    ///
    /// # Panics
    /// When the picture cannot be taken or written.
    pub fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os("KOLO_SCREENSHOTS") else { return };
        let mut answer = ureq::get(format!("{}/screenshot", self.session)).call().expect("chromedriver answers");
        let answer: Value = answer.body_mut().with_config().limit(64 << 20).read_json().expect("an answer in JSON");
        let text = answer["value"].as_str().expect("a picture");
        let bytes = data_encoding::BASE64.decode(text.as_bytes()).expect("a picture in base64");
        fs::write(Path::new(&directory).join(format!("{name}.png")), bytes).expect("the picture can be written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser goes with its session; either may be gone already.
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
