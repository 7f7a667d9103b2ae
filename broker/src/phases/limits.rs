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
    /// Nodes of the first exact search for a feasible host set at one start.
    pub feasibility_nodes: u32,
    /// Nodes of the second one, for a start that the first one left open.
    pub feasibility_nodes_max: u32,
    /// Nodes of all exact searches of one planning run; later starts that need more stay unproven.
    pub feasibility_nodes_in_all: u64,
    /// Nodes of the enumeration that proves a host set optimal.
    pub enumeration_nodes: u32,
    /// Boxes examined for the upper bound of the efficiency factor.
    pub bound_boxes: u32,
    /// How often swaps and boxes are doubled while the bound is far above the best factor.
    pub escalations: u32,
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
                feasibility_nodes_max: 2_000_000,
                feasibility_nodes_in_all: 10_000_000,
                enumeration_nodes: 1_000,
                bound_boxes: 1,
                escalations: 0,
            },
            Effort::Balanced => Limits {
                l1: 7,
                l2: 10,
                multiplier_steps: 48,
                feasibility_nodes: 20_000,
                feasibility_nodes_max: 5_000_000,
                feasibility_nodes_in_all: 40_000_000,
                enumeration_nodes: 6_000,
                bound_boxes: 16,
                escalations: 5,
            },
            Effort::Thorough => Limits {
                l1: 20,
                l2: 100,
                multiplier_steps: 200,
                feasibility_nodes: 200_000,
                feasibility_nodes_max: 20_000_000,
                feasibility_nodes_in_all: 1_280_000_000,
                enumeration_nodes: 2_000_000,
                bound_boxes: 512,
                escalations: 0,
            },
        }
    }
}
