//! Runs areas of the tests, one after the other, and tells how each ended.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::areas::{AREAS, Area, Step};
use crate::run::{cargo, shown_and_kept};
use crate::services::Lent;
use crate::{demo, failures, npm, requirements, security, stage, tidy, venv};

/// What the end of a run tells beside its table.
#[derive(Default)]
struct Told {
    /// Checks that this machine has no tool for.
    not_run: Vec<String>,
    /// The end of what each command that failed printed.
    ends: Vec<String>,
}

/// How one area ended.
struct Ended {
    name: &'static str,
    passed: bool,
    took: Duration,
}

/// Runs the areas named, or all, and says whether all passed. One that fails stops no other.
pub(crate) fn run(root: &Path, names: &[String], install: bool) -> bool {
    let mut ended = Vec::new();
    let mut told = Told::default();
    // Started where the first area needs them; what was started ends when this function does.
    let mut services = Lent::new(root, install);
    for area in chosen(names) {
        println!("\n=== {}: {}", area.name, area.shows);
        let (outcome, took) = timed(|| run_area(area, &mut services, &mut told));
        let passed = outcome.unwrap_or_else(|error| {
            println!("{}: {error:#}", area.name);
            false
        });
        ended.push(Ended { name: area.name, passed, took });
    }
    for end in &told.ends {
        println!("\n=== failed: {end}");
    }
    print!("\n{}", summary(&ended, &told.not_run));
    ended.iter().all(|area| area.passed)
}

/// The areas named, in the order of the table; all when none is named.
fn chosen(names: &[String]) -> Vec<&'static Area> {
    let wanted = |area: &&Area| names.is_empty() || names.iter().any(|name| name == area.name);
    AREAS.iter().filter(wanted).collect()
}

fn run_area(area: &Area, services: &mut Lent<'_>, told: &mut Told) -> Result<bool> {
    let root = services.root;
    if !requirements::ensure(area.requirements, services.install)? || !services.ensure(area.services)? {
        return Ok(false);
    }

    let mut passed = true;
    for step in (area.steps)(root)? {
        passed &= match step {
            Step::Tidy => {
                let report = tidy::run(root, true)?;
                told.not_run.extend(report.not_run);
                report.passed
            }
            Step::Cargo(arguments) => {
                shown_and_kept(cargo(root, &arguments).envs(services.variables()), &mut told.ends)?
            }
            Step::On(backends, arguments) => {
                println!("stories on {backends}:");
                let mut command = cargo(root, &arguments);
                command.envs(services.variables()).env("DOORBUSTER_TEST_BACKENDS", backends);
                shown_and_kept(&mut command, &mut told.ends)?
            }
            Step::Stage => stage::small(root, services.install)?,
            Step::Venv(pinned) => venv::make(root, pinned)?,
            Step::Go(module) => venv::build(root, module)?,
            Step::Npm(folder) => npm::make(root, folder)?,
            Step::Security => security::run(root)?,
            Step::Failures => failures::run(root, &failures::short(), &mut told.ends)?,
            Step::Demo => demo::run(root)?,
        };
    }
    Ok(passed)
}

/// The table of areas, what was not run, and the count.
fn summary(ended: &[Ended], not_run: &[String]) -> String {
    let mut text = format!("{:<14}{:<8}{:>8}\n", "area", "result", "seconds");
    for area in ended {
        let result = if area.passed { "ok" } else { "FAILED" };
        text += &format!("{:<14}{result:<8}{:>8.1}\n", area.name, area.took.as_secs_f64());
    }
    for line in not_run {
        text += &format!("{line}\n");
    }
    let passed = ended.iter().filter(|area| area.passed).count();
    text + &format!("{passed} passed, {} failed\n", ended.len() - passed)
}

/// What `work` answers, and how long it took.
#[expect(clippy::disallowed_methods, reason = "a person reads the seconds; nothing decides by them")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_run_in_the_order_of_the_table() {
        let names = |wanted: &[&str]| -> Vec<&str> {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            chosen(&wanted).iter().map(|area| area.name).collect()
        };
        assert_eq!(names(&["kill", "unit"]), ["unit", "kill"]);
        assert_eq!(
            names(&[]),
            [
                "tidy",
                "unit",
                "conformance",
                "simulation",
                "model",
                "distributed",
                "http",
                "contract",
                "browser",
                "security",
                "fuzz",
                "kill",
                "failures",
                "demo"
            ]
        );
    }

    #[test]
    fn the_summary_ends_with_the_count() {
        let ended = [
            Ended { name: "tidy", passed: true, took: Duration::from_millis(1_250) },
            Ended { name: "kill", passed: false, took: Duration::from_secs(61) },
        ];
        let text = summary(&ended, &["NOT RUN: cargo fmt".to_owned()]);
        assert_eq!(
            text,
            "area          result   seconds\n\
             tidy          ok           1.2\n\
             kill          FAILED      61.0\n\
             NOT RUN: cargo fmt\n\
             1 passed, 1 failed\n"
        );
    }
}
