//! What is plotted: answers and stock over time for every wave, and the latencies.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::charts::{Tick, frame, latency, short, x, y};
use super::scale::{Decades, Linear};
use super::statuses::{legend, look, marker};
use crate::course::Course;
use crate::latency::{Latency, Percentile};
use crate::render::grouped;
use crate::report::Report;

/// Most columns of a stacked plot: each is some 3 units wide then.
const COLUMNS: usize = 100;
/// A column should have so many answers on average, or the plot shows chance alone …
const ANSWERS_PER_COLUMN: usize = 10;
/// … but a plot of fewer columns shows no shape.
const FEWEST_COLUMNS: usize = 20;
/// The name of every horizontal axis of time.
const TIME: &str = "seconds after the first click of the wave";
/// Most rows of a table beside a plot.
const ROWS: usize = 20;
/// Most waves that are plotted; a rehearsal has one, the demo two.
const MAX_WAVES: usize = 8;

/// Neighbouring buckets of a course put together.
struct Slots {
    /// How long one slot is, in seconds.
    seconds: f64,
    /// How many buckets one slot has.
    buckets: usize,
    /// The counts of every slot, by status.
    counts: Vec<(u16, Vec<u64>)>,
}

impl Slots {
    fn of(course: &Course, most: usize) -> Self {
        let timeline = &course.timeline;
        let buckets = timeline.len().div_ceil(most).max(1);
        let sum = |slot: &[u32]| slot.iter().map(|count| u64::from(*count)).sum();
        let counts = |status| timeline.counts(status).chunks(buckets).map(sum).collect();
        Self {
            seconds: timeline.bucket().as_secs_f64() * buckets as f64,
            buckets,
            counts: timeline.statuses().into_iter().map(|status| (status, counts(status))).collect(),
        }
    }

    fn len(&self) -> usize {
        self.counts.iter().map(|(_, counts)| counts.len()).max().unwrap_or(0)
    }

    fn total(&self, slot: usize) -> u64 {
        self.counts.iter().filter_map(|(_, counts)| counts.get(slot)).sum()
    }
}

/// Every wave over time.
pub(super) fn courses(report: &Report) -> Markup {
    let waves = report.courses.len();
    html! {
        section {
            h2 { "Over time" }
            @for (number, course) in report.courses.iter().take(MAX_WAVES).enumerate() {
                @if waves > 1 {
                    h3 {
                        "Wave " (number + 1) " of " (waves) ": " (grouped(course.users)) " people, from "
                        (format!("{:.1}", course.begins_after.as_secs_f64())) " s on"
                    }
                }
                @if course.timeline.is_empty() {
                    p { "No answer came." }
                } @else {
                    div class="plots" { (answers(course)) (stock(report, course)) }
                    (table(course))
                }
            }
            @if waves > MAX_WAVES { p { "The first " (MAX_WAVES) " of " (waves) " waves are shown." } }
        }
    }
}

fn ticks(axis: &Linear) -> Vec<Tick> {
    axis.ticks.iter().map(|value| (axis.share(*value), short(*value))).collect()
}

fn answers(course: &Course) -> Markup {
    let all: u64 = course
        .timeline
        .statuses()
        .iter()
        .flat_map(|status| course.timeline.counts(*status))
        .map(|count| u64::from(*count))
        .sum();
    let columns = usize::try_from(all).unwrap_or(usize::MAX) / ANSWERS_PER_COLUMN;
    let slots = Slots::of(course, columns.clamp(FEWEST_COLUMNS, COLUMNS));
    let times = Linear::exact(slots.len() as f64 * slots.seconds, 5.0);
    let peak = (0..slots.len()).map(|slot| slots.total(slot)).max().unwrap_or(0) as f64 / slots.seconds;
    let rates = Linear::rounded(peak, 4.0);
    let mut below = vec![0_u64; slots.len()];
    let mut areas = Vec::new();
    for (status, counts) in &slots.counts {
        let mut path = String::new();
        for (slot, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let edge = |at: usize| x(times.share(at as f64 * slots.seconds));
            let level = |count: u64| y(rates.share(count as f64 / slots.seconds));
            let (from, to) = (level(below[slot]), level(below[slot] + count));
            let (left, right) = (edge(slot), edge(slot + 1));
            // Writing to a String cannot fail.
            let _ = write!(path, "M{left:.1} {from:.1}V{to:.1}H{right:.1}V{from:.1}z");
            below[slot] += count;
        }
        areas.push((*status, path));
    }
    let inside = html! {
        @for (status, path) in &areas {
            path d=(path) fill={ "url(#fill" (look(*status)) ")" } class={ "area s" (look(*status)) } {}
        }
    };
    let told = format!(
        "Answers per second over {:.1} seconds, stacked by status; at most {} per second. \
         The table below has the figures.",
        times.top,
        short(peak)
    );
    let statuses: Vec<u16> = slots.counts.iter().map(|(status, _)| *status).collect();
    html! {
        figure {
            figcaption { b { "Answers per second" } " by status, stacked" }
            (frame(&told, TIME, &ticks(&times), &ticks(&rates), &inside))
            (legend(&statuses, true))
        }
    }
}

fn stock(report: &Report, course: &Course) -> Markup {
    let Some(at_start) = course.units_at_start else {
        return html! { p { b { "Units left" } " are not known: the sale hides its stock." } };
    };
    let bucket = course.timeline.bucket().as_secs_f64();
    let times = Linear::exact(course.units_left.len() as f64 * bucket, 5.0);
    let units = Linear::exact(at_start as f64, 4.0);
    let mut line = format!("M{:.1} {:.1}", x(0.0), y(units.share(at_start as f64)));
    let mut last = at_start;
    for (index, left) in course.units_left.iter().enumerate().filter(|(_, left)| **left < at_start) {
        if *left != last {
            let at = x(times.share((index + 1) as f64 * bucket));
            let _ = write!(line, "H{at:.1}V{:.1}", y(units.share(*left as f64)));
            last = *left;
        }
    }
    let _ = write!(line, "H{:.1}", x(1.0));
    let area = format!("{line}V{:.1}H{:.1}z", y(0.0), x(0.0));
    let sold_out = report.sell_out_seconds.map(|seconds| seconds - course.begins_after.as_secs_f64());
    let sold_out = sold_out.filter(|seconds| (0.0..=times.top).contains(seconds));
    let inside = html! {
        path d=(area) class="stock" {}
        path d=(line) class="drain" {}
        @if let Some(seconds) = sold_out {
            (moment(times.share(seconds), &format!("sold out {seconds:.2} s")))
        }
    };
    let told = format!(
        "Units left over time, from {} to {}. The table below has the figures.",
        grouped(at_start),
        grouped(last)
    );
    html! {
        figure {
            figcaption { b { "Units left" } " by the clients' own orders" }
            (frame(&told, TIME, &ticks(&times), &ticks(&units), &inside))
        }
    }
}

/// An upright line at a moment, with its label on the side that has room.
fn moment(share: f64, label: &str) -> Markup {
    let (at, is_late) = (x(share), share > 0.5);
    html! {
        line x1=(at) x2=(at) y1=(y(0.0)) y2=(y(1.0)) class="moment" {}
        text x=(if is_late { at - 6.0 } else { at + 6.0 }) y=(y(1.0) + 12.0)
            text-anchor=(if is_late { "end" } else { "start" }) class="label" { (label) }
    }
}

fn table(course: &Course) -> Markup {
    let slots = Slots::of(course, ROWS);
    let left_after = |slot: usize| {
        let end = ((slot + 1) * slots.buckets).min(course.units_left.len());
        end.checked_sub(1).and_then(|last| course.units_left.get(last))
    };
    html! {
        details {
            summary { "The same as a table" }
            div.wide { table {
                thead { tr {
                    th scope="col" { "From second" }
                    @for (status, _) in &slots.counts { th scope="col" class="n" { (status) } }
                    th scope="col" class="n" { "Units left" }
                } }
                tbody { @for slot in 0..slots.len() { tr {
                    th scope="row" { (format!("{:.2}", slot as f64 * slots.seconds)) }
                    @for (_, counts) in &slots.counts {
                        td class="n" { (grouped(counts.get(slot).copied().unwrap_or(0))) }
                    }
                    td class="n" { (left_after(slot).map_or("unknown".to_owned(), |left| grouped(*left))) }
                } } }
            } }
        }
    }
}

/// The latencies, as a plot and as a table.
pub(super) fn latencies(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Latency" }
            p class="soft" {
                "From the intended moment of the click to its answer: waiting for a free connection and "
                "earlier attempts count."
            }
            @if report.latency_ms.is_empty() { p { "No answer came." } } @else {
                div class="plots" { (latency_plot(report)) (latency_table(report)) }
            }
        }
    }
}

/// What a status has to show: percentiles that its answers tell from the slowest one.
fn told(report: &Report, status: u16, latency: &Latency) -> Vec<(Percentile, f64)> {
    let answers = report.answers.get(&status).copied().unwrap_or(0);
    let told = |percentile: &Percentile| percentile.is_told_by(answers);
    Percentile::ALL.into_iter().filter(told).map(|percentile| (percentile, latency.at(percentile))).collect()
}

fn latency_plot(report: &Report) -> Markup {
    // One answer in 2 is at the left edge, one in 10,000 at the right.
    let across = |percentile: Percentile| {
        percentile.one_in().map(|one_in| (f64::from(one_in).log10() - 0.301) / (4.0 - 0.301))
    };
    let lines: Vec<(u16, Vec<(f64, f64)>)> = report
        .latency_ms
        .iter()
        .map(|(status, latency)| {
            let points = told(report, *status, latency).into_iter();
            (*status, points.filter_map(|(percentile, ms)| Some((across(percentile)?, ms))).collect())
        })
        .collect();
    let axis = Decades::around(lines.iter().flat_map(|(_, points)| points.iter().map(|(_, ms)| *ms)));
    let inside = html! {
        @for (status, points) in &lines {
            @let look = look(*status);
            @let at = |(share, ms): &(f64, f64)| (x(*share), y(axis.share(*ms)));
            @let places: Vec<(f64, f64)> = points.iter().map(at).collect();
            path d=(polyline(&places)) class={ "line l" (look) } {}
            @for (at, level) in &places { path d=(marker(look, *at, *level)) class={ "f" (look) } {} }
        }
    };
    let x_ticks: Vec<Tick> = Percentile::ALL
        .into_iter()
        .filter(|percentile| *percentile != Percentile::P95)
        .filter_map(|percentile| Some((across(percentile)?, percentile.name().to_owned())))
        .collect();
    let y_ticks: Vec<Tick> = axis.ticks().map(|ms| (axis.share(ms), latency(ms))).collect();
    let statuses: Vec<u16> = lines.iter().map(|(status, _)| *status).collect();
    let sentence =
        "Latency percentiles by status on a logarithmic axis. The table beside it has the figures.";
    html! {
        figure {
            figcaption { b { "Latency" } " by percentile, logarithmic" }
            (frame(sentence, "share of the answers that came within it", &x_ticks, &y_ticks, &inside))
            (legend(&statuses, false))
        }
    }
}

fn polyline(places: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (at, level)) in places.iter().enumerate() {
        let _ = write!(path, "{}{at:.1} {level:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path
}

fn latency_table(report: &Report) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr {
                    th scope="col" { "In ms" }
                    @for status in report.latency_ms.keys() { th scope="col" class="n" { (status) } }
                } }
                tbody {
                    tr {
                        th scope="row" { "answers" }
                        @for status in report.latency_ms.keys() {
                            td class="n" { (grouped(report.answers.get(status).copied().unwrap_or(0))) }
                        }
                    }
                    @for percentile in Percentile::ALL { tr {
                        th scope="row" { (percentile.name()) }
                        @for (status, latency) in &report.latency_ms {
                            @let answers = report.answers.get(status).copied().unwrap_or(0);
                            @let ms = percentile.is_told_by(answers).then(|| latency.at(percentile));
                            td class="n" { (ms.map_or("–".to_owned(), |ms| format!("{ms:.2}"))) }
                        }
                    } }
                }
            }
            p class="soft" { "–: too few answers to tell it from the slowest one." }
        }
    }
}
