//! A report as one HTML file that needs nothing else: no script, no font, no request.
//!
//! The plots are SVG drawn here rather than by a library in the browser: the file stays readable
//! where scripts are refused (mail, CI artifacts), and its policy forbids every request. Whatever
//! came from a server or a command line is escaped by the template.

mod charts;
mod conditions;
mod plots;
mod scale;
mod statuses;
mod till;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::render::{MEANINGS, grouped};
use crate::report::{Audit, Report};

const STYLE: &str = include_str!("report.css");
/// Nothing may be fetched; the style and the plots are in the file.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// Findings in words; the counts above them are never cut off.
const MAX_FINDINGS: usize = 50;

impl Report {
    /// The report as one self-contained HTML page, verdict first.
    pub fn html(&self) -> String {
        let passed = self.verdict() && self.asserts_hold();
        let title = format!("{} · flash-sale rehearsal", if passed { "PASS" } else { "FAIL" });
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (title) }
                    link rel="icon" href="data:,";
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    (statuses::patterns())
                    header class=(if passed { "verdict pass" } else { "verdict fail" }) {
                        h1 { (mark(passed)) " " (if passed { "PASS" } else { "FAIL" }) }
                        p { b { (self.reason()) } }
                        p { (self.summary()) }
                    }
                    main {
                        (self.promises())
                        (self.people())
                        (till::till(self))
                        (plots::courses(self))
                        (plots::latencies(self))
                        (conditions::conditions(self))
                    }
                    footer {
                        p { "Made by Doorbuster " (self.conditions.version) " from what the clients saw." }
                    }
                }
            }
        };
        page.into_string()
    }

    /// Why the verdict is what it is, in one line.
    fn reason(&self) -> String {
        let broken = self.asserts.iter().filter(|asserted| !asserted.holds).count();
        match (self.verdict(), broken, self.asserts.len()) {
            (false, ..) => "A promise was broken: see below.".to_owned(),
            (true, 0, 0) => "Every promise was kept.".to_owned(),
            (true, 0, 1) => "Every promise was kept, and the assert holds.".to_owned(),
            (true, 0, all) => format!("Every promise was kept, and all {all} asserts hold."),
            (true, 1, 1) => "Every promise was kept, but the assert does not hold.".to_owned(),
            (true, broken, all) => {
                format!("Every promise was kept, but {broken} of {all} asserts did not hold.")
            }
        }
    }

    fn summary(&self) -> String {
        let (users, sold, units) = (grouped(self.users), grouped(self.sold), grouped(self.units));
        let out = match self.sell_out_seconds {
            Some(seconds) => format!("sold out {seconds:.2} s after the first click"),
            None => "not seen to sell out".to_owned(),
        };
        format!("{users} people clicked · {sold} of {units} units sold · {out}")
    }

    fn promises(&self) -> Markup {
        let audit = match &self.audit {
            Audit::Ok => "ok".to_owned(),
            Audit::Findings(findings) => format!("{} findings", findings.len()),
            Audit::NotRun(_) => "not run".to_owned(),
        };
        let zero = |count: u64| (grouped(count), count == 0);
        let promises = [
            ("Nothing oversold", "units beyond the quantity", zero(self.oversold)),
            ("Nothing lost", "orders that a client has a 202 for and the ledger has not", zero(self.lost)),
            ("Nobody sold to twice", "people with more units than the limit", zero(self.duplicates)),
            ("Nothing mixed up", "orders of another person or item than the client's", zero(self.mismatches)),
            ("Audit", "the server's own check of its books", (audit, self.audit == Audit::Ok)),
        ];
        html! {
            section {
                h2 { "Promises" }
                div.wide { table {
                    (head(&[("Promise", false), ("Found", true), ("Verdict", false)]))
                    tbody {
                        @for (promise, meaning, (found, holds)) in promises { tr {
                            th scope="row" { (promise) small { (meaning) } }
                            td class="n" { (found) }
                            td { (verdict(holds)) }
                        } }
                        (till::promises(self))
                        @for asserted in &self.asserts { tr {
                            th scope="row" { code { (asserted.expr) } small { "asserted" } }
                            td class="n" { (asserted.to_string()) }
                            td { (verdict(asserted.holds)) }
                        } }
                    }
                } }
                (self.found())
            }
        }
    }

    /// What was found wrong, in words.
    fn found(&self) -> Markup {
        let audit: &[String] = match &self.audit {
            Audit::Ok => &[],
            Audit::Findings(findings) => findings,
            Audit::NotRun(reason) => std::slice::from_ref(reason),
        };
        let of_audit = audit.iter().take(MAX_FINDINGS).map(|finding| format!("audit: {finding}"));
        let findings: Vec<String> = self.findings.iter().cloned().chain(of_audit).collect();
        html! {
            @if !findings.is_empty() {
                h3 { "Findings" }
                ul class="findings" { @for finding in &findings { li { (finding) } } }
            }
        }
    }

    fn people(&self) -> Markup {
        let row = |answer: &str, word: &str, count: u64| {
            let share = format!("{:.1} %", 100.0 * count as f64 / self.users.max(1) as f64);
            html! { tr {
                th scope="row" { (answer) small { (word) } }
                td class="n" { (grouped(count)) }
                td class="n" { (share) }
            } }
        };
        let mut rejected: Vec<_> =
            self.rejected.iter().map(|(word, count)| (word.as_str(), *count)).collect();
        rejected.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), *word));
        let meaning = |word: &str| {
            let known = MEANINGS.iter().find(|(known, _)| *known == word);
            known.map_or("were refused", |(_, meaning)| *meaning)
        };
        html! {
            section {
                h2 { "What people were told" }
                div.wide { table {
                    (head(&[("Final answer", false), ("People", true), ("Share", true)]))
                    tbody {
                        (row("got an order", "202", self.accepted))
                        @if self.held > 0 {
                            (row("learned of their order by a 409", "its 202 was lost on the way", self.held))
                        }
                        @for (word, count) in rejected { (row(meaning(word), word, count)) }
                    }
                } }
            }
        }
    }
}

/// The head of a table: the names of its columns, and whether numbers stand below.
fn head(columns: &[(&str, bool)]) -> Markup {
    html! { thead { tr {
        @for (name, is_number) in columns { th scope="col" class=[is_number.then_some("n")] { (name) } }
    } } }
}

fn verdict(holds: bool) -> Markup {
    let (class, word) = if holds { ("pass", "PASS") } else { ("fail", "FAIL") };
    html! { span class=(class) { (mark(holds)) " " (word) } }
}

/// A tick or a cross; the word stands beside it, so it is not read out.
fn mark(holds: bool) -> Markup {
    html! { span class="mark" aria-hidden="true" { (if holds { "✓" } else { "✗" }) } }
}

#[cfg(test)]
mod tests {
    use crate::report::{Audit, sample};

    #[test]
    fn verdict_stands_first_and_names_every_promise() {
        let mut report = sample();
        report.judge(&["202.p99<100ms".parse().unwrap(), "sold==50".parse().unwrap()]);
        let page = report.html();
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
        assert!(page.starts_with("<!DOCTYPE html>"));
        assert!(page.contains("<title>PASS"));
        for promise in
            ["Nothing oversold", "Nothing lost", "Nobody sold to twice", "Nothing mixed up", "Audit"]
        {
            assert!(at(promise) < at("<svg viewBox"), "{promise} comes before the plots");
        }
        assert!(page.contains("202.p99&lt;100ms") && page.contains("40.00 ms"));
        assert!(!page.contains("FAIL"), "nothing failed");
        for condition in ["Fast 3000", "linux 6.1", "0.1.0", "2026-05-28T20:26:40Z", "doorbuster demo --exit"]
        {
            at(condition);
        }
    }

    #[test]
    fn faults_and_broken_asserts_fail() {
        let mut report = sample();
        report.judge(&["202.p99<1ms".parse().unwrap()]);
        assert_eq!(report.html().matches("FAIL").count(), 3);
        assert!(report.verdict(), "an assert does not touch the promises");

        let mut report = sample();
        report.lost = 2;
        report.audit = Audit::NotRun("it was away".to_owned());
        report.findings = vec!["order <b>1</b> has no row".to_owned()];
        let page = report.html();
        assert_eq!(page.matches("FAIL").count(), 4);
        assert!(page.contains("order &lt;b&gt;1&lt;/b&gt; has no row") && page.contains("it was away"));
    }

    #[test]
    fn page_requests_nothing_and_runs_nothing() {
        let mut report = sample();
        report.rejected.insert("<img src=http://example.org/x>".to_owned(), 1);
        report.conditions.command = Some("doorbuster rehearse --url http://127.0.0.1:8080".to_owned());
        let page = report.html();
        for part in
            ["<script", "<img", "@import", "src=\"", "href=\"http", "href=\"/", "url(h", "url(/", "<iframe"]
        {
            assert!(!page.contains(part), "{part}");
        }
        // A plot may refer to a pattern of the same page, and to nothing else.
        assert_eq!(page.matches("url(").count(), page.matches("url(#").count());
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn report_without_any_answer_is_a_page_too() {
        let mut report = sample();
        report.courses[0].timeline = crate::Timeline::default();
        report.courses[0].units_left.clear();
        report.courses[0].units_at_start = None;
        report.answers.clear();
        report.latency_ms.clear();
        let page = report.html();
        assert!(page.contains("No answer came") && !page.contains("NaN") && !page.contains("inf"));
    }
}
