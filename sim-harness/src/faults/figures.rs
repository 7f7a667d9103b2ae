//! What is counted in simulated runs.
//!
//! Invariant: sums over seeds do not depend on the order in which the seeds were run.

use broker::{
    protocol::{Quote, Refusal, RefusalReason, SiteAnswer},
    trust::Rule,
};
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;

/// Declares [`Figures`]: its counts in the order of printing, each with its name in tables.
macro_rules! figures {
    ($($(#[$doc:meta])* $count:ident: $name:literal,)*) => {
        /// Counts over one or many seeds.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
        pub struct Figures {
            $($(#[$doc])* pub $count: u64,)*
        }

        impl Figures {
            /// Names and values in the order of printing.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$count)),*]
            }

            /// Adds the counts of other seeds.
            pub fn add(&mut self, other: &Figures) {
                $(self.$count += other.$count;)*
            }
        }
    };
}

figures! {
    /// Seeds run.
    seeds: "seeds",
    /// Events.
    steps: "steps",
    /// Crashes of nodes.
    crashes: "crashes",
    /// Times that links were cut.
    partitions: "partitions",
    /// Messages sent.
    sent: "messages sent",
    /// Of these, lost.
    lost: "messages lost",
    /// Of these, not sent for want of a descriptor for a new connection.
    unconnected: "messages unconnected",
    /// Of these, arrived twice.
    repeated: "messages repeated",
    /// Holds that an attacker asked for without a right to them.
    attacks: "attacks",
    /// Holds of which a site gave a part on other hosts than were named.
    substituted: "substituted",
    /// Times that seats were moved to make room for others, and that was written.
    rearranged: "rearranged",
    /// Seats that were bound to a host of their class.
    bound: "bound",
    /// Reservations that have waited for own jobs.
    waited: "waited",
    /// Times that an owner took something away.
    shrinks: "shrinks",
    /// Of these, times that a reservation had begun on what was taken away.
    shrinks_in_use: "shrinks in use",
    /// Times that an owner took the hosts of a site back from a request.
    evicted: "evicted",
    /// Changes of an owner's prices.
    price_changes: "price changes",
    /// Holds refused for another price.
    refused_price: "refused for a price",
    /// Times that an owner changed rules; holds refused by such rules.
    rule_changes: "rule changes",
    refused_rule: "refused by a rule",
    /// Times that a site began to doubt its clock, or started in doubt; holds refused for it.
    clocks_doubted: "clocks doubted",
    refused_clock: "refused for a clock",
    /// Times that a disk was full; that a site promised nothing more for it; that a write was refused and the node stopped.
    disks_filled: "disks filled",
    rooms_missed: "rooms missed",
    writes_refused: "writes refused",
    /// Times that a disk had lost what it had told was written; bookings that were lost by it.
    lies: "disks that lied",
    promises_lost: "promises lost by disks",
    /// Times that a node ran out of descriptors.
    shortages: "descriptors out",
    /// Requests that an entry point did not take, for want of room or of a descriptor; their users came back.
    turned_away: "turned away",
    /// Times that an owner began to empty a site.
    drained: "drained",
    /// Holds refused there.
    refused_draining: "refused where drained",
    /// Holds refused for the share of a user, a node or a network.
    refused_share: "refused for a share",
    /// What owners ordered for their own queues; jobs that were acknowledged.
    own_orders: "own orders",
    own_jobs: "own jobs",
    /// Quotes of holds that would cost own jobs something.
    quoted: "quotes above nothing",
    /// Holds refused for what they would cost own jobs.
    refused_own: "refused for own jobs",
    /// Holds of a node that confirms none.
    hoarded: "hoarded",
    /// Holds refused since others of the same node have lapsed.
    refused_lapses: "refused for lapses",
    /// Times that a user learned that hosts are lost.
    degraded: "degraded",
    /// Times that a user learned that a reservation is whole again, at the same start.
    repaired: "repaired",
    /// Times that a user learned that a reservation is whole again, at another start.
    moved: "moved",
    /// Coordinators that were gone for good by intent.
    deserted: "coordinators gone",
    /// Times that another node took a request over.
    taken_over: "taken over",
    /// Requests of users.
    requests: "requests",
    /// Requests that were reserved at the end.
    reservations: "reservations",
    /// Of these, of work; with a deadline; of whole hosts; with a limit of sites.
    of_work: "of work",
    by_deadline: "by a deadline",
    of_whole_hosts: "of whole hosts",
    at_few_sites: "at few sites",
    /// Of these, of a list of shapes; not of the first of them.
    of_shapes: "of shapes",
    of_other_shapes: "not of the first shape",
    /// Of these, moldable; at another factor than 1.
    moldable: "moldable",
    scaled: "scaled",
    /// Of these, with traffic.
    with_traffic: "with traffic",
    /// Bookings at the end that put something on the uplink of their site, which has a limit.
    over_links: "over links",
    /// Of these, by a plan that was handed in.
    handed_in: "by a handed plan",
    /// Of these, of a batch.
    of_batches: "of a batch",
    /// Batches that were reserved as a whole.
    tied: "whole batches",
    /// Requests without a placement.
    rejected: "rejected",
    /// Requests given up, since sites did not answer or others were faster.
    failed: "failed",
    /// Requests cancelled.
    cancelled: "cancelled",
    /// Requests of which nothing was reported, since the entry point was gone for good or crashed before it had them.
    never_told: "never reported",
    /// Seeds in which an invariant did not hold.
    violations: "violations",
}

impl Figures {
    /// Counts the answer of a site, if it is a quote or a refusal that is counted.
    pub fn note_answer(&mut self, answer: &SiteAnswer) {
        self.quoted += u64::from(matches!(answer, SiteAnswer::Quoted { quote, .. } if *quote != Quote::default()));
        let SiteAnswer::Refused(Refusal { reason, .. }) = answer else { return };
        self.refused_price += u64::from(matches!(reason, RefusalReason::PriceChanged { .. }));
        self.refused_rule += u64::from(matches!(reason, RefusalReason::NotOffered { .. }));
        let RefusalReason::NotAllowed(denial) = reason else { return };
        self.refused_clock += u64::from(denial.rule == Rule::Clock);
        self.refused_draining += u64::from(denial.rule == Rule::Draining);
        self.refused_own += u64::from(denial.rule == Rule::OwnQueue);
        self.refused_lapses += u64::from(denial.rule == Rule::LapsedHolds);
        self.refused_share += u64::from(matches!(denial.rule, Rule::SiteShare | Rule::UserShare));
    }

    /// The figures of seeds from `from` on as a table.
    pub fn table(&self, from: u64, seconds: f64) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["", "count"]);
        table.add_row(["first seed".to_owned(), from.to_string()]);
        for (name, value) in self.rows() {
            table.add_row([name.to_owned(), value.to_string()]);
        }
        table.add_row(["seconds".to_owned(), format!("{seconds:.1}")]);
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n")
    }
}
