//! What the winners did after the storm, and where the money is.

use maud::{Markup, html};

use super::{head, verdict};
use crate::render::grouped;
use crate::report::Report;

/// What the promises about money are called.
const PROMISES: [(&str, &str); 6] = [
    ("moneyLost", "No money lost"),
    ("paidByNobody", "Nothing paid by nobody"),
    ("paidUnseen", "Whoever paid is told so"),
    ("wordBroken", "What was told stays true"),
    ("uneven", "Captured = paid + refunded"),
    ("stranded", "No unit stranded"),
];

/// The promises about money, as rows of the table of promises.
pub(super) fn promises(report: &Report) -> Markup {
    let faults = report.till.as_ref().map(|till| till.faults());
    let promise = |name: &str| PROMISES.iter().find(|(known, _)| *known == name).map_or("", |it| it.1);
    html! {
        @for (name, meaning, count) in faults.into_iter().flatten() { tr {
            th scope="row" { (promise(name)) small { (meaning) } }
            td class="n" { (grouped(count)) }
            td { (verdict(count == 0)) }
        } }
    }
}

/// The section about the winners; nothing when none lived on.
pub(super) fn till(report: &Report) -> Markup {
    let Some(till) = &report.till else { return html! {} };
    let row = |what: &str, word: &str, count: u64| {
        html! { tr { th scope="row" { (what) small { (word) } } td class="n" { (grouped(count)) } } }
    };
    html! {
        section {
            h2 { "What the winners did" }
            div.wide { table {
                (head(&[("After the storm", false), ("Count", true)]))
                tbody {
                    (row("orders paid", "their client was told PAID", till.paid))
                    (row("tries that failed", "before the payment that worked", till.failed_tries))
                    (row("orders cancelled", "before paying", till.cancelled))
                    (row("orders bought again", "by who had cancelled", till.bought_again))
                    (row("winners who never paid", "their orders expire", till.abandoned))
                    (row("payments to be given back", "they came too late or twice", till.refunds_due))
                    @for (word, count) in &till.cut_short {
                        (row("could not do what they wanted", word, *count))
                    }
                }
            } }
            @if !till.money.is_empty() {
                h3 { "Money, in minor units" }
                div.wide { table {
                    (head(&[("Currency", false), ("Captured", true), ("Paid", true), ("Refunded", true), ("To be refunded", true)]))
                    tbody { @for (currency, money) in &till.money { tr {
                        th scope="row" { (currency) }
                        @for sum in [money.captured, money.paid, money.refunded, money.refund_due] {
                            td class="n" { (sum) }
                        }
                    } } }
                } }
            }
            @if let Some(latency) = &till.payment_ms {
                p {
                    "From the click that pays to the order that says PAID: half within "
                    (format!("{:.0} ms, 99 % within {:.0} ms, the slowest {:.0} ms", latency.p50, latency.p99, latency.max))
                    ". The server looks every 250 ms for who waits."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PROMISES;
    use crate::report::{sample, sample_with_till};

    #[test]
    fn every_promise_about_money_has_its_row() {
        let mut report = sample_with_till();
        let faults = report.till.as_ref().unwrap().faults();
        assert!(faults.iter().all(|(name, _, _)| PROMISES.iter().any(|(known, _)| known == name)));
        let page = report.html();
        assert!(PROMISES.iter().all(|(_, promise)| page.contains(promise)) && !page.contains("FAIL"));
        assert!(
            page.contains("61690") && page.contains("99 % within 300 ms") && page.contains("ORDER_CLOSED")
        );
        report.till.as_mut().unwrap().stranded = 3;
        assert_eq!(report.html().matches("FAIL").count(), 3, "title, heading and row");
        assert!(!sample().html().contains("What the winners did"));
    }
}
