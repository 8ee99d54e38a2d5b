//! Two reports side by side: what changed, and what got worse by more than chance explains.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::latency::Percentile;

/// The generator's timers have a grain of 1 ms, so smaller differences of a latency say nothing.
const LATENCY_GRAIN_MS: f64 = 1.0;
/// The server's long poll looks at an order so often.
const PAYMENT_GRAIN_MS: f64 = 250.0;
/// The same for whole storms: threads start together within some milliseconds.
const TIME_GRAIN_S: f64 = 0.02;
/// A percentile is judged when at least so many answers of either report lie beyond it: a figure
/// that one slow answer can move is told, not judged.
const ANSWERS_BEYOND: u32 = 10;
/// Troubles are judged when they differ by more than one in so many answers.
const TROUBLE_GRAIN: f64 = 1_000.0;
/// Members of `conditions` whose difference is told beside the table.
const CONDITIONS: [&str; 8] =
    ["windowSeconds", "connections", "threads", "version", "cpu", "cores", "kernel", "overLoopback"];

/// The band in which a change counts as chance, as a share: `10%` is 0.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise(f64);

/// Why two reports cannot be compared, or a noise band cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// A text is not the JSON of a report.
    #[error("not a report as `rehearse --output json` or `demo --output json` prints it")]
    Report(#[from] serde_json::Error),
    /// A noise band is not a percentage.
    #[error("wanted a percentage of 0 to 100 with its sign, such as 10%")]
    Noise,
}

/// Two reports, figure by figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The noise band in per cent.
    pub noise_percent: f64,
    /// How many figures got worse beyond the band.
    pub worse: usize,
    /// Conditions that differ, in words; where there are any, like is not compared with like.
    pub differences: Vec<String>,
    /// Reports whose load came late, in words: their latencies tell of the generator as well.
    pub warnings: Vec<String>,
    /// Every figure that either report has.
    pub rows: Vec<Row>,
}

/// One figure of two reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name, as asserts have it; latencies are in milliseconds, times in seconds.
    pub figure: String,
    /// In the first report; `null` when it has none.
    pub a: Option<f64>,
    /// In the second report.
    pub b: Option<f64>,
    /// By how many per cent `b` is above `a`; `null` when `a` is 0 or either has none.
    pub change_percent: Option<f64>,
    /// What the change means.
    pub change: Change,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// Within the noise.
    Same,
    /// Beyond the noise, for the better.
    Better,
    /// Beyond the noise, for the worse.
    Worse,
    /// Not judged: too few answers, or a figure that is neither good nor bad.
    Told,
}

/// How a figure is judged.
#[derive(Clone, Copy)]
enum Rule {
    /// Must not rise at all: a broken promise is never noise.
    Fault,
    /// Lower is better, beyond the band and more than this.
    Lower(f64),
    /// Higher is better, beyond the band.
    Higher,
    NotJudged,
}

/// The members of a report that are compared.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    users: u64,
    units: u64,
    sold: u64,
    oversold: u64,
    lost: u64,
    duplicates: u64,
    mismatches: u64,
    answers: BTreeMap<u16, u64>,
    broken: u64,
    timed_out: u64,
    retries: u64,
    seconds: f64,
    sell_out_seconds: Option<f64>,
    latency_ms: BTreeMap<u16, BTreeMap<String, f64>>,
    /// The members that are there when winners lived on.
    #[serde(flatten)]
    till: TillFigures,
    audit: Value,
    seed: u64,
    conditions: serde_json::Map<String, Value>,
}

/// What is compared of the till; all absent where nobody lived on.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TillFigures {
    paid: Option<u64>,
    cancelled: Option<u64>,
    abandoned: Option<u64>,
    refunds_due: Option<u64>,
    money_lost: Option<u64>,
    paid_by_nobody: Option<u64>,
    paid_unseen: Option<u64>,
    word_broken: Option<u64>,
    uneven: Option<u64>,
    stranded: Option<u64>,
    payment_ms: Option<BTreeMap<String, f64>>,
}

impl FromStr for Noise {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let number = text.strip_suffix('%').ok_or(Unreadable::Noise)?;
        let percent: f64 = number.trim().parse().map_err(|_| Unreadable::Noise)?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(Unreadable::Noise);
        }
        Ok(Self(percent / 100.0))
    }
}

/// Reads the JSON of one report.
fn read(json: &str) -> Result<Figures, Unreadable> {
    Ok(serde_json::from_str(json)?)
}

impl Comparison {
    /// Compares the JSON of two reports; `a` is the older one.
    ///
    /// # Errors
    /// [`Unreadable::Report`], without saying which: see [`check`](Self::check).
    pub fn of(a: &str, b: &str, noise: Noise) -> Result<Self, Unreadable> {
        let (a, b) = (read(a)?, read(b)?);
        let mut rows = Vec::new();
        let mut add = |figure: &str, rule, of: &dyn Fn(&Figures) -> Option<f64>| {
            if of(&a).is_some() || of(&b).is_some() {
                rows.push(Row::of(figure, of(&a), of(&b), rule, noise));
            }
        };
        add_promises(&mut add);
        add_times(&mut add);
        add_answers(&a, &b, &mut add);
        add_latencies(&a, &b, &mut add);
        add_till(&a, &b, &mut add);
        let worse = rows.iter().filter(|row| row.change == Change::Worse).count();
        let late = |(name, report): (&str, &Figures)| {
            let reason = report.conditions.get("bottleneck")?.as_str()?;
            Some(format!("in {name} the load came late: {reason}"))
        };
        Ok(Self {
            noise_percent: 100.0 * noise.0,
            worse,
            differences: differences(&a, &b),
            warnings: [("a", &a), ("b", &b)].into_iter().filter_map(late).collect(),
            rows,
        })
    }

    /// Whether a text is a report that can be compared.
    ///
    /// # Errors
    /// [`Unreadable::Report`] names the member that is missing or wrong.
    pub fn check(json: &str) -> Result<(), Unreadable> {
        read(json).map(|_| ())
    }
}

/// Takes a figure's name, how it is judged, and where it is in a report.
type Add<'a> = dyn FnMut(&str, Rule, &dyn Fn(&Figures) -> Option<f64>) + 'a;

fn add_promises(add: &mut Add<'_>) {
    add("oversold", Rule::Fault, &|report| Some(report.oversold as f64));
    add("lost", Rule::Fault, &|report| Some(report.lost as f64));
    add("duplicates", Rule::Fault, &|report| Some(report.duplicates as f64));
    add("mismatches", Rule::Fault, &|report| Some(report.mismatches as f64));
    let findings = |report: &Figures| report.audit.as_array().map_or(0, Vec::len);
    add("auditFindings", Rule::Fault, &|report| Some(findings(report) as f64));
    add("sold", Rule::Higher, &|report| Some(report.sold as f64));
}

fn add_times(add: &mut Add<'_>) {
    add("sellOutSeconds", Rule::Lower(TIME_GRAIN_S), &|report| report.sell_out_seconds);
    add("seconds", Rule::Lower(TIME_GRAIN_S), &|report| Some(report.seconds));
    for member in ["achievedClicksPerSecond", "generatorCpuUsPerAttempt", "generatorBusy", "sendLagMsP99"] {
        add(member, Rule::NotJudged, &|report| report.conditions.get(member)?.as_f64());
    }
}

fn add_answers(a: &Figures, b: &Figures, add: &mut Add<'_>) {
    let answers = |report: &Figures| report.answers.values().sum::<u64>();
    let trouble = Rule::Lower(answers(a).max(answers(b)) as f64 / TROUBLE_GRAIN);
    let statuses: BTreeSet<u16> = a.answers.keys().chain(b.answers.keys()).copied().collect();
    for status in statuses {
        let rule = if status == 429 || status >= 500 { trouble } else { Rule::NotJudged };
        let count = |report: &Figures| report.answers.get(&status).copied().unwrap_or(0);
        add(&format!("answers.{status}"), rule, &|report| Some(count(report) as f64));
    }
    add("broken", trouble, &|report| Some(report.broken as f64));
    add("timedOut", trouble, &|report| Some(report.timed_out as f64));
    add("retries", Rule::NotJudged, &|report| Some(report.retries as f64));
}

fn add_latencies(a: &Figures, b: &Figures, add: &mut Add<'_>) {
    let statuses: BTreeSet<u16> = a.latency_ms.keys().chain(b.latency_ms.keys()).copied().collect();
    for status in statuses {
        let answers = |report: &Figures| report.answers.get(&status).copied().unwrap_or(0);
        let answers = answers(a).min(answers(b));
        for percentile in Percentile::ALL {
            let enough = |one_in: u32| answers >= u64::from(one_in.saturating_mul(ANSWERS_BEYOND));
            let rule = if percentile.one_in().is_some_and(enough) {
                Rule::Lower(LATENCY_GRAIN_MS)
            } else {
                Rule::NotJudged
            };
            add(&format!("{status}.{}", percentile.name()), rule, &|report| {
                report.latency_ms.get(&status)?.get(percentile.name()).copied()
            });
        }
    }
}

fn add_till(a: &Figures, b: &Figures, add: &mut Add<'_>) {
    type Count = fn(&TillFigures) -> Option<u64>;
    let faults: [(&str, Count); 6] = [
        ("moneyLost", |till| till.money_lost),
        ("paidByNobody", |till| till.paid_by_nobody),
        ("paidUnseen", |till| till.paid_unseen),
        ("wordBroken", |till| till.word_broken),
        ("uneven", |till| till.uneven),
        ("stranded", |till| till.stranded),
    ];
    let counts: [(&str, Count); 4] = [
        ("paid", |till| till.paid),
        ("cancelled", |till| till.cancelled),
        ("abandoned", |till| till.abandoned),
        ("refundsDue", |till| till.refunds_due),
    ];
    for (name, count) in faults {
        add(name, Rule::Fault, &|report| Some(count(&report.till)? as f64));
    }
    for (name, count) in counts {
        add(name, Rule::NotJudged, &|report| Some(count(&report.till)? as f64));
    }
    let payments = a.till.paid.unwrap_or(0).min(b.till.paid.unwrap_or(0));
    for percentile in Percentile::ALL {
        let enough = |one_in: u32| payments >= u64::from(one_in.saturating_mul(ANSWERS_BEYOND));
        let rule = if percentile.one_in().is_some_and(enough) {
            Rule::Lower(PAYMENT_GRAIN_MS)
        } else {
            Rule::NotJudged
        };
        add(&format!("payment.{}", percentile.name()), rule, &|report| {
            report.till.payment_ms.as_ref()?.get(percentile.name()).copied()
        });
    }
}

fn differences(a: &Figures, b: &Figures) -> Vec<String> {
    let mut differences = Vec::new();
    let mut differ = |name: &str, a: String, b: String| {
        if a != b {
            differences.push(format!("{name}: {a} and {b}"));
        }
    };
    for (name, a, b) in [("users", a.users, b.users), ("units", a.units, b.units), ("seed", a.seed, b.seed)] {
        differ(name, a.to_string(), b.to_string());
    }
    let told = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    for name in CONDITIONS {
        differ(name, told(a.conditions.get(name)), told(b.conditions.get(name)));
    }
    differences
}

impl Row {
    fn of(figure: &str, a: Option<f64>, b: Option<f64>, rule: Rule, noise: Noise) -> Self {
        let both = a.zip(b);
        let change_percent = both.filter(|(a, _)| *a != 0.0).map(|(a, b)| 100.0 * (b - a) / a);
        let change = both.map_or(Change::Told, |(a, b)| rule.judge(a, b, noise));
        Self { figure: figure.to_owned(), a, b, change_percent, change }
    }
}

impl Rule {
    fn judge(self, a: f64, b: f64, noise: Noise) -> Change {
        let band = noise.0 * a.abs();
        let (rise, band) = match self {
            Self::Fault => (b - a, 0.0),
            Self::Lower(grain) => (b - a, band.max(grain)),
            Self::Higher => (a - b, band),
            Self::NotJudged => return Change::Told,
        };
        if rise > band {
            Change::Worse
        } else if rise < -band {
            Change::Better
        } else {
            Change::Same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Comparison, Noise};
    use crate::report::{Audit, Report, sample};

    fn compare(change: impl FnOnce(&mut Report)) -> Comparison {
        let mut a = sample();
        a.answers = [(202, 5_000), (410, 450)].into();
        let mut b = a.clone();
        change(&mut b);
        let [a, b] = [a, b].map(|report| serde_json::to_string(&report).unwrap());
        Comparison::of(&a, &b, "10%".parse().unwrap()).unwrap()
    }

    fn change_of(comparison: &Comparison, figure: &str) -> Change {
        comparison.rows.iter().find(|row| row.figure == figure).unwrap().change
    }

    #[test]
    fn report_is_the_same_as_itself() {
        let comparison = compare(|_| {});
        assert_eq!((comparison.worse, comparison.differences.len()), (0, 0));
        assert!(comparison.rows.iter().all(|row| row.change != Change::Better));
    }

    #[test]
    fn changes_are_judged_beyond_the_noise_only() {
        type Edit = fn(&mut Report);
        let cases: [(&str, Edit, Change); 14] = [
            ("202.p99", |b| b.latency_ms.get_mut(&202).unwrap().p99 = 43.9, Change::Same),
            ("202.p99", |b| b.latency_ms.get_mut(&202).unwrap().p99 = 44.1, Change::Worse),
            ("202.p99", |b| b.latency_ms.get_mut(&202).unwrap().p99 = 35.0, Change::Better),
            // Beyond the band, but below the generator's grain.
            ("202.p50", |b| b.latency_ms.get_mut(&202).unwrap().p50 = 3.9, Change::Same),
            // Five answers of 5,000 are slower, and 4.5 of 450: too few to judge by.
            ("202.p99.9", |b| b.latency_ms.get_mut(&202).unwrap().p99_9 = 400.0, Change::Told),
            ("410.p99", |b| b.latency_ms.get_mut(&410).unwrap().p99 = 400.0, Change::Told),
            ("202.max", |b| b.latency_ms.get_mut(&202).unwrap().max = 400.0, Change::Told),
            ("oversold", |b| b.oversold = 1, Change::Worse),
            ("auditFindings", |b| b.audit = Audit::NotRun("gone".to_owned()), Change::Worse),
            ("sold", |b| b.sold = 40, Change::Worse),
            ("seconds", |b| b.seconds = 2.0, Change::Better),
            ("sellOutSeconds", |b| b.sell_out_seconds = None, Change::Told),
            ("answers.503", |b| b.answers.extend([(503, 100)]), Change::Worse),
            ("broken", |b| b.broken = 2, Change::Same),
        ];
        for (figure, edit, change) in cases {
            let comparison = compare(edit);
            assert_eq!(change_of(&comparison, figure), change, "{figure}");
            assert_eq!(comparison.worse, usize::from(change == Change::Worse), "{figure}");
        }
    }

    #[test]
    fn money_is_compared_where_winners_lived_on() {
        type Edit = fn(&mut crate::Till);
        let cases: [(&str, Edit, Change); 5] = [
            ("paid", |_| {}, Change::Told),
            ("moneyLost", |till| till.money_lost = 1, Change::Worse),
            ("stranded", |till| till.stranded = 1, Change::Worse),
            ("payment.p50", |till| till.payment_ms.as_mut().unwrap().p50 = 360.0, Change::Same),
            ("payment.p50", |till| till.payment_ms.as_mut().unwrap().p50 = 380.0, Change::Worse),
        ];
        let a = crate::report::sample_with_till();
        for (figure, edit, change) in cases {
            let mut b = a.clone();
            edit(b.till.as_mut().unwrap());
            let [a, b] = [&a, &b].map(|report| serde_json::to_string(report).unwrap());
            let comparison = Comparison::of(&a, &b, "10%".parse().unwrap()).unwrap();
            assert_eq!(change_of(&comparison, figure), change, "{figure}");
        }
        assert!(compare(|_| {}).rows.iter().all(|row| row.figure != "paid"), "nobody lived on");
    }

    #[test]
    fn different_conditions_are_named() {
        let comparison = compare(|b| {
            b.users = 9;
            b.conditions.cpu = "Slow 1".to_owned();
            b.conditions.bottleneck = Some("CPU".to_owned());
        });
        assert_eq!(comparison.differences, ["users: 500 and 9", "cpu: Fast 3000 and Slow 1"]);
        assert_eq!(comparison.warnings, ["in b the load came late: CPU"]);
    }

    #[test]
    fn noise_and_reports_are_read_or_refused() {
        for text in ["10%", "0%", "2.5 %"] {
            assert!(text.parse::<Noise>().is_ok(), "{text}");
        }
        for text in ["10", "-1%", "101%", "nan%", "%", ""] {
            assert!(text.parse::<Noise>().is_err(), "{text}");
        }
        let error = Comparison::check("{\"users\":1}").unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("missing field `units`"), "{cause}");
        assert!(Comparison::check(&serde_json::to_string(&sample()).unwrap()).is_ok());
    }
}
