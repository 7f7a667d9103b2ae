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

    proptest! {
        #[test]
        fn shown_texts_hold_nothing_that_drives_a_terminal(text in any::<String>()) {
            prop_assert!(!safe(&text).chars().any(drives_terminal));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert!(!json_safe(&json).chars().any(drives_terminal));
            prop_assert_eq!(serde_json::from_str::<String>(&json_safe(&json)).unwrap(), text);
        }
    }
}
