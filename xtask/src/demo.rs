//! Runs the demo and checks the books it reports.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use doorbuster_services::command::line_of;
use serde_json::Value;

use crate::run::cargo;

/// The members of the report that must be zero.
const ZERO: [&str; 9] = [
    "oversold",
    "lost",
    "duplicates",
    "moneyLost",
    "paidByNobody",
    "paidUnseen",
    "wordBroken",
    "uneven",
    "stranded",
];

/// Runs the release build's demo and says whether its report is right; prints the report.
///
/// # Errors
/// Cargo cannot be started.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let program = ["run", "--release", "--locked", "-p", "doorbuster-server", "--"];
    let mut command = cargo(root, &[&program[..], &["demo", "--exit", "--output", "json"]].concat());
    println!("$ {}", line_of(&command));
    let output = command.stderr(Stdio::inherit()).output().context("starting cargo")?;
    let report = String::from_utf8_lossy(&output.stdout);
    println!("{}", report.trim());

    let mut faults = faults_of(&report);
    if !output.status.success() {
        faults.push(format!("the demo ended with {}", output.status));
    }
    for fault in &faults {
        println!("demo: {fault}");
    }
    Ok(faults.is_empty())
}

/// What is wrong with the report.
fn faults_of(report: &str) -> Vec<String> {
    let report: Value = match serde_json::from_str(report) {
        Ok(report) => report,
        Err(error) => return vec![format!("standard output is not one JSON value: {error}")],
    };
    let mut faults = Vec::new();
    let (sold, units) = (&report["sold"], &report["units"]);
    if units.as_u64().is_none_or(|units| units == 0) {
        faults.push(format!("units is {units}, a sale of at least one unit is expected"));
    }
    if sold != units {
        faults.push(format!("sold is {sold} of {units} units: everything must be sold"));
    }
    for member in ZERO {
        if report[member].as_u64() != Some(0) {
            faults.push(format!("{member} is {}, 0 is expected", report[member]));
        }
    }
    if report["audit"] != "ok" {
        faults.push(format!("audit is {}, \"ok\" is expected", report["audit"]));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(member: &str, value: Value) -> String {
        let mut report = serde_json::json!({"units": 10, "sold": 10, "audit": "ok"});
        for member in ZERO {
            report[member] = 0.into();
        }
        report[member] = value;
        report.to_string()
    }

    #[test]
    fn a_balanced_report_has_no_faults() {
        assert!(faults_of(&report("units", 10.into())).is_empty());
    }

    #[test]
    fn each_fault_is_found() {
        let mut cases = vec![
            (String::new(), "not one JSON"),
            (report("sold", 9.into()), "sold"),
            (report("audit", Value::Null), "audit"),
            (report("lost", Value::Null), "lost"),
        ];
        cases.extend(ZERO.map(|member| (report(member, 1.into()), member)));
        for (report, word) in cases {
            let faults = faults_of(&report);
            assert!(faults.len() == 1 && faults[0].contains(word), "{report}: {faults:?}");
        }
        let nothing = serde_json::json!({"units": 0, "sold": 0}).to_string();
        assert!(faults_of(&nothing).iter().any(|fault| fault.contains("at least one unit")));
    }
}
