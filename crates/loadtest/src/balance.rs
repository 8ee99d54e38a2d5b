//! The books: what the clients saw against what the ledger lists.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use doorbuster_wire::OrderRow;
use tokio::time::{Instant, sleep_until};

use crate::admin::{AdminClient, AdminError};
use crate::witness::Storm;

/// Most findings that are kept in words; the counts are never cut off.
const MAX_FINDINGS: usize = 50;
/// The first pause between two looks at the order list; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The order list as it stood when [`settle`] ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Every order of the sale.
    pub rows: Vec<OrderRow>,
    /// How many 202s still had no row at the deadline; 0 when all were recorded.
    pub missing: usize,
    /// How long the wait was.
    pub waited: Duration,
}

/// Waits until every 202 of the storm is a row in the sale's order list, or the deadline passed.
///
/// Queued orders become rows as the ledger catches up; whatever is missing in the end is for
/// [`balance`] to judge. The list is read at least once, even with a deadline of zero.
///
/// # Errors
/// When the order list cannot be read.
pub async fn settle(
    admin: &AdminClient,
    sale_id: &str,
    storm: &Storm,
    deadline: Duration,
) -> Result<Settled, AdminError> {
    let begin = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let rows = admin.all_orders(sale_id).await?;
        let mut missing = storm.accepted_ids();
        missing.extend(storm.again.iter().map(|seen| seen.order_id.as_str()));
        for row in &rows {
            missing.remove(row.order_id.as_str());
        }
        let now = Instant::now();
        let missing = missing.len();
        if missing == 0 || now >= begin + deadline {
            return Ok(Settled { rows, missing, waited: now - begin });
        }
        sleep_until((now + pause).min(begin + deadline)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether a sale kept its promises. Everything in it comes from the clients' own lists and the
/// order list, never from a server's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Units for sale, over all items.
    pub units: u64,
    /// Units of live orders: `PENDING` or `PAID`.
    pub sold: u64,
    /// Live units beyond the quantity, summed over the items. An item that the quantities do not
    /// name has none.
    pub oversold: u64,
    /// Orders that a client has a 202 for, each once, with no row or a `REJECTED` one.
    pub lost: u64,
    /// Users whose live units in the sale exceed the limit.
    pub duplicates: u64,
    /// Contradictions of other kinds: a row whose user or item is not that of the client's 202, an
    /// order id given to two users, two rows with one id, a status that does not exist.
    pub mismatches: u64,
    /// Orders that a 409 named to their user and that have no row or a `REJECTED` one. Told, not
    /// judged: after `OUTCOME_UNKNOWN` the ledger may refuse.
    pub held_without_row: u64,
    /// The first faults in words, with ids, at most 50.
    pub findings: Vec<String>,
}

impl Balance {
    /// Whether nothing was oversold, lost, sold twice or mixed up.
    pub fn is_even(&self) -> bool {
        self.oversold == 0 && self.lost == 0 && self.duplicates == 0 && self.mismatches == 0
    }

    fn find(&mut self, finding: impl FnOnce() -> String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding());
        }
    }
}

/// Draws the balance of one sale.
///
/// `quantity_by_item` is what was for sale, by item id; `limit` the most units one user may hold in
/// the whole sale; `rows` every order of the sale, as [`settle`] read them.
pub fn balance(
    quantity_by_item: &BTreeMap<String, u64>,
    limit: u64,
    storm: &Storm,
    rows: &[OrderRow],
) -> Balance {
    let mut balance = Balance { units: quantity_by_item.values().sum(), ..Balance::default() };
    let by_id = check_rows(&mut balance, rows);
    check_quantities(&mut balance, quantity_by_item, rows);
    check_limit(&mut balance, limit, rows);
    check_accepted(&mut balance, storm, &by_id);
    check_held(&mut balance, storm, &by_id);
    balance
}

fn is_live(row: &OrderRow) -> bool {
    matches!(row.status.as_str(), "PENDING" | "PAID")
}

fn check_rows<'a>(balance: &mut Balance, rows: &'a [OrderRow]) -> HashMap<&'a str, &'a OrderRow> {
    let mut by_id = HashMap::with_capacity(rows.len());
    for row in rows {
        if by_id.insert(row.order_id.as_str(), row).is_some() {
            balance.mismatches += 1;
            balance.find(|| format!("order {} has two rows", row.order_id));
        }
        let is_known = matches!(
            row.status.as_str(),
            "PENDING" | "PAID" | "EXPIRED" | "CANCELLED" | "REJECTED" | "REFUNDED"
        );
        if !is_known {
            balance.mismatches += 1;
            balance.find(|| format!("order {} has status {:?}", row.order_id, row.status));
        }
    }
    by_id
}

fn check_quantities(balance: &mut Balance, quantity_by_item: &BTreeMap<String, u64>, rows: &[OrderRow]) {
    let mut live: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_live(row)) {
        *live.entry(&row.item_id).or_default() += u64::from(row.quantity);
    }
    for (item, units) in live {
        let quantity = quantity_by_item.get(item).copied().unwrap_or(0);
        let over = units.saturating_sub(quantity);
        balance.sold += units;
        balance.oversold += over;
        if over > 0 {
            balance.find(|| format!("item {item}: {units} live units of {quantity}, {over} too many"));
        }
    }
}

fn check_limit(balance: &mut Balance, limit: u64, rows: &[OrderRow]) {
    let mut live: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_live(row)) {
        let (units, orders) = live.entry(&row.user_id).or_default();
        *units += u64::from(row.quantity);
        orders.push(&row.order_id);
    }
    for (user, (units, orders)) in live {
        if units > limit {
            balance.duplicates += 1;
            balance.find(|| {
                let orders = orders.join(", ");
                format!("user {user}: {units} live units, the limit is {limit} ({orders})")
            });
        }
    }
}

fn check_accepted(balance: &mut Balance, storm: &Storm, by_id: &HashMap<&str, &OrderRow>) {
    let mut owners: HashMap<&str, &str> = HashMap::with_capacity(storm.accepted.len());
    for seen in storm.accepted.iter().chain(&storm.again) {
        let (order, user, item) = (&seen.order_id, &seen.user_id, &seen.item_id);
        if let Some(owner) = owners.insert(order, user) {
            if owner != user {
                balance.mismatches += 1;
                balance.find(|| format!("order {order} was given to {owner} and to {user}"));
            }
            continue;
        }
        let Some(row) = by_id.get(order.as_str()) else {
            balance.lost += 1;
            balance.find(|| format!("order {order} of {user} got a 202 and has no row"));
            continue;
        };
        if row.status == "REJECTED" {
            let reason = row.reason.as_deref().unwrap_or("no reason");
            balance.lost += 1;
            balance.find(|| format!("order {order} of {user} got a 202 and was rejected: {reason}"));
        }
        if row.user_id != *user || row.item_id != **item {
            balance.mismatches += 1;
            balance.find(|| {
                let (row_user, row_item) = (&row.user_id, &row.item_id);
                format!("order {order} of {user}, item {item}, is {row_user}'s, item {row_item}")
            });
        }
    }
}

fn check_held(balance: &mut Balance, storm: &Storm, by_id: &HashMap<&str, &OrderRow>) {
    for seen in &storm.held {
        let (order, user) = (&seen.order_id, &seen.user_id);
        match by_id.get(order.as_str()) {
            None => balance.held_without_row += 1,
            Some(row) if row.status == "REJECTED" => balance.held_without_row += 1,
            Some(_) => {}
        }
        if let Some(row) = by_id.get(order.as_str())
            && row.user_id != *user
        {
            balance.mismatches += 1;
            balance.find(|| format!("order {order}, named to {user}, is {}'s", row.user_id));
        }
    }
}
