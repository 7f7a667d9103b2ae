//! `kolo open`: a link that opens the node's page in a browser, once and soon.

use std::time::Duration;

use kolo_api::session::OneTimeLink;
use kolo_text::{safe::safe, time::format_duration};

use super::Context;
use crate::{
    args::OpenArgs,
    error::CliError,
    exit::Exit,
    output::{Look, Report},
};

/// Runs the command.
///
/// # Errors
/// [`CliError`] when nobody may be signed in.
pub fn run(context: &mut Context, args: &OpenArgs) -> Result<Exit, CliError> {
    let client = if args.as_user { context.connect_by_key(&args.key)? } else { context.connect_as(&args.key)? };
    let mut link: OneTimeLink = client.post("/v1/links", &())?;
    // The node names where it listens, which may be every address; the one that was named is known to reach it.
    if let (Some((_, code)), Some(page)) = (link.url.split_once("/#"), client.page()) {
        link.url = format!("{page}/#{code}");
    }
    context.done(&link)
}

impl Report for OneTimeLink {
    fn text(&self, look: &Look) -> String {
        let life = format_duration(Duration::from_secs(self.expires_in_s));
        format!("{}\n{}\n", safe(&self.url), look.paint.faint(&format!("opens the page once, within {life}")))
    }

    fn ids(&self) -> Vec<String> {
        vec![self.url.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn a_link_is_shown_with_its_life_and_alone_for_pipes() {
        let link = OneTimeLink { url: "http://127.0.0.1:7740/#link=0f".to_owned(), expires_in_s: 120 };
        assert_eq!(
            printed(&link, OutputFormat::Table),
            "http://127.0.0.1:7740/#link=0f\nopens the page once, within 2m\n"
        );
        assert_eq!(printed(&link, OutputFormat::Quiet), "http://127.0.0.1:7740/#link=0f\n");
    }
}
