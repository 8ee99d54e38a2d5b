//! What the figures depend on, and the command that repeats them.

use maud::{Markup, html};

use super::charts::short;
use crate::render::grouped;
use crate::report::Report;

/// The conditions as names and values.
pub(super) fn conditions(report: &Report) -> Markup {
    let conditions = &report.conditions;
    let shared = if conditions.over_loopback {
        "the server was on this machine and shared its cores"
    } else {
        "the server was on another machine, reached over the network"
    };
    let pace = format!(
        "{} clicks/s of {} intended; 1 % sent {:.1} ms late or more",
        short(conditions.achieved_clicks_per_second),
        short(conditions.intended_clicks_per_second),
        conditions.send_lag_ms_p99
    );
    let generator = format!(
        "busy {:.0} % of the rush, {:.1} µs CPU per request",
        100.0 * conditions.generator_busy,
        conditions.generator_cpu_us_per_attempt
    );
    let rows = [
        ("Started", conditions.started_at.clone()),
        ("Program", format!("Doorbuster {}", conditions.version)),
        ("Processor", format!("{}, {} cores", conditions.cpu, conditions.cores)),
        ("Kernel", conditions.kernel.clone()),
        ("Server", shared.to_owned()),
        ("People", grouped(report.users)),
        ("Units", grouped(report.units)),
        ("Window of the first clicks", format!("{} s", short(conditions.window_seconds))),
        ("Connections", format!("{}, kept alive", grouped(conditions.connections as u64))),
        ("Generator threads", conditions.threads.to_string()),
        ("Seed", report.seed.to_string()),
        ("Pace", pace),
        ("Generator", generator),
        ("Attempts that were retries", grouped(report.retries)),
        ("Broken connections", grouped(report.broken)),
        ("Timed out", grouped(report.timed_out)),
    ];
    html! {
        section {
            h2 { "Conditions" }
            @match &conditions.bottleneck {
                Some(bottleneck) => p class="note" { b { "The load came late: " } (bottleneck) "." },
                None => p { "The generator kept pace: the figures are the server's, not the generator's." },
            }
            dl { @for (name, value) in rows { div { dt { (name) } dd { (value) } } } }
            @if let Some(command) = &conditions.command {
                h3 { "Repeat it" }
                pre tabindex="0" { code { (command) } }
            }
        }
    }
}
