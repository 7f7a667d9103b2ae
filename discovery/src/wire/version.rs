//! The number of the protocol between nodes, and who has to install another program when two nodes do not understand each other.

/// The one number of everything that travels: direct requests, envelopes, topics of gossip. Nothing of another number is read.
pub const DIALECT: u16 = 7;

/// Whose program is too old where one node speaks these dialects and the other those, and what to do; none where they understand each other.
/// `theirs` and `own` are what `site` and this node speak.
#[must_use]
pub fn apart_words(theirs: &[u16], own: &[u16]) -> Option<String> {
    if theirs.iter().any(|theirs| own.contains(theirs)) {
        return None;
    }
    let numbers = |spoken: &[u16]| spoken.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (newest, ours) = (theirs.iter().max(), numbers(own));
    Some(match newest {
        None => format!("it does not say which version of the protocol between nodes it speaks (this node: {ours})"),
        Some(newest) if own.iter().all(|own| own > newest) => format!(
            "its program is too old: it speaks version {} of the protocol between nodes, this node {ours}; install the kolo of this node \
             there, or a newer one",
            numbers(theirs)
        ),
        Some(_) => format!(
            "this node's program is too old: it speaks version {ours} of the protocol between nodes, that site {}; install the kolo of \
             that site here, or a newer one",
            numbers(theirs)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_which_program_is_too_old() {
        let words = |theirs: &[u16], own: &[u16]| apart_words(theirs, own).unwrap_or_default();
        assert_eq!(apart_words(&[7], &[7]), None);
        assert_eq!(apart_words(&[9, 8], &[8, 7]), None);
        assert!(words(&[6], &[7]).starts_with("its program is too old: it speaks version 6"));
        assert!(words(&[8], &[7]).starts_with("this node's program is too old: it speaks version 7"));
        assert!(words(&[9, 8], &[7, 6]).contains("that site 9, 8; install the kolo of that site here"));
        assert!(words(&[], &[7]).starts_with("it does not say"));
    }
}
