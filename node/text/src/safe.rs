//! Text of others, made harmless for a terminal or a log.
//!
//! Invariant: what is returned holds no character that moves the cursor, colours, or turns the direction of the text around.

/// `text` on one line and without anything that moves the cursor, colours, or turns the direction of the text around.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if drives_terminal(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A line of a stranger's output for a terminal, without its end: tabs and colours stay, everything else that drives a terminal is
/// escaped, bytes that are no text are replaced, and a colour that is on at the end is switched off.
pub fn coloured_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let (mut shown, mut rest, mut is_coloured) = (String::with_capacity(text.len()), &*text, false);
    while let Some(c) = rest.chars().next() {
        if let Some(colour) = colour_at(rest) {
            (shown, rest, is_coloured) = (shown + colour, &rest[colour.len()..], true);
            continue;
        }
        if c == '\t' || !drives_terminal(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
        rest = &rest[c.len_utf8()..];
    }
    if is_coloured {
        shown.push_str("\u{1b}[0m");
    }
    shown
}

/// The sequence that changes colours at the beginning of a text (SGR of ECMA-48: ESC, `[`, numbers, `m`).
fn colour_at(text: &str) -> Option<&str> {
    const PARAMETERS_MAX: usize = 32;
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.bytes().take(PARAMETERS_MAX).position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
    (parameters.as_bytes()[end] == b'm').then(|| &text[..2 + end + 1])
}

fn drives_terminal(c: char) -> bool {
    let turns_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns_direction || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A JSON text with the same value. JSON itself escapes only ASCII control characters; others can stand in strings only,
/// where `\u` may take their place.
pub fn json_safe(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if drives_terminal(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_drives_a_terminal_is_escaped() {
        assert_eq!(safe("plain čšž 漢"), "plain čšž 漢");
        assert_eq!(safe("\u{1b}[31m"), "\\u{1b}[31m");
    }

    #[test]
    fn colours_and_tabs_of_a_line_stay_and_nothing_else_that_drives_a_terminal() {
        assert_eq!(coloured_line("a\tb č".as_bytes()), "a\tb č");
        assert_eq!(coloured_line(b"\x1b[1;31mred"), "\u{1b}[1;31mred\u{1b}[0m");
        assert_eq!(coloured_line(b"\x1b]0;title\x07\x1b[2J"), "\\u{1b}]0;title\\u{7}\\u{1b}[2J");
        assert_eq!(coloured_line(b"\r[0] forged \xff"), "\\r[0] forged \u{fffd}");
        assert_eq!(coloured_line(b"\x1b["), "\\u{1b}[");
    }

    proptest! {
        #[test]
        fn a_line_of_output_drives_a_terminal_by_colours_only(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            text in any::<String>(),
            colour in "(\x1b\\[[0-9;]{0,6}[mJ])?",
        ) {
            let line = [&bytes, text.as_bytes(), colour.as_bytes(), text.as_bytes()].concat();
            let shown = coloured_line(&line);
            let mut rest = &*shown;
            while let Some(c) = rest.chars().next() {
                let colour = colour_at(rest);
                prop_assert!(colour.is_some() || c == '\t' || !drives_terminal(c), "{:?}", shown);
                rest = &rest[colour.map_or(c.len_utf8(), str::len)..];
            }
        }

        #[test]
        fn shown_texts_hold_nothing_that_drives_a_terminal(text in any::<String>()) {
            prop_assert!(!safe(&text).chars().any(drives_terminal));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert!(!json_safe(&json).chars().any(drives_terminal));
            prop_assert_eq!(serde_json::from_str::<String>(&json_safe(&json)).unwrap(), text);
        }
    }
}
