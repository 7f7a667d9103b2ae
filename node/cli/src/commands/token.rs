//! `kolo token`: tokens for programs and people that are not the node's operator, each with a scope, and another one for the operator.

use kolo_api::tokens::{MadeToken, NewToken, RotateToken, TokenList};
use kolo_text::{safe::safe, time::format_time, words::or_dash};
use kolo_trust::ApiToken;
use serde::Serialize;

use super::Context;
use crate::{
    client::token_path,
    error::CliError,
    exit::Exit,
    output::{Look, Report, columns},
    token_args::{TokenArgs, TokenCommand},
};

pub fn run(context: &mut Context, args: &TokenArgs) -> Result<Exit, CliError> {
    match &args.command {
        TokenCommand::Create(args) => {
            let name = args.name.clone().or_else(|| args.user.clone());
            let name = name.unwrap_or_else(|| args.scope.as_str().to_owned());
            let new = NewToken { name, scope: args.scope, user: args.user.clone() };
            let made: MadeToken = context.connect()?.post("/v1/tokens", &new)?;
            context.done(&made)
        }
        TokenCommand::List => {
            let list: TokenList = context.connect()?.get("/v1/tokens")?;
            context.done(&list)
        }
        TokenCommand::Revoke(args) => {
            let revoked: ApiToken = context.connect()?.delete(&token_path(&args.name))?;
            context.done(&revoked)
        }
        TokenCommand::Rotate => {
            let made: MadeToken = context.connect()?.post("/v1/api-token", &RotateToken { rotate: true })?;
            context.done(&Rotated(made))
        }
    }
}

/// The operator's new token, which is in a file already.
#[derive(Serialize)]
#[serde(transparent)]
struct Rotated(MadeToken);

impl Report for Rotated {
    fn text(&self, _: &Look) -> String {
        "the operator has another token, in api.token of the node's data directory (--output quiet shows it); the old one, and the sessions, \
         links and streams that it has opened, count no more\n"
            .to_owned()
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.token.clone()]
    }
}

impl Report for MadeToken {
    fn text(&self, look: &Look) -> String {
        let note = "shown once: keep it in a file of mode 600, for --token-file";
        format!("{}\n{}\n", safe(&self.token), look.paint.faint(note))
    }

    fn ids(&self) -> Vec<String> {
        vec![self.token.clone()]
    }
}

impl Report for TokenList {
    fn text(&self, look: &Look) -> String {
        if self.tokens.is_empty() {
            return "no tokens but the operator's\n".to_owned();
        }
        let row = |token: &ApiToken| {
            [
                token.name.clone(),
                token.scope.as_str().to_owned(),
                or_dash(token.user.clone().unwrap_or_default()),
                format_time(token.created, &look.zone),
            ]
        };
        columns(look, ["NAME", "SCOPE", "USER", "CREATED"], self.tokens.iter().map(row))
    }

    fn ids(&self) -> Vec<String> {
        self.tokens.iter().map(|token| token.name.clone()).collect()
    }
}

impl Report for ApiToken {
    fn text(&self, _: &Look) -> String {
        format!("revoked {}\n", safe(&self.name))
    }

    fn ids(&self) -> Vec<String> {
        vec![self.name.clone()]
    }
}

#[cfg(test)]
mod tests {
    use broker::time::Time;
    use kolo_trust::Scope;

    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    #[test]
    fn tokens_are_listed_and_the_secret_is_alone_for_pipes() {
        let about = ApiToken {
            name: "ci".to_owned(),
            scope: Scope::Submit,
            user: Some("ada".to_owned()),
            created: Time(1_763_712_000),
        };
        let list = TokenList { tokens: vec![about.clone()] };
        assert_eq!(
            printed(&list, OutputFormat::Table),
            "NAME  SCOPE   USER  CREATED\nci    submit  ada   2025-11-21 08:00:00+00:00\n"
        );
        let made = MadeToken { name: about.name, token: "00ff".to_owned() };
        assert_eq!(printed(&made, OutputFormat::Quiet), "00ff\n");
    }
}
