//! I12: with more demand than stock, everything is sold in the end.

use std::collections::BTreeSet;

use super::{Evidence, Findings};
use crate::history::Wish;

/// I12: nothing is stranded and nothing leaks: of every item that the clients wanted, all is sold.
pub(super) fn everything_is_sold(evidence: &Evidence<'_>, found: &mut Findings) {
    if !evidence.circumstances.demand_above_stock || !evidence.circumstances.at_rest {
        return;
    }
    let wanted: BTreeSet<_> = evidence
        .history
        .calls
        .iter()
        .filter_map(|call| match &call.wish {
            Wish::Purchase { item, .. } => Some(*item),
            Wish::Cancel { .. } | Wish::Look { .. } | Wish::Pay { .. } => None,
        })
        .collect();
    for id in wanted {
        match evidence.index.items.get(&id) {
            Some(item) if item.sold == item.quantity => {}
            Some(item) => {
                found.add(format!("item {id}: {} of {} sold, and more was wanted", item.sold, item.quantity))
            }
            None => found.add(format!("item {id} was wanted and is not in the ledger")),
        }
    }
}
