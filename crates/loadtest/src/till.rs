//! The till: what the clients paid, cancelled and were told, against what the ledger has.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use doorbuster_wire::{OrderRow, PaymentRow, SaleDetail};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::admin::{AdminClient, AdminError};
use crate::aftermath::{Aftermath, Life, Spent, Winner};
use crate::latency::Latency;

/// Most findings that are kept in words; the counts are never cut off.
const MAX_FINDINGS: usize = 50;
/// Pause between two looks at the ledger; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What became of the winners' orders and their money. Counts of people and orders are the clients' own;
/// sums are the ledger's payments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Till {
    /// Orders whose JSON told their client `PAID`.
    pub paid: u64,
    /// Orders whose cancellation was answered by `CANCELLED`.
    pub cancelled: u64,
    /// Tries to pay that the provider took and that could not pay the order.
    pub failed_tries: u64,
    /// Winners who never tried to pay.
    pub abandoned: u64,
    /// Orders that were bought again after a cancellation.
    pub bought_again: u64,
    /// Winners who could not do what they wanted, by the word that stopped them.
    pub cut_short: BTreeMap<String, u64>,
    /// Payments that are to be given back.
    pub refunds_due: u64,
    /// The ledger's payments of the whole sale, by currency.
    pub money: BTreeMap<String, Money>,
    /// From the click that pays to the order's JSON that says `PAID`; `null` when nobody paid. The
    /// server's long poll adds up to 250 ms.
    pub payment_ms: Option<Latency>,
    /// Payments that a client's provider took and the ledger has not, not over that sum, or neither as
    /// paid nor as given back.
    pub money_lost: u64,
    /// Orders that are PAID, and payments, which no client made.
    pub paid_by_nobody: u64,
    /// Orders whose client paid them, and whose last word to the client is neither `PAID` nor belied by
    /// a refund.
    pub paid_unseen: u64,
    /// Orders whose client was told `CANCELLED`, or PAID, and whose row says something else.
    pub word_broken: u64,
    /// Currencies in which what was captured is not what was paid and what is given back.
    pub uneven: u64,
    /// Units that nobody holds and that are not on sale either, or are on sale twice.
    pub stranded: u64,
    /// The first faults in words, with ids, at most 50.
    #[serde(skip)]
    pub findings: Vec<String>,
}

/// Sums of payments, in minor units of one currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Money {
    /// Everything that was decided: paid, given back, and on its way.
    pub captured: i64,
    /// The totals of the orders that are PAID.
    pub paid: i64,
    /// Given back.
    pub refunded: i64,
    /// To be given back, or waiting for the order that is bought anew with it.
    pub refund_due: i64,
}

impl Till {
    /// Whether money and units are where they belong.
    pub fn is_even(&self) -> bool {
        self.faults().iter().all(|(_, _, count)| *count == 0)
    }

    /// Every promise about money with its name in JSON and what breaks it.
    pub(crate) fn faults(&self) -> [(&'static str, &'static str, u64); 6] {
        [
            ("moneyLost", "payments that a client made and the ledger has not", self.money_lost),
            ("paidByNobody", "payments and paid orders that no client paid", self.paid_by_nobody),
            ("paidUnseen", "orders that are paid and did not tell their client", self.paid_unseen),
            ("wordBroken", "orders that are not what their client was told at last", self.word_broken),
            ("uneven", "currencies in which captured is not paid and refunded", self.uneven),
            ("stranded", "units that nobody has and that are not on sale", self.stranded),
        ]
    }

    fn find(&mut self, finding: impl FnOnce() -> String) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding());
        }
    }
}

/// What an outcome's word says of the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Paid,
    Due,
    Refunded,
    Nothing,
}

fn kept(payment: &PaymentRow) -> Kept {
    match payment.outcome.as_str() {
        "PAID" => Kept::Paid,
        "REFUND_DUE" | "LATE" => Kept::Due,
        "REFUNDED" => Kept::Refunded,
        _ => Kept::Nothing,
    }
}

/// Counts the till until it is even and nothing moves, or the deadline has passed: webhooks and returned
/// units are on their way for a moment. What is wrong then is for [`Till`] to tell.
///
/// # Errors
/// When the sale or a listing cannot be read.
pub async fn count_till(
    admin: &AdminClient,
    sale_id: &str,
    aftermath: &Aftermath,
    deadline: Duration,
) -> Result<Till, AdminError> {
    let until = Instant::now() + deadline;
    let mut pause = FIRST_PAUSE;
    loop {
        let before = admin.sale(sale_id).await?;
        let rows = admin.all_orders(sale_id).await?;
        let payments = admin.all_payments(sale_id).await?;
        let sale = admin.sale(sale_id).await?;
        let till = till(aftermath, &sale, &rows, &payments);
        if (till.is_even() && before.items == sale.items) || Instant::now() >= until {
            return Ok(till);
        }
        sleep_until((Instant::now() + pause).min(until)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Counts the till once: what the winners did and saw, the sale with its free units, every order and every
/// payment of it.
pub fn till(aftermath: &Aftermath, sale: &SaleDetail, rows: &[OrderRow], payments: &[PaymentRow]) -> Till {
    let mut till = Till::default();
    for winner in &aftermath.winners {
        count(&mut till, winner);
    }
    if aftermath.unfinished > 0 {
        till.cut_short.insert("UNFINISHED".to_owned(), aftermath.unfinished);
    }
    let histogram = &aftermath.payment_us;
    till.payment_ms = (!histogram.is_empty()).then(|| Latency::of(histogram));
    let books = Books::of(rows, payments);
    for winner in &aftermath.winners {
        check_winner(&mut till, winner, &books);
    }
    check_strangers(&mut till, aftermath, &books);
    check_sums(&mut till, rows, payments);
    check_units(&mut till, sale, rows);
    till
}

/// The ledger's rows by order.
struct Books<'a> {
    rows: HashMap<&'a str, &'a OrderRow>,
    payments: HashMap<&'a str, Vec<&'a PaymentRow>>,
}

impl<'a> Books<'a> {
    fn of(rows: &'a [OrderRow], payments: &'a [PaymentRow]) -> Self {
        let mut by_order: HashMap<&str, Vec<_>> = HashMap::new();
        for payment in payments {
            by_order.entry(&payment.order_id).or_default().push(payment);
        }
        let rows = rows.iter().map(|row| (row.order_id.as_str(), row)).collect();
        Self { rows, payments: by_order }
    }

    fn payments(&self, order: &str) -> &[&'a PaymentRow] {
        self.payments.get(order).map_or(&[], Vec::as_slice)
    }
}

fn count(till: &mut Till, winner: &Winner) {
    till.paid += u64::from(winner.status.as_deref() == Some("PAID"));
    till.cancelled += u64::from(winner.cancelled);
    till.failed_tries += u64::from(winner.failed_tries);
    till.abandoned += u64::from(winner.life == Life::Abandon);
    till.bought_again += u64::from(winner.again);
    if let Some(word) = &winner.cut_short {
        *till.cut_short.entry(word.clone()).or_default() += 1;
    }
}

fn check_winner(till: &mut Till, winner: &Winner, books: &Books<'_>) {
    let id = winner.order.order_id.as_str();
    let payments = books.payments(id);
    let row = books.rows.get(id);
    let status = row.map_or("no row", |row| row.status.as_str());
    if let Spent::Surely(minor, currency) = &winner.spent {
        let is_it = |it: &&&PaymentRow| {
            kept(it) != Kept::Nothing && (it.amount_minor, &it.currency) == (*minor, currency)
        };
        match payments.iter().find(is_it).map(|it| kept(it)) {
            None => {
                till.money_lost += 1;
                till.find(|| {
                    format!("order {id}: its client paid {minor} {currency}, the ledger has not got it")
                });
            }
            Some(Kept::Paid) if status == "PAID" && winner.status.as_deref() != Some("PAID") => {
                till.paid_unseen += 1;
                let told = winner.status.as_deref().unwrap_or("nothing");
                till.find(|| format!("order {id} is paid, and its client was told {told}"));
            }
            Some(_) => {}
        }
    }
    // PAID may become REFUNDED, and an order that was cancelled stays that.
    let is_kept = match winner.status.as_deref() {
        _ if winner.cancelled => status == "CANCELLED",
        Some("PAID") => matches!(status, "PAID" | "REFUNDED"),
        _ => true,
    };
    if !is_kept {
        till.word_broken += 1;
        let told = winner.status.as_deref().unwrap_or("nothing");
        till.find(|| format!("order {id}: its client was told {told}, the ledger says {status}"));
    }
    if winner.spent == Spent::Nothing && payments.iter().any(|it| kept(it) != Kept::Nothing) {
        till.paid_by_nobody += 1;
        till.find(|| format!("order {id} has a payment that its client did not make"));
    }
}

/// Orders of our winners' users that are paid, though none of their payments can have paid them. A late
/// payment may buy anew, as another order of the same user.
fn check_strangers(till: &mut Till, aftermath: &Aftermath, books: &Books<'_>) {
    let (mut ours, mut payers, mut known) = (HashSet::new(), HashSet::new(), HashSet::new());
    for winner in &aftermath.winners {
        ours.insert(winner.order.user_id.as_str());
        if winner.spent == Spent::Nothing {
            // A payment for it was counted above.
            if !books.payments(&winner.order.order_id).is_empty() {
                known.insert(winner.order.order_id.as_str());
            }
        } else {
            payers.insert(winner.order.user_id.as_str());
        }
    }
    for row in books.rows.values() {
        let (id, user) = (row.order_id.as_str(), row.user_id.as_str());
        let is_ours = ours.contains(user) && !payers.contains(user) && !known.contains(id);
        if row.status == "PAID" && is_ours {
            till.paid_by_nobody += 1;
            till.find(|| format!("order {id} is PAID, and its client did not pay"));
        }
    }
}

/// What was captured is paid or given back, over all orders of the sale.
fn check_sums(till: &mut Till, rows: &[OrderRow], payments: &[PaymentRow]) {
    for row in rows.iter().filter(|row| row.status == "PAID") {
        till.money.entry(row.total.currency.clone()).or_default().paid += row.total.minor;
    }
    for payment in payments {
        let kept = kept(payment);
        if kept == Kept::Nothing {
            continue;
        }
        let money = till.money.entry(payment.currency.clone()).or_default();
        money.captured += payment.amount_minor;
        match kept {
            Kept::Due => {
                money.refund_due += payment.amount_minor;
                till.refunds_due += u64::from(payment.outcome == "REFUND_DUE");
            }
            Kept::Refunded => money.refunded += payment.amount_minor,
            Kept::Paid | Kept::Nothing => {}
        }
    }
    for (currency, money) in till.money.clone() {
        let Money { captured, paid, refunded, refund_due } = money;
        if captured != paid + refunded + refund_due {
            till.uneven += 1;
            till.find(|| {
                format!(
                    "{currency}, minor units: {captured} captured, {paid} paid, {refunded} given back, {refund_due} \
                     to be given back"
                )
            });
        }
    }
}

/// Every unit is somebody's or on sale.
fn check_units(till: &mut Till, sale: &SaleDetail, rows: &[OrderRow]) {
    let mut live: HashMap<&str, u64> = HashMap::new();
    for row in rows.iter().filter(|row| matches!(row.status.as_str(), "PENDING" | "PAID")) {
        *live.entry(row.item_id.as_str()).or_default() += u64::from(row.quantity);
    }
    for item in &sale.items {
        let live = live.get(item.item_id.as_str()).copied().unwrap_or(0);
        let wanted = item.quantity.saturating_sub(live);
        // A sale that is fenced at this moment has no free units to tell of.
        let free = item.free.unwrap_or(0);
        if free != wanted {
            till.stranded += free.abs_diff(wanted);
            till.find(|| {
                format!(
                    "item {}: {free} units are on sale, {live} of {} are somebody's",
                    item.item_id, item.quantity
                )
            });
        }
    }
}
