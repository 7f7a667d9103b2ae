//! `kolo slots`: when hosts could be had, and how many, over the whole window. Nothing is held.

use broker::{cost::Cost, request::ObjectiveKind, scale::Factor, time::Span, variant::Variant};
use kolo_api::slots::{Mode, PriceFront, PricedStart, ProfileStep, SlotAnswer, SlotQuestion};
use kolo_text::{
    time::{format_span, format_time},
    words::{amounts_text, counted, variant_text},
};
use serde::Serialize;

use super::{Context, with_suggestion};
use crate::{
    error::CliError,
    exit::Exit,
    grid_args::KeyArgs,
    output::{Look, Report, columns},
    report::schedules_text,
    request,
    request_args::SlotsArgs,
    signing,
};

/// Steps of the profile that people are shown; JSON has them all.
const STEPS_SHOWN: usize = 20;

/// Starts with their costs that people are shown; JSON has more.
const POINTS_SHOWN: usize = 12;

/// Runs the command.
///
/// # Errors
/// [`CliError`]; exit code 2 when the request could not be had.
pub fn run(context: &mut Context, args: &SlotsArgs) -> Result<Exit, CliError> {
    let mut draft = request::written(args.script.as_deref(), &args.request, &context.now)?;
    if args.mode != Mode::Earliest && !draft.contains_key("shapes") {
        // Who asks how many there are need not say how many.
        draft.entry("hosts").or_insert_with(|| 1.into());
    }
    let request = request::complete_of(&args.request, draft, &context.now)?;
    let at = match (args.mode, args.at.is_empty()) {
        // A moment that is not over yet when the node looks at it.
        (Mode::At, true) => Some(context.time() + Span(2)),
        (Mode::At, false) => context.time_of("--at", &args.at)?,
        (_, true) => None,
        (_, false) => return Err(CliError::Usage("--at: only --mode at takes a time".to_owned())),
    };
    let client = context.connect()?;
    let asker = signing::asker(context, &client, &KeyArgs::default())?;
    let question = SlotQuestion { mode: args.mode, at, request: request.clone().into(), asker };
    let answer: SlotAnswer = client.post("/v1/slots", &question)?;
    let variant = answer.scale.or(answer.shape.map(|_| Factor::ONE)).and_then(|scale| {
        let shape = answer.shape.unwrap_or_default();
        variant_text(&request, Variant { shape, scale })
    });
    let asked = answer.shape.and_then(|shape| request.shape(shape)).unwrap_or(request.demand()).seats();
    let slots = Slots { asked, variant, budget: request.budget(), objective: request.objective(), answer };
    context.output.print(&slots)?;
    if slots.answer.is_possible {
        return Ok(Exit::Done);
    }
    let reason = slots.answer.reason.map_or_else(|| "not at that time".to_owned(), |reason| reason.detail);
    Err(with_suggestion(&client, &request, CliError::no_placement(&reason)))
}

#[derive(Serialize)]
struct Slots {
    #[serde(skip)]
    asked: usize,
    #[serde(skip)]
    budget: Option<Cost>,
    #[serde(skip)]
    objective: ObjectiveKind,
    #[serde(skip)]
    variant: Option<String>,
    #[serde(flatten)]
    answer: SlotAnswer,
}

impl Slots {
    fn head(&self, look: &Look) -> String {
        let answer = &self.answer;
        let proven = match (answer.is_proven, answer.mode) {
            (false, _) => "",
            (true, Mode::Earliest) => match self.objective {
                ObjectiveKind::Start => ", proven to be the earliest",
                ObjectiveKind::Finish => ", proven to end first",
                ObjectiveKind::Runtime => ", proven to be the shortest",
                ObjectiveKind::HostTime => ", proven to take the least host time",
                ObjectiveKind::Cost => ", proven to be the cheapest",
            },
            (true, Mode::Most) => ", proven to be the most",
            (true, Mode::At) => ", proven",
        };
        let hosts = counted(answer.hosts, "host");
        match answer.start.map(|start| format_time(start, &look.zone)) {
            Some(start) if answer.is_possible => {
                let length = answer.start.zip(answer.end).map(|(start, end)| format_span(end.since(start)));
                let cost = match answer.cost {
                    Cost::ZERO => String::new(),
                    cost => format!(" at {cost} credits"),
                };
                format!("{} from {start} for {}{cost}{proven}", look.paint.good(&hosts), length.unwrap_or_default())
            }
            Some(start) => format!("{} of {} at {start}", look.paint.bad(&hosts), self.asked),
            None => {
                let asked = look.paint.bad(&format!("not {}", counted(self.asked, "host")));
                format!("{asked} at any start until {}", format_time(answer.until, &look.zone))
            }
        }
    }
}

impl Slots {
    /// What it costs to start earlier; a front of one start says nothing new.
    fn front_text(&self, front: &PriceFront, look: &Look) -> String {
        let mut text = String::new();
        let is_news = front.points.len() > 1 || self.budget.is_some_and(|most| front.points[0].cost > most);
        for PricedStart { start, cost, is_proven, shape } in front.points.iter().take(POINTS_SHOWN).filter(|_| is_news)
        {
            let budget = if self.budget.is_some_and(|most| *cost > most) { ", above the budget" } else { "" };
            let proven = if *is_proven { "" } else { ", not proven to be the least" };
            let shape = shape.map_or_else(String::new, |shape| format!(" in shape {}", shape.0 + 1));
            text.push_str(&format!(
                "  from {}: {cost} credits{shape}{budget}{proven}\n",
                format_time(*start, &look.zone)
            ));
        }
        let more = front.points.len().saturating_sub(POINTS_SHOWN) + front.left_out;
        if is_news && more > 0 {
            let last = front.points.last().map_or(Cost::ZERO, |last| last.cost);
            text.push_str(&format!("  {} down to {last} credits\n", counted(more, "more start")));
        }
        if is_news && !front.is_proven {
            text.push_str("  there may be others: the search reached its limit\n");
        }
        text
    }
}

impl Report for Slots {
    fn text(&self, look: &Look) -> String {
        let answer = &self.answer;
        let mut text = format!("{}\n", self.head(look));
        text.extend(self.variant.iter().map(|variant| format!("  {variant}\n")));
        if let Some(front) = &answer.front {
            text.push_str(&self.front_text(front, look));
        }
        let rows = answer.profile.iter().take(STEPS_SHOWN);
        let row = |step: &ProfileStep| {
            [format_time(step.start, &look.zone), step.hosts.to_string(), amounts_text(&step.free)]
        };
        text.push_str(&columns(look, ["START", "HOSTS", "FREE TOGETHER"], rows.map(row)));
        if answer.profile.len() > STEPS_SHOWN {
            let more = counted(answer.profile.len() - STEPS_SHOWN, "more step");
            text.push_str(&format!(
                "{more} until {}; --output json shows all\n",
                format_time(answer.until, &look.zone)
            ));
        }
        if answer.is_thinned {
            text.push_str("neighbouring starts are taken together; each shows what is there at least\n");
        }
        text.push_str(&format!(
            "  {} of {} known have what each must give; {} left out, whose schedule is not known\n",
            answer.matching_hosts,
            counted(answer.known_hosts, "host"),
            counted(answer.without_schedule, "host"),
        ));
        text + &schedules_text(&answer.schedules, &look.zone)
    }

    /// The start, in Unix seconds, for scripts.
    fn ids(&self) -> Vec<String> {
        self.answer.start.filter(|_| self.answer.is_possible).map(|start| start.0.to_string()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::OutputFormat, samples::printed};

    fn slots(more: &str) -> Slots {
        let text = format!(
            r#"{{"until":1763798400,"is_thinned":false,"known_hosts":9,"matching_hosts":6,"without_schedule":1,
            "schedules":[{{"site":"12D3KooWaaaa1111","site_name":"alpha","hosts":6,"age_s":1}}],
            "profile":[{{"start":1763712000,"hosts":2,"free":{{"cpu":2500}}}},{{"start":1763715600,"hosts":6,
            "free":{{"cpu":24000}}}}],{more}}}"#
        );
        Slots {
            asked: 3,
            variant: None,
            budget: Some(Cost(10_000)),
            objective: ObjectiveKind::Start,
            answer: serde_json::from_str(&text).unwrap(),
        }
    }

    #[test]
    fn a_possible_start_is_shown_with_the_profile() {
        let slots = slots(
            r#""mode":"earliest","is_possible":true,"start":1763715600,"end":1763722800,"cost":12500,"hosts":6,
            "front":{"left_out":2,"is_proven":false,"points":[{"start":1763715600,"cost":12500,"is_proven":true},
            {"start":1763748000,"cost":4000,"is_proven":false}]},
            "free":{"cpu":24000},"is_proven":true,"reason":null"#,
        );
        assert_eq!(
            printed(&slots, OutputFormat::Table),
            "6 hosts from 2025-11-21 09:00:00+00:00 for 2h at 12.50 credits, proven to be the earliest\n  \
             from 2025-11-21 09:00:00+00:00: 12.50 credits, above the budget\n  \
             from 2025-11-21 18:00:00+00:00: 4.00 credits, not proven to be the least\n  \
             2 more starts down to 4.00 credits\n  there may be others: the search reached its limit\n\
             START                      HOSTS  FREE TOGETHER\n\
             2025-11-21 08:00:00+00:00  2      cpu=2.5\n\
             2025-11-21 09:00:00+00:00  6      cpu=24\n  \
             6 of 9 hosts known have what each must give; 1 host left out, whose schedule is not known\n  \
             schedules used: alpha (..aaaa1111) 6 hosts, 1s old\n"
        );
        assert_eq!(printed(&slots, OutputFormat::Quiet), "1763715600\n");
    }

    #[test]
    fn what_is_not_possible_says_how_far_it_went() {
        let at = slots(
            r#""mode":"at","is_possible":false,"start":1763712000,"end":1763719200,"hosts":2,"free":{"cpu":2500},
            "is_proven":true,"reason":{"code":"no_window","detail":"2 of 3 hosts"}"#,
        );
        assert!(printed(&at, OutputFormat::Table).starts_with("2 hosts of 3 at 2025-11-21 08:00:00+00:00\n"));
        assert_eq!(printed(&at, OutputFormat::Quiet), "");
        let never = slots(
            r#""mode":"most","is_possible":false,"start":null,"end":null,"hosts":0,"free":{},"is_proven":true,
            "reason":null"#,
        );
        let text = printed(&never, OutputFormat::Table);
        assert!(text.starts_with("not 3 hosts at any start until 2025-11-22 08:00:00+00:00\n"), "{text}");
    }
}
