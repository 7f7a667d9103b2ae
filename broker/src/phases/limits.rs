//! How much work an [`Effort`] allows. Every limit counts steps, never seconds, so that the same seed gives the same
//! answer however busy the machine is. (Between platforms the last bit of a logarithm may differ.)

use crate::request::Effort;

/// Limits of one planning run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The source's `L1`: phase IV makes at most `N L1` swaps at one start.
    pub l1: u32,
    /// The source's `L2`, widened: phase V evaluates at most `2 N L2` swaps for every host left outside.
    pub l2: u32,
    /// Iterations of the search for multipliers that exclude a start.
    pub multiplier_steps: u32,
    /// Nodes of the exact search for a feasible host set at one start.
    pub feasibility_nodes: u32,
    /// Exact searches in one planning run; later starts that need one stay unproven.
    pub feasibility_searches: u32,
    /// Nodes of the enumeration that proves a host set optimal.
    pub enumeration_nodes: u32,
    /// Boxes examined for the upper bound of the efficiency factor.
    pub bound_boxes: u32,
}

impl Limits {
    /// The limits of `effort`. `balanced` uses the source's `L1` = 7 and `L2` = 10 (section 3.4.3).
    #[must_use]
    pub fn of(effort: Effort) -> Limits {
        match effort {
            Effort::Fast => Limits {
                l1: 3,
                l2: 2,
                multiplier_steps: 24,
                feasibility_nodes: 5_000,
                feasibility_searches: 8,
                enumeration_nodes: 1_000,
                bound_boxes: 1,
            },
            Effort::Balanced => Limits {
                l1: 7,
                l2: 10,
                multiplier_steps: 48,
                feasibility_nodes: 200_000,
                feasibility_searches: 32,
                enumeration_nodes: 6_000,
                bound_boxes: 16,
            },
            Effort::Thorough => Limits {
                l1: 20,
                l2: 100,
                multiplier_steps: 200,
                feasibility_nodes: 5_000_000,
                feasibility_searches: 256,
                enumeration_nodes: 2_000_000,
                bound_boxes: 512,
            },
        }
    }
}
