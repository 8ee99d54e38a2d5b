//! Expectations of a report, such as `202.p99<100ms`: read before the storm, judged after it.
//!
//! ```text
//! assert = name comparison value        (spaces may stand between them)
//! name   = status "." percentile | "answers." status | "rejected." WORD | a figure of the report
//! comparison = "<" | "<=" | "==" | "!=" | ">=" | ">"
//! value  = a whole number, or a duration such as 250us, 100ms, 1.5s
//! ```

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::latency::Percentile;
use crate::report::Report;
use crate::till::{Money, Till};

/// What can be asserted, for the message that refuses a name.
const NAMES: &str = "latencies 202.p50, .p90, .p95, .p99, .p99.9, .p99.99, .max (of any status); \
                     answers.503 (of any status); rejected.SOLD_OUT (of any word); seconds, \
                     sellOutSeconds; users, units, sold, oversold, lost, duplicates, mismatches, \
                     accepted, held, heldWithoutRow, broken, timedOut, retries; of winners who lived on: \
                     payment.p50 to .max, paid, cancelled, failedTries, abandoned, boughtAgain, refundsDue, \
                     cutShort.ORDER_CLOSED (of any word), captured.EUR, paid.EUR, refunded.EUR, refundDue.EUR \
                     (minor units of any currency), moneyLost, paidByNobody, paidUnseen, wordBroken, uneven, stranded";

/// A counter of a report by its name in JSON.
type Count = (&'static str, fn(&Report) -> u64);

const COUNTS: [Count; 25] = [
    ("users", |report| report.users),
    ("units", |report| report.units),
    ("sold", |report| report.sold),
    ("oversold", |report| report.oversold),
    ("lost", |report| report.lost),
    ("duplicates", |report| report.duplicates),
    ("mismatches", |report| report.mismatches),
    ("accepted", |report| report.accepted),
    ("held", |report| report.held),
    ("heldWithoutRow", |report| report.held_without_row),
    ("broken", |report| report.broken),
    ("timedOut", |report| report.timed_out),
    ("retries", |report| report.retries),
    ("paid", |report| of_till(report, |till| till.paid)),
    ("cancelled", |report| of_till(report, |till| till.cancelled)),
    ("failedTries", |report| of_till(report, |till| till.failed_tries)),
    ("abandoned", |report| of_till(report, |till| till.abandoned)),
    ("boughtAgain", |report| of_till(report, |till| till.bought_again)),
    ("refundsDue", |report| of_till(report, |till| till.refunds_due)),
    ("moneyLost", |report| of_till(report, |till| till.money_lost)),
    ("paidByNobody", |report| of_till(report, |till| till.paid_by_nobody)),
    ("paidUnseen", |report| of_till(report, |till| till.paid_unseen)),
    ("wordBroken", |report| of_till(report, |till| till.word_broken)),
    ("uneven", |report| of_till(report, |till| till.uneven)),
    ("stranded", |report| of_till(report, |till| till.stranded)),
];

/// 0 when nobody lived on.
fn of_till(report: &Report, count: fn(&Till) -> u64) -> u64 {
    report.till.as_ref().map_or(0, count)
}

/// A sum of money by its name in JSON.
type Sum = (&'static str, fn(&Money) -> i64);

const SUMS: [Sum; 4] = [
    ("captured", |money| money.captured),
    ("paid", |money| money.paid),
    ("refunded", |money| money.refunded),
    ("refundDue", |money| money.refund_due),
];

/// One expectation, as [`FromStr`] reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assert {
    expr: String,
    figure: Figure,
    sign: Sign,
    /// In the unit of the figure: milliseconds, seconds, or plain.
    bound: f64,
}

/// What became of an [`Assert`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Asserted {
    /// The expression as it was given.
    pub expr: String,
    /// Whether it holds; it does not when there is no such value.
    pub holds: bool,
    /// The figure: milliseconds for a latency, seconds for a time, otherwise a count. `null` when
    /// there is none: no answer of that status came, or the buyers did not see all units go.
    pub value: Option<f64>,
    #[serde(skip)]
    unit: Unit,
}

/// Why a text is no assert.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssertError {
    /// No comparison stands in it, or nothing before it.
    #[error("wanted NAME, then one of < <= == != >= >, then a value, such as 202.p99<100ms; names: {NAMES}")]
    Form,
    /// The name is unknown.
    #[error("nothing is called {0:?}; names: {NAMES}")]
    Name(String),
    /// The value does not fit the name.
    #[error("{value:?} is no value of {name}: wanted {wanted}")]
    Value {
        /// The name.
        name: String,
        /// What stands after the comparison.
        value: String,
        /// What is wanted there.
        wanted: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Milliseconds,
    Seconds,
    Count,
}

#[derive(Clone, Debug, PartialEq)]
enum Figure {
    Latency(u16, Percentile),
    Payment(Percentile),
    CutShort(String),
    /// An index into [`SUMS`], and a currency.
    Sum(usize, String),
    Answers(u16),
    Rejected(String),
    Seconds,
    SellOutSeconds,
    /// An index into [`COUNTS`].
    Count(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

/// The longer signs first: `<=` begins like `<`.
const SIGNS: [(&str, Sign); 6] = [
    ("<=", Sign::LessOrEqual),
    (">=", Sign::GreaterOrEqual),
    ("==", Sign::Equal),
    ("!=", Sign::NotEqual),
    ("<", Sign::Less),
    (">", Sign::Greater),
];

impl FromStr for Assert {
    type Err = AssertError;

    fn from_str(text: &str) -> Result<Self, AssertError> {
        let at = text.find(['<', '>', '=', '!']).ok_or(AssertError::Form)?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let (written, sign) =
            SIGNS.into_iter().find(|(written, _)| rest.starts_with(written)).ok_or(AssertError::Form)?;
        let value = rest[written.len()..].trim();
        if name.is_empty() || value.is_empty() {
            return Err(AssertError::Form);
        }

        let figure = Figure::named(name).ok_or_else(|| AssertError::Name(name.to_owned()))?;
        let wanted = |wanted| AssertError::Value { name: name.to_owned(), value: value.to_owned(), wanted };
        let bound = match figure.unit() {
            Unit::Milliseconds => duration_ms(value)
                .ok_or_else(|| wanted("a duration with its unit, such as 250us, 100ms or 1s")),
            Unit::Seconds => decimal(value)
                .or_else(|| Some(duration_ms(value)? / 1_000.0))
                .ok_or_else(|| wanted("seconds, such as 20 or 1.5, or a duration, such as 800ms")),
            Unit::Count => {
                whole(value).ok_or_else(|| wanted("a whole number without a unit, such as 0 or 10000"))
            }
        }?;
        Ok(Self { expr: text.trim().to_owned(), figure, sign, bound })
    }
}

impl Assert {
    /// Holds the expectation against a report.
    pub fn judge(&self, report: &Report) -> Asserted {
        let value = self.figure.of(report);
        let holds = value.is_some_and(|value| match self.sign {
            Sign::Less => value < self.bound,
            Sign::LessOrEqual => value <= self.bound,
            Sign::Equal => value == self.bound,
            Sign::NotEqual => value != self.bound,
            Sign::GreaterOrEqual => value >= self.bound,
            Sign::Greater => value > self.bound,
        });
        Asserted { expr: self.expr.clone(), holds, value, unit: self.figure.unit() }
    }
}

impl fmt::Display for Asserted {
    /// The value with its unit, such as `41.25 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.unit) {
            (None, _) => f.write_str("no such value was seen"),
            (Some(value), Unit::Milliseconds) => write!(f, "{value:.2} ms"),
            (Some(value), Unit::Seconds) => write!(f, "{value:.2} s"),
            (Some(value), Unit::Count) => write!(f, "{value:.0}"),
        }
    }
}

impl Figure {
    fn named(name: &str) -> Option<Self> {
        if let Some(count) = COUNTS.iter().position(|(known, _)| *known == name) {
            return Some(Self::Count(count));
        }
        match name.split_once('.') {
            None if name == "seconds" => Some(Self::Seconds),
            None if name == "sellOutSeconds" => Some(Self::SellOutSeconds),
            None => None,
            Some(("answers", code)) => Some(Self::Answers(status(code)?)),
            Some(("rejected", word)) => is_word(word).then(|| Self::Rejected(word.to_owned())),
            Some(("cutShort", word)) => is_word(word).then(|| Self::CutShort(word.to_owned())),
            Some((name, rest)) => match SUMS.iter().position(|(known, _)| *known == name) {
                Some(sum) => is_currency(rest).then(|| Self::Sum(sum, rest.to_owned())),
                None => {
                    let known = Percentile::ALL.into_iter().find(|known| known.name() == rest)?;
                    let is_payment = name == "payment";
                    Some(if is_payment { Self::Payment(known) } else { Self::Latency(status(name)?, known) })
                }
            },
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Self::Latency(..) | Self::Payment(_) => Unit::Milliseconds,
            Self::Seconds | Self::SellOutSeconds => Unit::Seconds,
            Self::Answers(_) | Self::Rejected(_) | Self::CutShort(_) | Self::Sum(..) | Self::Count(_) => {
                Unit::Count
            }
        }
    }

    fn of(&self, report: &Report) -> Option<f64> {
        let count = |count: Option<&u64>| Some(count.copied().unwrap_or(0) as f64);
        match self {
            Self::Latency(status, percentile) => Some(report.latency_ms.get(status)?.at(*percentile)),
            Self::Payment(percentile) => Some(report.till.as_ref()?.payment_ms?.at(*percentile)),
            Self::CutShort(word) => count(report.till.as_ref().and_then(|till| till.cut_short.get(word))),
            Self::Sum(sum, currency) => {
                let money = report.till.as_ref().and_then(|till| till.money.get(currency));
                Some(money.map_or(0.0, |money| (SUMS[*sum].1)(money) as f64))
            }
            Self::Answers(status) => count(report.answers.get(status)),
            Self::Rejected(word) => count(report.rejected.get(word)),
            Self::Seconds => Some(report.seconds),
            Self::SellOutSeconds => report.sell_out_seconds,
            Self::Count(index) => Some((COUNTS[*index].1)(report) as f64),
        }
    }
}

fn status(code: &str) -> Option<u16> {
    code.parse().ok().filter(|status| code.len() == 3 && (100..600).contains(status))
}

fn is_word(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !word.is_empty() && word.bytes().all(plain)
}

fn is_currency(text: &str) -> bool {
    text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn whole(text: &str) -> Option<f64> {
    decimal(text).filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Digits and one point: no sign, no exponent, no `nan`.
fn decimal(text: &str) -> Option<f64> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    text.parse().ok().filter(|_| text.bytes().all(plain))
}

fn duration_ms(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit.trim() {
        "us" | "µs" => 0.001,
        "ms" => 1.0,
        "s" => 1_000.0,
        _ => return None,
    };
    Some(decimal(number)? * factor)
}

#[cfg(test)]
mod tests {
    use super::{Assert, AssertError};
    use crate::report::sample;

    /// The sample has 500 users, 50 units sold, 202 answers with p99 = 40 ms and max = 41.5 ms,
    /// no 503, all answered after 2.5 s and sold out after 0.4 s.
    #[test]
    fn asserts_hold_or_not() {
        let report = sample();
        for (expr, holds, value) in [
            ("202.p99<100ms", true, Some(40.0)),
            ("202.p99 < 0.04s", false, Some(40.0)),
            ("202.p99<=40000us", true, Some(40.0)),
            ("202.p99==40ms", true, Some(40.0)),
            ("202.p99.9 > 40 ms", true, Some(41.0)),
            ("202.p99.99<41ms", false, Some(41.25)),
            ("202.max<1s", true, Some(41.5)),
            ("410.p50>=5ms", false, Some(1.5)),
            ("503.p50<5ms", false, None),
            ("oversold==0", true, Some(0.0)),
            ("lost==0", true, Some(0.0)),
            ("duplicates!=0", false, Some(0.0)),
            ("sold==50", true, Some(50.0)),
            ("seconds<20", true, Some(2.5)),
            ("seconds<2500ms", false, Some(2.5)),
            ("sellOutSeconds<=0.4", true, Some(0.4)),
            ("answers.503==0", true, Some(0.0)),
            ("answers.202>49", true, Some(50.0)),
            ("rejected.SOLD_OUT==450", true, Some(450.0)),
            ("rejected.IMPATIENT==0", true, Some(0.0)),
        ] {
            let asserted = expr.parse::<Assert>().unwrap().judge(&report);
            assert_eq!((asserted.holds, asserted.value), (holds, value), "{expr}");
            assert_eq!(asserted.expr, expr);
        }
    }

    /// Its winners paid 30 orders at 19.90 EUR.
    #[test]
    fn asserts_about_money_hold_or_not() {
        let report = crate::report::sample_with_till();
        for (expr, holds, value) in [
            ("paid==30", true, Some(30.0)),
            ("paid.EUR==59700", true, Some(59_700.0)),
            ("captured.EUR<59700", false, Some(61_690.0)),
            ("refundDue.EUR==1990", true, Some(1_990.0)),
            ("refunded.USD==0", true, Some(0.0)),
            ("payment.p99<1s", true, Some(300.0)),
            ("payment.max<=309ms", false, Some(310.0)),
            ("cutShort.ORDER_CLOSED==1", true, Some(1.0)),
            ("cutShort.NO_ANSWER==0", true, Some(0.0)),
            ("moneyLost==0", true, Some(0.0)),
            ("boughtAgain>4", false, Some(4.0)),
        ] {
            let asserted = expr.parse::<Assert>().unwrap().judge(&report);
            assert_eq!((asserted.holds, asserted.value), (holds, value), "{expr}");
        }
        let nobody = "payment.p99<1s".parse::<Assert>().unwrap().judge(&sample());
        assert_eq!((nobody.holds, nobody.value), (false, None), "nobody paid");
    }

    #[test]
    fn text_that_is_no_assert_is_refused_in_words() {
        for (expr, message) in [
            ("", "wanted NAME"),
            ("202.p99", "wanted NAME"),
            ("<100ms", "wanted NAME"),
            ("202.p99<", "wanted NAME"),
            ("sold=10", "wanted NAME"),
            ("oversolt==0", "nothing is called \"oversolt\"; names: latencies 202.p50"),
            ("202.p98<1s", "nothing is called"),
            ("99.p99<1s", "nothing is called"),
            ("0202.p99<1s", "nothing is called"),
            ("answers.x==0", "nothing is called"),
            ("rejected.sold out==0", "nothing is called"),
            ("paid.euro==0", "nothing is called"),
            ("payment.p98<1s", "nothing is called"),
            ("paid.EUR==19.90", "wanted a whole number"),
            ("202.p99<100", "\"100\" is no value of 202.p99: wanted a duration with its unit"),
            ("202.p99<-1ms", "wanted a duration"),
            ("202.p99<1e3ms", "wanted a duration"),
            ("202.p99<1h", "wanted a duration"),
            ("sold==1.5", "wanted a whole number"),
            ("sold==10ms", "wanted a whole number"),
            ("seconds<nan", "wanted seconds"),
            ("sold===10", "wanted a whole number"),
        ] {
            let error: AssertError = expr.parse::<Assert>().unwrap_err();
            assert!(error.to_string().contains(message), "{expr}: {error}");
        }
    }

    #[test]
    fn values_are_told_with_their_unit() {
        let report = sample();
        for (expr, told) in [
            ("202.max<1s", "41.50 ms"),
            ("seconds<1", "2.50 s"),
            ("sold==1", "50"),
            ("503.max<1s", "no such value was seen"),
        ] {
            assert_eq!(expr.parse::<Assert>().unwrap().judge(&report).to_string(), told);
        }
    }
}
