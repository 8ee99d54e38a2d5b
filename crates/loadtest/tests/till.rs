//! The till: whatever is wrong with money or units, the check that is there for it complains.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use doorbuster_loadtest::{Aftermath, Life, SeenOrder, Spent, Till, Winner, till};
use doorbuster_wire::{ItemDetail, Money, OrderRow, PaymentRow, SaleDetail};
use hdrhistogram::Histogram;

const PRICE: i64 = 1_990;

/// What a rehearsal has seen and read.
#[derive(Clone)]
struct Books {
    lived: Aftermath,
    sale: SaleDetail,
    rows: Vec<OrderRow>,
    payments: Vec<PaymentRow>,
}

impl Books {
    fn till(&self) -> Till {
        till(&self.lived, &self.sale, &self.rows, &self.payments)
    }

    fn winner(&mut self, name: &str) -> &mut Winner {
        self.lived.winners.iter_mut().find(|it| it.order.order_id == name).unwrap()
    }

    fn row(&mut self, name: &str) -> &mut OrderRow {
        self.rows.iter_mut().find(|it| it.order_id == name).unwrap()
    }

    fn payment(&mut self, order: &str) -> &mut PaymentRow {
        self.payments.iter_mut().find(|it| it.order_id == order).unwrap()
    }
}

fn money() -> Money {
    Money { amount: "19.90".to_owned(), currency: "EUR".to_owned(), minor: PRICE }
}

fn row(order: &str, status: &str) -> OrderRow {
    OrderRow {
        order_id: order.to_owned(),
        sale_id: "1".to_owned(),
        item_id: "11".to_owned(),
        user_id: format!("user-of-{order}"),
        quantity: 1,
        status: status.to_owned(),
        reason: None,
        total: money(),
        reserved_at: String::new(),
        expires_at: String::new(),
    }
}

fn payment(order: &str, outcome: &str) -> PaymentRow {
    PaymentRow {
        provider: "sandbox".to_owned(),
        payment_id: format!("payment-of-{order}"),
        order_id: order.to_owned(),
        retaken_by: None,
        outcome: outcome.to_owned(),
        amount_minor: PRICE,
        currency: "EUR".to_owned(),
    }
}

fn winner(order: &str, life: Life, status: Option<&str>) -> Winner {
    Winner {
        order: SeenOrder {
            order_id: order.to_owned(),
            user_id: format!("user-of-{order}"),
            item_id: "11".into(),
            at_us: 0,
        },
        life,
        again: false,
        failed_tries: 0,
        spent: if status == Some("PAID") { Spent::Surely(PRICE, "EUR".to_owned()) } else { Spent::Nothing },
        status: status.map(str::to_owned),
        cancelled: status == Some("CANCELLED"),
        cut_short: None,
    }
}

/// Ten units: two paid (one after a failed try), one paid too late and to be given back, one given back
/// already, one cancelled and bought again, one abandoned. A stranger's order is paid too.
fn good() -> Books {
    let mut late = winner("late", Life::Pay, Some("EXPIRED"));
    late.spent = Spent::Surely(PRICE, "EUR".to_owned());
    late.cut_short = Some("EXPIRED".to_owned());
    let mut given_back = winner("given-back", Life::Pay, Some("PAID"));
    given_back.spent = Spent::Surely(PRICE, "EUR".to_owned());
    let failed = Winner { failed_tries: 1, ..winner("failed", Life::FailThenPay, Some("PAID")) };
    let mut again = Winner { again: true, ..winner("again", Life::CancelThenBuy, Some("PAID")) };
    again.order.user_id = "user-of-cancelled".to_owned();
    let winners = vec![
        winner("paid", Life::Pay, Some("PAID")),
        failed,
        late,
        given_back,
        winner("cancelled", Life::CancelThenBuy, Some("CANCELLED")),
        again,
        winner("abandoned", Life::Abandon, None),
    ];
    let mut rows = [
        ("paid", "PAID"),
        ("failed", "PAID"),
        ("late", "EXPIRED"),
        ("given-back", "REFUNDED"),
        ("cancelled", "CANCELLED"),
        ("again", "PAID"),
        ("abandoned", "PENDING"),
        ("stranger", "PAID"),
    ]
    .map(|(order, status)| row(order, status))
    .to_vec();
    rows[5].user_id = "user-of-cancelled".to_owned();
    let payments = [
        ("paid", "PAID"),
        ("failed", "PAID"),
        ("late", "REFUND_DUE"),
        ("given-back", "REFUNDED"),
        ("again", "PAID"),
        ("stranger", "PAID"),
    ];
    let item = ItemDetail {
        item_id: "11".to_owned(),
        product_id: "P".to_owned(),
        title: "P".to_owned(),
        price: money(),
        list_price: None,
        quantity: 10,
        sold: 5,
        free: Some(5),
    };
    Books {
        lived: Aftermath {
            winners,
            payment_us: Histogram::new(3).unwrap(),
            unfinished: 0,
            wall: Duration::from_secs(1),
        },
        sale: SaleDetail {
            sale_id: "1".to_owned(),
            name: "Drop".to_owned(),
            state: "open".to_owned(),
            fence: None,
            epoch: 1,
            opens_at: String::new(),
            closes_at: String::new(),
            payment_window_seconds: 600,
            max_units_per_user: 1,
            items: vec![item],
        },
        rows,
        payments: payments.map(|(order, outcome)| payment(order, outcome)).to_vec(),
    }
}

#[test]
fn sound_books_are_even_and_counted() {
    let till = good().till();
    assert!(till.is_even(), "{:?}", till.findings);
    assert_eq!((till.paid, till.cancelled, till.failed_tries, till.abandoned), (4, 1, 1, 1));
    assert_eq!((till.bought_again, till.refunds_due, till.cut_short["EXPIRED"]), (1, 1, 1));
    let money = till.money["EUR"];
    assert_eq!((money.captured, money.paid), (6 * PRICE, 4 * PRICE));
    assert_eq!((money.refunded, money.refund_due), (PRICE, PRICE));
}

#[test]
fn what_is_undecided_is_no_money_and_a_retake_is_paid_by_its_user() {
    let mut books = good();
    books.payments.push(PaymentRow { amount_minor: 1, ..payment("abandoned", "AMOUNT_MISMATCH") });
    // The late payment has bought anew: another order of the same user, which no client has seen.
    books.payment("late").outcome = "PAID".to_owned();
    books.payment("late").retaken_by = Some("retake".to_owned());
    books.rows.push(OrderRow { user_id: "user-of-late".to_owned(), ..row("retake", "PAID") });
    books.sale.items[0].free = Some(4);
    let till = books.till();
    assert!(till.is_even(), "{:?}", till.findings);
    assert_eq!(till.refunds_due, 0);
    // Before that, it waits.
    let mut books = good();
    books.payment("late").outcome = "LATE".to_owned();
    let till = books.till();
    assert!(till.is_even() && till.refunds_due == 0, "{:?}", till.findings);
    assert_eq!(till.money["EUR"].refund_due, PRICE);
}

/// What is spoilt, and how often which of the six checks complains: money lost, paid by nobody, paid
/// unseen, word broken, uneven, stranded.
type Mutation = (&'static str, [u64; 6], fn(&mut Books));

const MUTATIONS: &[Mutation] = &[
    ("a payment is not in the ledger", [1, 0, 0, 0, 1, 0], |it| {
        it.payments.retain(|payment| payment.order_id != "paid");
    }),
    ("a late payment is not in the ledger", [1, 0, 0, 0, 0, 0], |it| {
        it.payments.retain(|payment| payment.order_id != "late");
    }),
    ("a payment is of a cent less", [1, 0, 0, 0, 1, 0], |it| it.payment("paid").amount_minor -= 1),
    ("a payment is in another currency", [1, 0, 0, 0, 2, 0], |it| {
        it.payment("paid").currency = "USD".to_owned();
    }),
    ("a payment was never decided", [1, 0, 0, 0, 0, 0], |it| {
        it.payment("late").outcome = "AMOUNT_MISMATCH".to_owned();
    }),
    ("an order is paid that its client abandoned", [0, 1, 0, 0, 1, 0], |it| {
        it.row("abandoned").status = "PAID".to_owned();
    }),
    ("an order is paid that its client cancelled", [0, 1, 0, 1, 0, 1], |it| {
        it.row("cancelled").status = "PAID".to_owned();
        it.payments.push(payment("cancelled", "PAID"));
    }),
    ("a payment is there that its client did not make", [0, 1, 0, 0, 0, 0], |it| {
        it.payments.push(payment("abandoned", "REFUND_DUE"));
    }),
    ("an order is paid and its client saw it pending to the last", [0, 0, 1, 0, 0, 0], |it| {
        it.winner("paid").status = Some("PENDING".to_owned());
    }),
    ("a paid order expired", [0, 0, 0, 1, 1, 1], |it| it.row("paid").status = "EXPIRED".to_owned()),
    ("a cancelled order lives on", [0, 0, 0, 1, 0, 1], |it| {
        it.row("cancelled").status = "PENDING".to_owned();
    }),
    ("a cancelled order expired", [0, 0, 0, 1, 0, 0], |it| it.row("cancelled").status = "EXPIRED".to_owned()),
    ("money is given back of an order that stays paid", [0, 0, 0, 0, 1, 0], |it| {
        it.payment("stranger").outcome = "REFUNDED".to_owned();
    }),
    ("a refund is more than what was paid", [1, 0, 0, 0, 0, 0], |it| it.payment("late").amount_minor += 1),
    ("a unit did not come back", [0, 0, 0, 0, 0, 1], |it| it.sale.items[0].free = Some(4)),
    ("two units came back twice", [0, 0, 0, 0, 0, 2], |it| it.sale.items[0].free = Some(7)),
    ("a paid order has no row", [0, 0, 0, 1, 1, 1], |it| it.rows.retain(|row| row.order_id != "paid")),
];

#[test]
fn every_imbalance_is_complained_about_by_its_check_alone() {
    for (what, faults, spoil) in MUTATIONS {
        let mut books = good();
        spoil(&mut books);
        let till = books.till();
        let found = [
            till.money_lost,
            till.paid_by_nobody,
            till.paid_unseen,
            till.word_broken,
            till.uneven,
            till.stranded,
        ];
        assert_eq!(found, *faults, "{what}: {:?}", till.findings);
        assert!(!till.is_even() && !till.findings.is_empty(), "{what}");
    }
    for check in 0..6 {
        assert!(MUTATIONS.iter().any(|(_, faults, _)| faults[check] > 0), "no mutation for check {check}");
    }
}
