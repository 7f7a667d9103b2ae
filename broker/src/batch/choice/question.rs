//! What is chosen from, and what an answer is.
//!
//! Invariant: values and costs are not negative, and so small that no sum over a batch overflows: see [`LARGEST`].

/// Values, costs and ends above this count as this: sums over 2^14 requests stay inside 62 bits.
pub const LARGEST: i64 = 1 << 48;
/// Most requests of one batch, so that sums stay in range.
pub const REQUESTS_MAX: usize = 1 << 14;
/// The work limit of the product, in states or nodes looked at: some tenths of a second with ten alternatives a request.
pub const WORK_MAX: u64 = 2_000_000;

/// One alternative of a request, by what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Its part in the objective; smaller is better.
    pub value: i64,
    /// Its cost, in thousandths of a credit.
    pub cost: i64,
    /// When its last seat ends, in seconds of any clock.
    pub end: i64,
}

impl Item {
    /// An item in range.
    #[must_use]
    pub fn new(value: i64, cost: u64, end: i64) -> Item {
        let cost = i64::try_from(cost).unwrap_or(LARGEST);
        Item { value: value.clamp(0, LARGEST), cost: cost.min(LARGEST), end: end.min(LARGEST) }
    }
}

/// The alternatives of all requests of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The alternatives of each request; a request may have none.
    pub items: &'a [Vec<Item>],
    /// The costs of what is chosen are at most this together.
    pub budget: Option<u64>,
    /// An end up to this is as good as any: something already ends there.
    pub floor: i64,
    /// After so many states or nodes the best answer known is taken.
    pub work: u64,
}

impl Question<'_> {
    /// The budget; without one, all that can be spent.
    pub(super) fn limit(&self) -> i64 {
        let most = self.items.iter().map(|of_one| of_one.iter().map(|item| item.cost).max().unwrap_or(0)).sum();
        self.budget.and_then(|budget| i64::try_from(budget).ok()).map_or(most, |budget| budget.min(most))
    }

    /// What these alternatives are worth together: requests without one, the sum of the values, and the latest end.
    pub(super) fn worth(&self, picks: &[Option<usize>]) -> Worth {
        let chosen = || self.items.iter().zip(picks).filter_map(|(items, pick)| pick.map(|pick| items[pick]));
        Worth {
            postponed: picks.iter().filter(|pick| pick.is_none()).count(),
            value: chosen().map(|item| item.value).sum(),
            end: chosen().map(|item| item.end).fold(self.floor, i64::max),
        }
    }
}

/// What is compared, in this order; smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Worth {
    /// Requests without an alternative.
    pub postponed: usize,
    /// The objective.
    pub value: i64,
    /// The latest end.
    pub end: i64,
}

/// Which alternative of each request is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// By request: the alternative's number; none when it is postponed.
    pub picks: Vec<Option<usize>>,
    /// What it is worth.
    pub worth: Worth,
    /// No choice of as many requests has a smaller value. Equal to the value when that is proven; none when more requests might be
    /// placed.
    pub bound: Option<i64>,
}

impl Choice {
    /// Whether no choice places more, and none of as many has a smaller value.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.bound == Some(self.worth.value)
    }
}
