//! One of everything that travels, as the tests of `discovery` keep its exact bytes: what targets of encodings begin with.
//!
//! Invariant: the bytes are of today's encoding, since those tests fail otherwise.

const KEPT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../discovery/src/tests/golden.txt"));

/// What is kept under names that begin with `kind`.
pub fn golden(kind: &str) -> Vec<Vec<u8>> {
    let lines = KEPT.lines().filter_map(|line| line.strip_prefix(kind)?.split_once(": "));
    lines.map(|(_, escaped)| unescaped(escaped)).collect()
}

/// The JSON of what is signed as a `kind`.
pub fn golden_statement(kind: &str) -> Vec<u8> {
    golden(&format!("statement: {kind}")).concat()
}

/// Undoes [`slice::escape_ascii`].
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
            (_, Some(b'x')) => {
                let digits = [rest.next(), rest.next()].map(|digit| digit.map_or('0', char::from));
                u8::from_str_radix(&String::from_iter(digits), 16).expect("two digits")
            }
            (_, Some(b'n')) => b'\n',
            (_, Some(b'r')) => b'\r',
            (_, Some(b't')) => b'\t',
            (_, Some(itself)) => itself,
            (plain, None) => plain,
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(unescaped(&all.escape_ascii().to_string()), all);
        assert!(golden("request ").len() > 10 && golden_statement("credential").starts_with(b"[{"));
    }
}
