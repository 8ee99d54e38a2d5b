//! `doorbuster rehearse compare`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use doorbuster_loadtest::{Change, Comparison, Noise};

use super::{Output, Verdict, csv, output};

/// Compare two reports, and mark what changed by more than the noise.
#[derive(Args)]
#[command(
    after_help = "Example:\n  doorbuster rehearse … --output json > before.json\n  doorbuster rehearse … --output json > after.json\n  doorbuster rehearse compare before.json after.json --noise 10%\n\nExit code 99 when a figure got worse by more than the noise."
)]
pub(crate) struct CompareArgs {
    /// The older report, as `--output json` prints it
    a: PathBuf,
    /// The newer report
    b: PathBuf,
    /// Changes within this are chance
    #[arg(long, default_value = "10%")]
    noise: Noise,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<Verdict> {
    let comparison = Comparison::of(&read(&args.a)?, &read(&args.b)?, args.noise)?;
    args.output.print_or(&comparison, describe, |comparison| csv::of(&comparison.rows))?;
    Ok(if comparison.worse == 0 { Verdict::Fine } else { Verdict::ExpectationMissed })
}

fn read(path: &Path) -> anyhow::Result<String> {
    let json = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Comparison::check(&json).with_context(|| path.display().to_string())?;
    Ok(json)
}

fn describe(comparison: &Comparison) -> String {
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    };
    let rows: Vec<Vec<String>> = comparison
        .rows
        .iter()
        .map(|row| {
            let change = row.change_percent.map_or("-".to_owned(), |percent| format!("{percent:+.1} %"));
            let mark = match row.change {
                Change::Same => "",
                Change::Better => "better",
                Change::Worse => "WORSE",
                Change::Told => "(not judged)",
            };
            vec![row.figure.clone(), number(row.a), number(row.b), change, mark.to_owned()]
        })
        .collect();
    let verdict = match comparison.worse {
        0 => "PASS  nothing got worse".to_owned(),
        1 => "FAIL  one figure got worse".to_owned(),
        n => format!("FAIL  {n} figures got worse"),
    };
    let mut text = format!("{verdict} by more than {} %\n", comparison.noise_percent);
    for difference in &comparison.differences {
        text.push_str(&format!("      the conditions differ: {difference}\n"));
    }
    for warning in &comparison.warnings {
        text.push_str(&format!("      {warning}\n"));
    }
    let table = output::table(&["FIGURE", "A", "B", "CHANGE", ""], &rows);
    format!("{text}\n{table}")
}

#[cfg(test)]
mod tests {
    use doorbuster_loadtest::{Change, Comparison, Row};

    use super::describe;

    #[test]
    fn worse_figures_are_marked() {
        let row = |figure: &str, a, b, change| Row {
            figure: figure.to_owned(),
            a,
            b,
            change_percent: Some(50.0),
            change,
        };
        let comparison = Comparison {
            noise_percent: 10.0,
            worse: 1,
            differences: vec!["users: 5 and 6".to_owned()],
            warnings: vec!["in b the load came late: CPU".to_owned()],
            rows: vec![
                row("202.p99", Some(10.0), Some(15.25), Change::Worse),
                row("202.max", Some(10.0), None, Change::Told),
            ],
        };
        assert_eq!(
            describe(&comparison),
            "FAIL  one figure got worse by more than 10 %\n      the conditions differ: users: 5 and 6\n      in b the load came late: CPU\n\n\
             FIGURE   A   B      CHANGE\n\
             202.p99  10  15.25  +50.0 %  WORSE\n\
             202.max  10  -      +50.0 %  (not judged)"
        );
    }
}
