//! The label of a request that lengthens a reservation: it names the reservation's request.

use broker::{
    ids::{IdError, RequestId},
    trust::{RequestStatement, SignedText},
};

/// What the label of a request begins with that lengthens a reservation; the reservation's id follows.
const MARK: &str = "behind-";

/// The label of a request that lengthens `base`.
///
/// # Errors
/// [`IdError`] when the id is too long for that; those that kolo makes are not.
pub fn label_behind(base: &str) -> Result<RequestId, IdError> {
    RequestId::new(&format!("{MARK}{base}"))
}

/// The id of the reservation that a request with this label lengthens.
pub fn base_in_label(label: &RequestId) -> Option<&str> {
    label.as_str().strip_prefix(MARK).filter(|base| !base.is_empty())
}

/// The id of the reservation that the user's signed request says it lengthens.
pub fn base_signed_in(statement: &SignedText) -> Option<RequestId> {
    // A signature takes a while to check, and most texts have no mark.
    let may_be = statement.text.contains(MARK);
    let statement = may_be.then(|| statement.open::<RequestStatement>().ok()).flatten()?;
    RequestId::new(base_in_label(statement.request.id()?)?).ok()
}
