//! A report as text for a terminal: the verdict, who got what, how long it took.

use std::fmt::Write as _;

use crate::latency::Percentile;
use crate::report::{Audit, Report};

/// What the words of final answers mean to the people who clicked.
pub(crate) const MEANINGS: [(&str, &str); 8] = [
    ("SOLD_OUT", "were told it is sold out"),
    ("ENDED", "were told the sale is over"),
    ("NOT_STARTED", "were told it has not begun"),
    ("LIMIT_REACHED", "were told they have enough"),
    ("IMPATIENT", "gave up: put off until their patience ended"),
    ("UNREACHABLE", "gave up: no answer until their patience ended"),
    ("INVALID", "got an answer that cannot be read"),
    ("ALREADY_PURCHASED", "were told they have an order, but not which"),
];

impl Report {
    /// The report for people, verdict first, without colours; lines end with `\n` and stay within
    /// about 100 columns, findings apart.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_verdict(&mut text);
        let _ = self.write_people(&mut text);
        let _ = self.write_till(&mut text);
        let _ = self.write_times(&mut text);
        let _ = self.write_conditions(&mut text);
        text
    }

    /// The answers as a table for spreadsheets: the names of the columns, and one row per status.
    /// Latencies are in milliseconds from the intended moment of the click.
    pub fn answers_table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let head = ["status", "answers"].into_iter().chain(Percentile::ALL.map(Percentile::name));
        let rows = self.latency_ms.iter().map(|(status, latency)| {
            let answers = self.answers.get(status).copied().unwrap_or(0);
            let latencies = Percentile::ALL.map(|percentile| latency.at(percentile).to_string());
            [status.to_string(), answers.to_string()].into_iter().chain(latencies).collect()
        });
        (head.collect(), rows.collect())
    }

    fn write_verdict(&self, out: &mut String) -> std::fmt::Result {
        let verdict = if self.verdict() && self.asserts_hold() { "PASS" } else { "FAIL" };
        writeln!(
            out,
            "{verdict}  {} of {} units sold · oversold {} · lost {} · sold twice {} · mixed up {} · audit {}",
            grouped(self.sold),
            grouped(self.units),
            grouped(self.oversold),
            grouped(self.lost),
            grouped(self.duplicates),
            grouped(self.mismatches),
            match &self.audit {
                Audit::Ok => "ok".to_owned(),
                Audit::Findings(findings) => format!("{} findings", findings.len()),
                Audit::NotRun(_) => "not run".to_owned(),
            }
        )?;
        if let Some(till) = &self.till {
            let broken: Vec<_> = till.faults().into_iter().filter(|(_, _, count)| *count > 0).collect();
            if broken.is_empty() {
                writeln!(out, "      money and units are where the clients' lists say")?;
            }
            for (name, meaning, count) in broken {
                writeln!(out, "      {name} {}: {meaning}", grouped(count))?;
            }
        }
        for asserted in &self.asserts {
            let holds = if asserted.holds { "holds" } else { "DOES NOT HOLD" };
            writeln!(out, "      assert {} {holds}: {asserted}", asserted.expr)?;
        }
        for finding in &self.findings {
            writeln!(out, "      {finding}")?;
        }
        match &self.audit {
            Audit::Ok => Ok(()),
            Audit::NotRun(reason) => writeln!(out, "      audit not run: {reason}"),
            Audit::Findings(findings) => {
                findings.iter().take(50).try_for_each(|finding| writeln!(out, "      audit {finding}"))
            }
        }
    }

    fn write_people(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n{:>11}  people clicked", grouped(self.users))?;
        writeln!(out, "{:>11}  got an order (202)", grouped(self.accepted))?;
        if self.held > 0 {
            let without = match self.held_without_row {
                0 => String::new(),
                n => format!("; {} of these have no row", grouped(n)),
            };
            writeln!(
                out,
                "{:>11}  learned of their order by a 409, after its 202 was lost{without}",
                grouped(self.held)
            )?;
        }
        let mut rejected: Vec<_> = self.rejected.iter().collect();
        rejected.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), word.as_str()));
        for (word, count) in rejected {
            let meaning = MEANINGS
                .iter()
                .find(|(known, _)| known == word)
                .map_or("were refused", |(_, meaning)| *meaning);
            writeln!(out, "{:>11}  {meaning} ({word})", grouped(*count))?;
        }
        Ok(())
    }

    /// What the winners did afterwards, and where the money is.
    fn write_till(&self, out: &mut String) -> std::fmt::Result {
        let Some(till) = &self.till else { return Ok(()) };
        writeln!(out, "\n{:>11}  orders were paid", grouped(till.paid))?;
        let counts = [
            (till.failed_tries, "tries to pay failed before"),
            (till.cancelled, "orders were cancelled"),
            (till.bought_again, "of these were bought again"),
            (till.abandoned, "winners never paid"),
            (till.refunds_due, "payments are to be given back"),
        ];
        for (count, meaning) in counts.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "{:>11}  {meaning}", grouped(count))?;
        }
        for (word, count) in &till.cut_short {
            writeln!(out, "{:>11}  could not do what they wanted ({word})", grouped(*count))?;
        }
        for (currency, money) in &till.money {
            writeln!(
                out,
                "\n{currency}, minor units: {} captured = {} paid + {} refunded + {} to be refunded",
                money.captured, money.paid, money.refunded, money.refund_due
            )?;
        }
        if let Some(latency) = &till.payment_ms {
            writeln!(
                out,
                "From the click that pays to PAID: p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms.",
                latency.p50, latency.p99, latency.max
            )?;
        }
        Ok(())
    }

    fn write_times(&self, out: &mut String) -> std::fmt::Result {
        write!(out, "\nAll answered {:.2} s after the first click", self.seconds)?;
        match self.sell_out_seconds {
            Some(seconds) => writeln!(out, ", sold out after {seconds:.2} s.")?,
            None => writeln!(out, ", not seen to sell out.")?,
        }
        writeln!(out, "\n     status     answers    p50 ms    p99 ms    max ms   (from the intended click)")?;
        for (status, count) in &self.answers {
            let Some(latency) = self.latency_ms.get(status) else {
                continue;
            };
            writeln!(
                out,
                "{status:>11} {:>11} {:>9.1} {:>9.1} {:>9.1}",
                grouped(*count),
                latency.p50,
                latency.p99,
                latency.max
            )?;
        }
        for (name, count) in
            [("broken", self.broken), ("timed out", self.timed_out), ("retries", self.retries)]
        {
            if count > 0 {
                writeln!(out, "{name:>11} {:>11}", grouped(count))?;
            }
        }
        Ok(())
    }

    fn write_conditions(&self, out: &mut String) -> std::fmt::Result {
        let conditions = &self.conditions;
        writeln!(
            out,
            "\nSeed {}, window {:.2} s, {} kept-alive connections, {} generator threads at {:.1} µs \
             CPU per request,\n{:.0} clicks/s achieved of {:.0} intended, 1 % sent {:.1} ms late or \
             more.",
            self.seed,
            conditions.window_seconds,
            conditions.connections,
            conditions.threads,
            conditions.generator_cpu_us_per_attempt,
            conditions.achieved_clicks_per_second,
            conditions.intended_clicks_per_second,
            conditions.send_lag_ms_p99,
        )?;
        match &conditions.bottleneck {
            Some(bottleneck) => writeln!(out, "Bottleneck: {bottleneck}."),
            None => Ok(()),
        }
    }
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;
    use crate::report::sample_with_till;

    #[test]
    fn money_is_told_and_a_fault_of_it_fails() {
        let mut report = sample_with_till();
        let text = report.render();
        for part in [
            "PASS",
            "money and units are where",
            "30  orders were paid",
            "1  could not do what they wanted (ORDER_CLOSED)",
            "EUR, minor units: 61690 captured = 59700 paid + 0 refunded + 1990 to be refunded",
            "p50 120 ms, p99 300 ms, max 310 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        report.till.as_mut().unwrap().money_lost = 2;
        let text = report.render();
        assert!(text.starts_with("FAIL") && text.contains("moneyLost 2:"), "{text}");
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
