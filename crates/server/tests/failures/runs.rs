//! The notes of all runs, for adding them up: one line of JSON for each run of a line.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::engines::Engines;

/// Notes one run in `failures/runs.jsonl`, in the folder of what was built.
pub(crate) fn note(line: &str, engines: &Engines, took: Duration, result: &str) -> Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("it is in the target folder")?;
    let folder = target.join("failures");
    std::fs::create_dir_all(&folder)?;
    let note = serde_json::json!({
        "line": line,
        "seed": engines.seed,
        "at": jiff::Timestamp::now().to_string(),
        "seconds": took.as_secs(),
        "passed": result.starts_with("ok"),
        "counted": engines.counted,
        "result": result,
    });
    let mut file = std::fs::File::options().create(true).append(true).open(folder.join("runs.jsonl"))?;
    // One write, so that two programs that run at once do not mix their lines.
    file.write_all(format!("{note}\n").as_bytes())?;
    Ok(())
}
