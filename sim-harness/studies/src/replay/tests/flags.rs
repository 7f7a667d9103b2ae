//! Flags that cannot be meant.

use super::parse;

#[test]
fn impossible_flags_are_refused_with_what_was_expected() {
    for (flags, expected) in [
        ("--machines m --policy fcfs", "--trace <FILE.swf>"),
        ("--trace t --machines m", "--policy <POLICY>"),
        ("--trace t --policy fcfs", "--machines <FILE.machines>"),
        ("--trace t --synthetic 5 --machines m --policy fcfs", "cannot be used with"),
        ("--synthetic 0 --machines m --policy fcfs", "1..=4000000"),
        ("--synthetic 4000001 --machines m --policy fcfs", "1..=4000000"),
        ("--trace t --machines m --policy best", "possible values: fcfs, easy, conservative"),
        ("--trace t --machines m --policy fcfs --limit 0", "--limit"),
        ("--trace t --machines m --policy fcfs --teardown 5", "expected a duration with its unit"),
        ("--trace t --machines m --policy fcfs --teardown -1s", "-1"),
        ("--trace t --machines m --policy fcfs --runtimes guessed", "possible values: true, estimates"),
        ("--trace t --machines m --policy fcfs --overrun maybe", "possible values: kill, extend"),
    ] {
        let error = parse(flags).unwrap_err();
        assert!(error.contains(expected), "{flags}: {error}");
    }
    let args = parse("--synthetic 5 --machines m --policy easy --growth").unwrap();
    assert_eq!((args.synthetic, args.trace, args.growth), (Some(5), None, true));
}
