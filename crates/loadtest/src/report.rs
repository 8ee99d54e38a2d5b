//! The report of a rehearsed sale: one JSON document, and the same for people.

use std::collections::BTreeMap;

use doorbuster_wire::AuditReport;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::asserts::{Assert, Asserted};
use crate::balance::Balance;
use crate::course::Course;
use crate::latency::Latency;
use crate::till::Till;
use crate::witness::Storm;

/// What a rehearsal found. Its JSON is a stable interface: members are added, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Users of all waves.
    pub users: u64,
    /// Units that were for sale.
    pub units: u64,
    /// Units of live orders in the order list.
    pub sold: u64,
    /// See [`Balance::oversold`].
    pub oversold: u64,
    /// See [`Balance::lost`].
    pub lost: u64,
    /// See [`Balance::duplicates`].
    pub duplicates: u64,
    /// See [`Balance::mismatches`].
    pub mismatches: u64,
    /// Users who learned of their order from a 202.
    pub accepted: u64,
    /// Orders that only a 409 named to their user.
    pub held: u64,
    /// See [`Balance::held_without_row`].
    pub held_without_row: u64,
    /// Users without an order, by the word of their final answer.
    pub rejected: BTreeMap<String, u64>,
    /// All answers by status code, retries and second clicks included.
    pub answers: BTreeMap<u16, u64>,
    /// Attempts that ended with a broken connection.
    pub broken: u64,
    /// Attempts without an answer within the time limit.
    pub timed_out: u64,
    /// Attempts after the first of their click.
    pub retries: u64,
    /// From the first possible click to the last answer.
    pub seconds: f64,
    /// See [`Storm::sell_out_seconds`]; `null` when it was not seen.
    pub sell_out_seconds: Option<f64>,
    /// By status code, from the intended moment of the click.
    pub latency_ms: BTreeMap<u16, Latency>,
    /// `"ok"`, or what the server's own audit found.
    pub audit: Audit,
    /// The first faults of the balance and of the till in words, with ids; at most 50 of each.
    pub findings: Vec<String>,
    /// What the winners paid, cancelled and abandoned; its members are there when they lived on.
    #[serde(flatten)]
    pub till: Option<Till>,
    /// What was asserted, and whether it holds.
    pub asserts: Vec<Asserted>,
    /// Gives the same schedule of clicks again.
    pub seed: u64,
    /// What the figures depend on.
    pub conditions: Conditions,
    /// How every wave went over time; for the plots, so not in the JSON.
    #[serde(skip)]
    pub courses: Vec<Course>,
}

/// What the server's own audit said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audit {
    /// No invariant was violated.
    Ok,
    /// The violations, one line each; also a report that says neither "ok" nor why.
    Findings(Vec<String>),
    /// The audit could not be asked, with the reason. That is no pass.
    NotRun(String),
}

/// What the figures of a report depend on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conditions {
    /// Connections, all kept alive and opened before the first click.
    pub connections: usize,
    /// Threads of the load generator.
    pub threads: usize,
    /// Whether every user got a sale token before the first click, and clicked with it.
    pub sale_tokens: bool,
    /// Over how long the first clicks were to be spread.
    pub window_seconds: f64,
    /// First clicks per second that were asked for; 0 for an empty window.
    pub intended_clicks_per_second: f64,
    /// First clicks per second from the first to the last that was sent.
    pub achieved_clicks_per_second: f64,
    /// CPU time of the load generator per attempt.
    pub generator_cpu_us_per_attempt: f64,
    /// The share of the rush in which the generator's threads ran or waited for a core, 0 to 1.
    pub generator_busy: f64,
    /// How late clicks were taken by a connection, 99th percentile.
    pub send_lag_ms_p99: f64,
    /// Why the clicks came later than intended; `null` when they did not.
    pub bottleneck: Option<String>,
    /// This program's version.
    pub version: String,
    /// The wall clock at the first possible click: RFC 3339 in UTC.
    pub started_at: String,
    /// The processor of the generator's machine.
    pub cpu: String,
    /// The cores that the generator could use.
    pub cores: usize,
    /// The kernel of the generator's machine.
    pub kernel: String,
    /// Whether the server was on the same machine, so that it shared these cores.
    pub over_loopback: bool,
    /// The command that repeats it; `null` when the caller named none.
    pub command: Option<String>,
}

impl Report {
    /// Puts together what the clients saw, the books, and the server's own audit.
    pub fn new(storm: &Storm, balance: &Balance, audit: Audit) -> Self {
        let pace = &storm.pace;
        let ms = |us: u64| us as f64 / 1_000.0;
        Self {
            users: storm.users,
            units: balance.units,
            sold: balance.sold,
            oversold: balance.oversold,
            lost: balance.lost,
            duplicates: balance.duplicates,
            mismatches: balance.mismatches,
            accepted: storm.accepted_ids().len() as u64,
            held: storm.held.len() as u64,
            held_without_row: balance.held_without_row,
            rejected: storm.rejected.clone(),
            answers: storm.latency_us.iter().map(|(status, histogram)| (*status, histogram.len())).collect(),
            broken: storm.broken,
            timed_out: storm.timed_out,
            retries: storm.retries,
            seconds: storm.wall.as_secs_f64(),
            sell_out_seconds: storm.sell_out_seconds(),
            latency_ms: storm
                .latency_us
                .iter()
                .map(|(status, histogram)| (*status, Latency::of(histogram)))
                .collect(),
            audit,
            findings: balance.findings.clone(),
            till: None,
            asserts: Vec::new(),
            seed: storm.seed,
            courses: storm.courses.clone(),
            conditions: Conditions {
                connections: pace.connections,
                threads: pace.threads,
                sale_tokens: pace.sale_tokens,
                window_seconds: pace.window.as_secs_f64(),
                intended_clicks_per_second: pace.intended_per_second,
                achieved_clicks_per_second: pace.achieved_per_second,
                generator_cpu_us_per_attempt: pace.cpu_us_per_attempt,
                generator_busy: pace.generator_busy,
                send_lag_ms_p99: ms(pace.send_lag_us_p99),
                bottleneck: pace.bottleneck(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at: rfc3339(storm.started_epoch_secs),
                cpu: storm.machine.cpu.clone(),
                cores: storm.machine.cores,
                kernel: storm.machine.kernel.clone(),
                over_loopback: storm.over_loopback,
                command: None,
            },
        }
    }

    /// Adds what the winners did afterwards.
    #[must_use]
    pub fn with_till(mut self, till: Till) -> Self {
        self.findings.extend(till.findings.iter().cloned());
        self.till = Some(till);
        self
    }

    /// Judges every assert and keeps what became of it.
    pub fn judge(&mut self, asserts: &[Assert]) {
        self.asserts = asserts.iter().map(|assert| assert.judge(self)).collect();
    }

    /// Whether every assert holds; they do not touch the [`verdict`](Self::verdict).
    pub fn asserts_hold(&self) -> bool {
        self.asserts.iter().all(|asserted| asserted.holds)
    }

    /// Whether the sale kept its promises: the books are even and the server's audit is clean.
    /// Latencies, unsold units and users who gave up do not matter here.
    pub fn verdict(&self) -> bool {
        self.oversold == 0
            && self.lost == 0
            && self.duplicates == 0
            && self.mismatches == 0
            && self.till.as_ref().is_none_or(Till::is_even)
            && self.audit == Audit::Ok
    }
}

fn rfc3339(epoch_secs: u64) -> String {
    let at = i64::try_from(epoch_secs).ok().and_then(|secs| Timestamp::from_second(secs).ok());
    at.unwrap_or(Timestamp::MAX).to_string()
}

impl From<&AuditReport> for Audit {
    fn from(report: &AuditReport) -> Self {
        if report.findings.is_empty() && report.ok {
            return Audit::Ok;
        }
        let mut findings: Vec<_> = report
            .findings
            .iter()
            .map(|finding| format!("{}: {}", finding.invariant, finding.detail))
            .collect();
        if findings.is_empty() {
            findings.push("the audit failed without naming a finding".to_owned());
        }
        Audit::Findings(findings)
    }
}

impl Serialize for Audit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Audit::Ok => serializer.serialize_str("ok"),
            Audit::Findings(findings) => findings.serialize(serializer),
            Audit::NotRun(reason) => [format!("not run: {reason}")].serialize(serializer),
        }
    }
}

/// A report of a sale that went well, for the tests of everything that reads reports.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    use std::time::Duration;

    use crate::course::Course;
    use crate::timeline::Timeline;

    let latency = |p50: f64, p99: f64, max: f64| Latency {
        p50,
        p90: p99 / 2.0,
        p95: p99 / 1.5,
        p99,
        p99_9: p99 + 1.0,
        p99_99: p99 + 1.25,
        max,
    };
    let mut timeline = Timeline::default();
    (0..500_u64).for_each(|n| timeline.count(if n % 10 == 0 { 202 } else { 410 }, n * 5_000));
    let units_left = (0..timeline.len() as u64).map(|bucket| 50_u64.saturating_sub(bucket)).collect();
    let course = Course {
        begins_after: Duration::ZERO,
        wall: Duration::from_millis(2_500),
        users: 500,
        timeline,
        units_at_start: Some(50),
        units_left,
    };
    Report {
        users: 500,
        units: 50,
        sold: 50,
        oversold: 0,
        lost: 0,
        duplicates: 0,
        mismatches: 0,
        accepted: 50,
        held: 0,
        held_without_row: 0,
        rejected: [("SOLD_OUT".to_owned(), 450)].into(),
        answers: [(202, 50), (410, 450)].into(),
        broken: 0,
        timed_out: 0,
        retries: 0,
        seconds: 2.5,
        sell_out_seconds: Some(0.4),
        latency_ms: [(202, latency(3.0, 40.0, 41.5)), (410, latency(1.5, 8.0, 12.0))].into(),
        audit: Audit::Ok,
        findings: Vec::new(),
        till: None,
        asserts: Vec::new(),
        seed: 1,
        courses: vec![course],
        conditions: Conditions {
            connections: 16,
            threads: 2,
            sale_tokens: false,
            window_seconds: 2.0,
            intended_clicks_per_second: 250.0,
            achieved_clicks_per_second: 250.0,
            generator_cpu_us_per_attempt: 40.0,
            generator_busy: 0.2,
            send_lag_ms_p99: 1.2,
            bottleneck: None,
            version: "0.1.0".to_owned(),
            started_at: rfc3339(1_780_000_000),
            cpu: "Fast 3000".to_owned(),
            cores: 2,
            kernel: "linux 6.1".to_owned(),
            over_loopback: true,
            command: Some("doorbuster demo --exit".to_owned()),
        },
    }
}

/// The same sale, whose winners lived on: 30 paid, the others did something else.
#[cfg(test)]
pub(crate) fn sample_with_till() -> Report {
    use crate::till::Money;

    let payment_ms = Latency { p50: 120.0, p99: 300.0, max: 310.0, ..Latency::default() };
    let money = Money { captured: 61_690, paid: 59_700, refunded: 0, refund_due: 1_990 };
    sample().with_till(Till {
        paid: 30,
        cancelled: 10,
        failed_tries: 5,
        abandoned: 10,
        bought_again: 4,
        cut_short: [("ORDER_CLOSED".to_owned(), 1)].into(),
        refunds_due: 1,
        money: [("EUR".to_owned(), money)].into(),
        payment_ms: Some(payment_ms),
        ..Till::default()
    })
}
