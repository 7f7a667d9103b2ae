//! What sites refuse to hold for the lack of, although their adverts may claim it.

use broker::{
    needs::{Lack, Needs},
    protocol::{Refusal, RefusalReason, SiteAnswer},
};

/// What a site has refused for the lack of.
pub fn lack_of(answer: &Result<SiteAnswer, String>, needs: &Needs) -> Option<Lack> {
    match answer {
        Ok(SiteAnswer::Refused(Refusal { reason: RefusalReason::NotAllowed(denial), .. })) => denial.lack_of(needs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use broker::{
        needs::Need,
        protocol::LedgerVersion,
        trust::{Denial, Rule},
    };

    use super::*;

    #[test]
    fn a_hold_that_is_refused_says_what_its_site_lacks() {
        let needs = Needs { of_node: [Need::Run, Need::Network].into(), image: None };
        let refused = |denial| {
            let (reason, version) = (RefusalReason::NotAllowed(denial), LedgerVersion::default());
            Ok(SiteAnswer::Refused(Refusal { reason, version, hosts: Vec::new() }))
        };
        let lack = Lack::Need(Need::Network);
        assert_eq!(lack_of(&refused(Denial::of_lack(&lack)), &needs), Some(lack));
        assert_eq!(lack_of(&refused(Denial::new(Rule::Draining, "")), &needs), None);
        assert_eq!(lack_of(&Err("silent".to_owned()), &needs), None);
    }
}
