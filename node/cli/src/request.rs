//! From flags and file to a checked request.
//!
//! Invariant: what is sent has been checked by the same code that the node checks it with; a complaint names the flag or
//! the key.

use std::path::Path;

use broker::{
    amount::{Amount, parse_amount},
    demand::Demand,
    ids::HostId,
    request::{Request, RequestError},
    resources::Amounts,
    time::{Span, Time},
};
use jiff::Zoned;
use kolo_text::{
    request_file::{self, Draft, typed},
    request_keys::{KEYS, Kind, SHAPE_KEYS},
    resource,
    time::{format_time, parse_time},
};
use serde_json::Value;

use super::{error::CliError, foreign, request_args::RequestArgs, script, suggest};

/// How far the clock here may be ahead of that of the node.
const CLOCKS_APART_S: i64 = 60;
/// Where a draft has the alternatives of flags until it is complete; no key of a request.
const ALTERNATIVES: &str = "or";
/// What a request says of itself that each of its shapes says, and that has no common value.
const OF_SHAPE: [&str; 3] = ["hosts", "duration", "work"];

/// The request that `script` (its `#KOLO` lines) and over it `args`, and the file that they name, describe at `now`.
///
/// # Errors
/// [`CliError::Usage`] or [`CliError::Document`] with the flag, line or key.
pub fn checked(script: Option<&Path>, args: &RequestArgs, now: &Zoned) -> Result<Request, CliError> {
    complete_of(args, written(script, args, now)?, now)
}

/// The request that `draft` is, to which `args` belong.
///
/// # Errors
/// As [`complete`]; of a file that is the whole request with its name.
pub fn complete_of(args: &RequestArgs, draft: Draft, now: &Zoned) -> Result<Request, CliError> {
    let file = args.file.as_ref().filter(|_| args.words.is_empty());
    complete(draft, now).map_err(|error| match (file, error) {
        (Some(file), CliError::Usage(what)) => CliError::Usage(format!("{}: {what}", file.display())),
        (_, error) => error,
    })
}

/// What `script` and over it `args` say, which need not be all of a request.
pub fn written(script: Option<&Path>, args: &RequestArgs, now: &Zoned) -> Result<Draft, CliError> {
    let draft = match script {
        Some(file) => script::read(file, now).map_err(|error| match pair_in(file) {
            Some((name, pair)) => CliError::Usage(foreign::blank_for_comma(name, pair)),
            None => error,
        })?,
        None => Draft::default(),
    };
    layer(draft, args, now)
}

/// The name and all of a `RESOURCE=AMOUNT` that stands where a script is expected.
fn pair_in(script: &Path) -> Option<(&str, &str)> {
    let pair = script.to_str().filter(|_| !script.exists())?;
    pair.split_once('=').map(|(name, _)| (name, pair))
}

/// The request that `draft` is.
///
/// # Errors
/// [`CliError::Usage`] with what is missing or wrong.
fn complete(draft: Draft, now: &Zoned) -> Result<Request, CliError> {
    let draft = with_shapes(draft);
    let missing = |what| CliError::Usage(format!("{what}, or its key in the file of --request"));
    if !draft.contains_key("hosts") && !draft.contains_key("shapes") {
        return Err(missing("how many hosts? expected --hosts (-N) COUNT"));
    }
    let document = request_file::document(draft).map_err(|misfit| CliError::Usage(misfit.to_string()))?;
    let request = Request::try_from(document).map_err(|error| match error {
        RequestError::NoLength => missing("for how long? expected --duration (-t) such as 2:00:00"),
        error => wrong_request(&error, now),
    })?;
    // The clock of the node counts, so what has only just passed here is for the node to say.
    let time = Time(now.timestamp().as_second() - CLOCKS_APART_S);
    request.starts(time, Span::MAX).map_err(|error| wrong_request(&error, now))?;
    Ok(request)
}

/// Makes the shapes of a draft that has alternatives from flags: what else it says of hosts and length is the first of them.
fn with_shapes(mut draft: Draft) -> Draft {
    let Some(Value::Array(others)) = draft.remove(ALTERNATIVES) else { return draft };
    let own: Draft = OF_SHAPE.iter().filter_map(|key| draft.remove_entry(*key)).collect();
    let own = Some(own).filter(|own| !own.is_empty()).map(Value::Object);
    let before = match draft.remove("shapes") {
        Some(Value::Array(shapes)) => shapes,
        _ => Vec::new(),
    };
    draft.insert("shapes".to_owned(), own.into_iter().chain(before).chain(others).collect());
    draft
}

/// What to tell whoever asks for hosts and for nothing of them: such a reservation keeps no other work away.
pub fn note_on(request: &Request) -> Option<&'static str> {
    let is_bare = |demand: &Demand| {
        demand.per_host().values().chain(demand.total().values()).all(|amount| *amount == Amount::ZERO)
    };
    request
        .shapes()
        .any(is_bare)
        .then_some("nothing is asked of the hosts: name --per-host or --total, such as --per-host cpu=1")
}

/// Puts `args` over `draft`; a file that they name takes its place.
pub fn layer(draft: Draft, args: &RequestArgs, now: &Zoned) -> Result<Draft, CliError> {
    let draft = match &args.file {
        Some(file) => request_file::read(file, now)?,
        None => draft,
    };
    with_flags(draft, args, now)
}

fn wrong_request(error: &RequestError, now: &Zoned) -> CliError {
    let zone = now.time_zone();
    CliError::Usage(match error {
        RequestError::WindowEndsBeforeStart { key, earliest, latest } => {
            format!("{key}: {} is before earliest ({})", format_time(*latest, zone), format_time(*earliest, zone))
        }
        RequestError::WindowPassed { key, latest, .. } => {
            let now = Time(now.timestamp().as_second());
            format!("{key}: {} is past, it is {} now", format_time(*latest, zone), format_time(now, zone))
        }
        other => other.to_string(),
    })
}

/// Puts the flags over `draft`: single values replace, named amounts and attributes are added or replaced by name.
fn with_flags(mut draft: Draft, args: &RequestArgs, now: &Zoned) -> Result<Draft, CliError> {
    let has = |name| args.words.iter().any(|(key, _)| key.name == name);
    // One of them says how long; that of the flags wins.
    for (one, other) in [("duration", "work"), ("work", "duration")] {
        if has(one) && !has(other) {
            draft.remove(other);
        }
    }
    for (key, words) in &args.words {
        let wrong = |error: String| CliError::of_flag(&format!("--{}", key.flag.unwrap_or(key.name)), error);
        let value = value_of(key.kind, words, now).map_err(wrong)?;
        let name = if key.kind == Kind::Shapes { ALTERNATIVES } else { key.name };
        match (draft.get_mut(name), value) {
            (Some(Value::Object(below)), Value::Object(value)) => below.extend(value),
            (Some(Value::Array(below)), Value::Array(value)) if key.kind == Kind::Shapes => below.extend(value),
            (_, value) => drop(draft.insert(name.to_owned(), value)),
        }
    }
    Ok(draft)
}

/// The value of a flag with these words behind it.
fn value_of(kind: Kind, words: &[String], now: &Zoned) -> Result<Value, String> {
    Ok(match kind {
        Kind::Amounts => {
            amounts(words)?.into_iter().map(|(name, amount)| (name.to_string(), Value::from(amount.0))).collect()
        }
        Kind::Attributes => {
            let pair = |text: &String| match text.split_once('=') {
                Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), Value::from(value))),
                _ => Err(format!("{text:?}: expected key=value, such as arch=x86_64")),
            };
            Value::Object(words.iter().map(pair).collect::<Result<_, _>>()?)
        }
        Kind::Hosts => {
            let host = |text: &String| HostId::new(text).map(|host| Value::from(host.as_str()));
            words.iter().map(host).collect::<Result<_, _>>().map_err(|error| error.to_string())?
        }
        Kind::Shapes => words.iter().map(|text| shape(text, now)).collect::<Result<_, _>>()?,
        Kind::Words(..) => words.iter().map(|word| Value::from(word.as_str())).collect(),
        Kind::Flag => true.into(),
        Kind::One => 1.into(),
        Kind::Time => typed(kind, &words.join(" "), now).map_err(|error| error + &not_of_the_time(words, now))?,
        one => typed(one, &words.join(" "), now)?,
    })
}

/// What to add where the second word behind the flag of a time was meant for something else.
fn not_of_the_time(words: &[String], now: &Zoned) -> String {
    match words {
        [time, other] if parse_time(time, now).is_ok() => {
            format!("; {time:?} alone is one: write -- before {other:?} if that begins a command")
        }
        _ => String::new(),
    }
}

/// Reads `hosts=8,duration=70m,total.cpu=4`.
fn shape(text: &str, now: &Zoned) -> Result<Value, String> {
    let mut shape = Draft::new();
    for part in text.split(',') {
        let unknown = || {
            format!(
                "{part:?}: expected {} or total.RESOURCE=AMOUNT",
                OF_SHAPE.join("=, ") + "=, per-host.RESOURCE=AMOUNT"
            )
        };
        let (name, value) = part.split_once('=').ok_or_else(unknown)?;
        let (flag, resource) = name.split_once('.').map_or((name, None), |(flag, resource)| (flag, Some(resource)));
        let key =
            KEYS.iter().find(|key| key.flag == Some(flag) && SHAPE_KEYS.contains(&key.name)).ok_or_else(unknown)?;
        let value = match (key.kind, resource) {
            (Kind::Amounts, Some(resource)) => value_of(key.kind, &[format!("{resource}={value}")], now)?,
            (Kind::Amounts, None) | (_, Some(_)) => return Err(unknown()),
            (kind, None) => typed(kind, value, now).map_err(|error| format!("{name}: {error}"))?,
        };
        match (shape.get_mut(key.name), value) {
            (Some(Value::Object(amounts)), Value::Object(one))
                if one.keys().all(|name| !amounts.contains_key(name)) =>
            {
                amounts.extend(one);
            }
            (Some(_), _) => return Err(format!("{name} is given twice")),
            (None, value) => drop(shape.insert(key.name.to_owned(), value)),
        }
    }
    Ok(Value::Object(shape))
}

/// What to tell somebody who has typed an amount without its resource.
fn no_amount(text: &str) -> String {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let point = if is_number { "; a fraction has a point, as in cpu=2.5" } else { "" };
    format!("{text:?}: expected resource=amount, such as cpu=12 or memory=40GiB{point}")
}

/// Reads `cpu=2.5`, `memory=40GiB`.
pub fn amounts(texts: &[String]) -> Result<Amounts, String> {
    let mut amounts = Amounts::new();
    for text in texts {
        let (name, amount) = text.split_once('=').ok_or_else(|| no_amount(text))?;
        let meant = || suggest::resource(name).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        let name = resource::named(name).map_err(|error| format!("{error}{}", meant()))?;
        let amount = parse_amount(&name, amount).map_err(|error| format!("{error}{}", meant()))?;
        if amounts.insert(name.clone(), amount).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(amounts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        request: RequestArgs,
    }

    fn now() -> Zoned {
        "2026-11-21T09:30:00+01:00[Europe/Ljubljana]".parse().unwrap()
    }

    fn read(line: &str) -> Result<Request, String> {
        let words = shlex::split(&format!("kolo {line}")).unwrap();
        let args = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        checked(None, &args.request, &now()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_line_of_the_manual_is_understood() {
        let request = read(
            "-N 5 --total cpu=12 --total memory=15GiB --per-host cpu=1 -t 2:00:00 --earliest +1h --latest 'tomorrow 08:00' \
             --where arch=x86_64 --candidate a b c --candidate d e --effort fast --id mine",
        )
        .unwrap();
        let json = serde_json::to_value(&request).unwrap();
        let expected = serde_json::json!({
            "id": "mine", "hosts": 5, "duration": 7200, "earliest": 1_795_253_400, "latest": 1_795_330_800,
            "per_host": {"cpu": 1000}, "total": {"cpu": 12000, "memory": 15360}, "attributes": {"arch": "x86_64"},
            "candidates": ["a", "b", "c", "d", "e"], "effort": "fast"
        });
        assert_eq!(json, expected);
        let request = read(
            "-N 2 --work 2h --speed-min 1.5 --deadline tomorrow 08:00 --objective finish --exclusive --same-site \
             --move-on-loss --budget 12.50",
        );
        let expected = serde_json::json!({"hosts": 2, "work": 7200, "deadline": 1_795_330_800, "objective": "finish",
            "speed_min": 1500, "exclusive": true, "sites_max": 1, "move_on_loss": true, "budget": 12_500});
        assert_eq!(serde_json::to_value(request.unwrap()).unwrap(), expected);
    }

    #[test]
    fn what_others_call_a_resource_is_understood_and_a_blank_for_a_comma_named() {
        let request =
            read("-N 1 -t 1h --per-host cpus=1,mem=4GiB --total gpus=2 --or hosts=1,duration=1h,total.mem=1GiB")
                .unwrap();
        let json = serde_json::to_value(&request).unwrap();
        assert_eq!(json["per_host"], serde_json::json!({"cpu": 1000, "memory": 4096}));
        assert_eq!(
            (&json["total"], &json["shapes"][1]["total"]),
            (&serde_json::json!({"gpu": 2}), &serde_json::json!({"memory": 1024}))
        );
        let script = Path::new("mem=4GiB");
        let error = checked(Some(script), &RequestArgs::default(), &now()).unwrap_err();
        assert_eq!(error.exit().code(), 64);
        assert!(error.to_string().contains("joined by a comma, as in --per-host cpu=1,mem=..."), "{error}");
    }

    #[test]
    fn a_range_of_factors_is_read_and_checked() {
        let request = read("-N 2 -t 1h --per-host cpu=1 --scale 0.5..2 --or hosts=1,duration=2h").unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap()["scale"], serde_json::json!([500, 2000]));
        for (line, expected) in [
            ("--per-host cpu=1 --scale 2..0.5", "--scale: \"2..0.5\": the least is above the largest"),
            ("--per-host cpu=1 --scale 0..2", "--scale: 0: a factor is from 0.001 to 1000"),
            ("--per-host cpu=1 --scale 2", "--scale: \"2\": expected the least and the largest factor"),
            ("--scale 0.5..2", "scale: there are no amounts to scale"),
            ("--per-host cpu=0 --scale 0.5..2", "scale: there are no amounts to scale"),
            ("--per-host cpu=1 --exclusive --scale 0.5..2", "scale: whole hosts cannot be scaled"),
            (
                "--per-host gpu=1000000000000 --scale 1..1000",
                "scale: the largest factor makes an amount larger than any",
            ),
        ] {
            let error = read(&format!("-N 1 -t 1h {line}")).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        let error = read("-N 1 -t 1000000d --per-host cpu=1 --scale 0.001..1").unwrap_err();
        assert!(error.contains("scale: the least factor makes the length longer than any"), "{error}");
    }

    #[test]
    fn alternatives_are_shapes_behind_what_the_other_flags_say() {
        let line = "-N 4 -t 2h --total cpu=8,memory=1GiB --or hosts=8,duration=70m --or hosts=1,work=3h,total.cpu=2,per-host.gpu=1";
        let expected = serde_json::json!({"total": {"cpu": 8000, "memory": 1024}, "shapes": [{"hosts": 4, "duration": 7200},
            {"hosts": 8, "duration": 4200}, {"hosts": 1, "work": 10800, "total": {"cpu": 2000}, "per_host": {"gpu": 1}}]});
        assert_eq!(serde_json::to_value(read(line).unwrap()).unwrap(), expected);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("r.toml");
        fs::write(&file, "[[shapes]]\nhosts = 4\nduration = \"2h\"\n").unwrap();
        let line = format!("--request {} --or hosts=8,duration=70m", file.display());
        assert_eq!(read(&line).unwrap().shapes().map(Demand::seats).collect::<Vec<_>>(), [4, 8]);
        fs::write(&file, "#KOLO -N 4 --or hosts=8,duration=70m\n#KOLO -t 1h\n").unwrap();
        let request = checked(Some(&file), &RequestArgs::default(), &now()).unwrap();
        assert_eq!(
            request.shapes().map(Demand::seats).collect::<Vec<_>>(),
            [4, 8],
            "a later line is of the first shape"
        );
    }

    #[test]
    fn flags_win_over_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("r.toml");
        fs::write(&file, "hosts = 5\nduration = \"1h\"\n[total]\ncpu = \"12\"\ngpu = 1\n").unwrap();
        let file = file.display().to_string();
        let request = read(&format!("--request {file} -N 7 --total gpu=2,memory=1GiB")).unwrap();
        let json = serde_json::to_value(&request).unwrap();
        let expected = serde_json::json!({"hosts": 7, "duration": 3600,
            "total": {"cpu": 12000, "gpu": 2, "memory": 1024}});
        assert_eq!(json, expected);
        let json = serde_json::to_value(read(&format!("--request {file} --work 2h")).unwrap()).unwrap();
        assert_eq!((&json["work"], json.get("duration")), (&7200.into(), None));
    }

    #[test]
    fn what_commands_need_of_owners_is_said_by_flags_files_and_scripts() {
        let directory = tempfile::tempdir().unwrap();
        let [toml, json, script] = ["r.toml", "r.json", "job.sh"].map(|name| directory.path().join(name));
        fs::write(&toml, "hosts = 1\nduration = \"1h\"\nneeds = [\"run\", \"network\"]\nimage = \"a:1\"\n").unwrap();
        fs::write(&json, r#"{"hosts":1,"duration":3600,"needs":["network","run"],"image":"a:1"}"#).unwrap();
        fs::write(&script, "#KOLO -N 1 -t 1h --needs run,network\n#KOLO --image a:1\nmake\n").unwrap();
        let expected = read("-N 1 -t 1h --needs network --needs run --image a:1").unwrap();
        let shown = serde_json::to_value(&expected).unwrap();
        assert_eq!((&shown["needs"], &shown["image"]), (&serde_json::json!(["run", "network"]), &"a:1".into()));
        for file in [&toml, &json] {
            assert_eq!(read(&format!("--request {}", file.display())).unwrap(), expected);
        }
        assert_eq!(checked(Some(&script), &RequestArgs::default(), &now()).unwrap(), expected);
        fs::write(&toml, "hosts = 1\nduration = \"1h\"\nneeds = [\"gpu\"]\n").unwrap();
        for (line, expected) in [
            (format!("--request {}", toml.display()), "unknown variant `gpu`, expected `run` or `network`"),
            ("-N 1 -t 1h --needs gpu".to_owned(), "invalid value 'gpu' for '--needs <WHAT>'"),
            ("-N 1 -t 1h --image 'a b'".to_owned(), "--image: \"a b\" cannot name an image"),
        ] {
            let error = read(&line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.toml");
        fs::write(&file, "[[shapes]]\nhosts = 0\nduration = \"1h\"\n").unwrap();
        let error = read(&format!("--request {}", file.display())).unwrap_err();
        assert!(error.contains("s.toml: shapes[0].hosts"), "{error}");
    }

    #[test]
    fn flags_win_over_the_lines_of_a_script() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("job.sh");
        fs::write(&file, "#KOLO -N 5 -t 1h --total cpu=12\nmake\n").unwrap();
        let args = Line::try_parse_from(["kolo", "-N", "7"]).unwrap();
        let request = checked(Some(&file), &args.request, &now()).unwrap();
        assert_eq!(
            (request.demand().seats(), request.demand().length().at_reference().0, request.demand().total().len()),
            (7, 3600, 1)
        );
    }

    #[test]
    fn who_asks_nothing_of_the_hosts_is_told() {
        let note = |line: &str| note_on(&read(line).unwrap());
        assert!(note("-N 1 -t 1h").is_some_and(|note| note.contains("--per-host or --total")));
        assert!(note("-N 1 -t 1h --total cpu=0").is_some());
        assert!(note("-N 1 -t 1h --total cpu=1").is_none());
        assert!(note("-N 1 -t 1h --per-host gpu=1").is_none());
    }

    #[test]
    fn bad_requests_name_what_is_wrong() {
        for (line, expected) in [
            ("-t 1h", "expected --hosts (-N) COUNT"),
            ("-N 1", "expected --duration (-t)"),
            ("-N 0 -t 1h", "hosts: expected 1 to"),
            ("-N 1 -t 60", "--duration: \"60\" has no unit"),
            ("-N 1 -t 0s", "--duration: \"0s\": expected at least one second"),
            ("-N 1 -t 1h --total memory=40", "--total: memory=40: expected a number with its unit"),
            ("-N 1 -t 1h --total memory", "--total: \"memory\": expected resource=amount"),
            ("-N 1 -t 1h --total cpu=1 --total cpu=2", "--total: cpu is given twice"),
            (
                "-N 1 -t 1h --total memory=4GB",
                "--total: memory=4GB: expected a number with its unit, such as 512MiB or 40GiB; say 4GiB",
            ),
            ("-N 1 -t 1h --total mem=4", "--total: memory=4: expected a number with its unit"),
            (
                "-N 1 -t 1h --total cpu=2,5",
                "--total: \"5\": expected resource=amount, such as cpu=12 or memory=40GiB; a fraction has a point",
            ),
            ("-N 1 -t 1h --total mem=1GiB,memory=1GiB", "--total: memory is given twice"),
            ("-N 1 -t 1h --earliest 18:00 hostname", "\"18:00\" alone is one: write -- before \"hostname\""),
            ("-N 1 -t 1h --where x", "--where: \"x\": expected key=value"),
            ("-N 1 -t 1h --latest noon", "--latest: \"noon\" is no time"),
            (
                "-N 1 -t 1h --earliest now+2h --latest now+1h",
                "latest: 2026-11-21 10:30:00+01:00 is before earliest (2026-11-21 11:30:00+01:00)",
            ),
            (
                "-N 1 -t 1h --latest 'today 00:02'",
                "latest: 2026-11-21 00:02:00+01:00 is past, it is 2026-11-21 09:30:00+01:00 now",
            ),
            (
                "-N 1 -t 1h --earliest 'today 00:01' --latest 'today 00:02'",
                "latest: 2026-11-21 00:02:00+01:00 is past, it is 2026-11-21 09:30:00+01:00 now",
            ),
            ("-N 1 -t 1h --deadline 'today 00:02'", "deadline: 2026-11-21 00:02:00+01:00 is past"),
            ("-N 3 -t 1h --candidate a", "3 asked, but only 1 distinct"),
            ("-N 1 -t 1h --id ''", "--id: an id must not be empty"),
            ("-N 1 -t 1h --work 1h", "work: given beside duration"),
            ("-N 1 --work 60", "--work: \"60\" has no unit"),
            ("-N 1 -t 1h --sites-max 0", "sites_max: expected at least 1, got 0"),
            ("-N 1 -t 1h --speed-min 1,5", "--speed-min: \"1,5\": expected how many times"),
            ("-N 1 -t 1h --budget 1,50", "--budget: \"1,50\": expected credits such as 12.50"),
            ("-N 1 -t 1h --budget 999999999999", "budget: 999999999999000 is larger than any budget"),
            ("-N 1 -t 1h --objective best", "'--objective <OBJECTIVE>': expected start, finish"),
            ("-N 1 -t 1h --deadline soon", "--deadline: \"soon\" is no time"),
            (
                "-N 1 -t 1h --earliest now+2h --deadline now+1h",
                "deadline: 2026-11-21 10:30:00+01:00 is before earliest (2026-11-21 11:30:00+01:00)",
            ),
            ("-N x -t 1h", "invalid value 'x' for '--hosts <COUNT>'"),
            ("-N 1 -t 1h --effort lazy", "'--effort <EFFORT>': expected fast, balanced"),
            ("-N 1 -t 1h --or hosts=8", "shapes[1].duration: this or work is needed"),
            ("-N 1 -t 1h --or hosts=8,duration=70", "--or: duration: \"70\" has no unit"),
            ("-N 1 -t 1h --or hosts=8,latest=+1h", "--or: \"latest=+1h\": expected hosts=, duration=, work="),
            ("-N 1 -t 1h --or hosts=8,hosts=9", "--or: hosts is given twice"),
            ("-N 1 -t 1h --or hosts=8,total=9", "--or: \"total=9\": expected hosts="),
            ("-N 1 -t 1h --or hosts=8,total.cpu=1,total.cpu=2", "--or: total.cpu is given twice"),
            ("-N 1 -t 1h --or hosts=0,work=1h", "shapes[1].hosts: expected 1 to"),
            ("--request /nonexistent/r.toml", "/nonexistent/r.toml: No such file"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line:?}: {error}");
        }
    }
}
