//! The frame of a plot: axes, grid, labels, and how values become places in it.

use maud::{Markup, html};

/// The drawing's size in its own units. A telephone shows it about one to one, so that its text
/// stays readable there.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;

/// A tick: the share of the axis, 0 to 1, and its label.
pub(super) type Tick = (f64, String);

/// Where a share of the horizontal axis lies.
pub(super) fn x(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// Where a share of the vertical axis lies; 0 is at the bottom.
pub(super) fn y(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

/// A plot with its axes. `told` says in one sentence what is seen, for those who do not see it.
pub(super) fn frame(told: &str, x_name: &str, x_ticks: &[Tick], y_ticks: &[Tick], inside: &Markup) -> Markup {
    let (left, right, bottom) = (x(0.0), x(1.0), y(0.0));
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(told) {
            @for (share, label) in y_ticks {
                line x1=(left) x2=(right) y1=(place(y(*share))) y2=(place(y(*share))) class="grid" {}
                text x=(left - 6.0) y=(place(y(*share) + 4.0)) text-anchor="end" { (label) }
            }
            (inside)
            line x1=(left) x2=(right) y1=(bottom) y2=(bottom) class="axis" {}
            @for (share, label) in x_ticks {
                line x1=(place(x(*share))) x2=(place(x(*share))) y1=(bottom) y2=(bottom + 4.0) class="axis" {}
                text x=(place(x(*share))) y=(bottom + 19.0) text-anchor="middle" { (label) }
            }
            text x=(place(x(0.5))) y=(HEIGHT - 5.0) text-anchor="middle" class="name" { (x_name) }
        }
    }
}

/// A coordinate with one digit, which is all that is seen.
fn place(value: f64) -> String {
    format!("{value:.1}")
}

/// A number for an axis or a table: `12.5k`, `1.2M`, without digits that say nothing.
pub(super) fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 999_950.0 => (value / 1_000_000.0, "M"),
        v if v >= 9_999.5 => (value / 1_000.0, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// A latency with its unit: `250 µs`, `12.5 ms`, `1.2 s`.
pub(super) fn latency(ms: f64) -> String {
    match ms {
        ms if ms < 0.999_5 => format!("{} µs", short((ms * 1_000.0).round())),
        ms if ms < 999.5 => format!("{} ms", short(ms)),
        ms => format!("{} s", short(ms / 1_000.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::{latency, short};

    #[test]
    fn numbers_are_short_and_latencies_have_units() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (12.0, "12"),
            (12.34, "12.3"),
            (5_000.0, "5000"),
            (12_500.0, "12.5k"),
            (100_000.0, "100k"),
            (1_200_000.0, "1.2M"),
        ] {
            assert_eq!(short(value), text);
        }
        for (ms, text) in
            [(0.01, "10 µs"), (0.25, "250 µs"), (1.0, "1 ms"), (12.34, "12.3 ms"), (1_200.0, "1.2 s")]
        {
            assert_eq!(latency(ms), text);
        }
    }
}
