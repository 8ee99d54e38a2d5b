//! `doorbuster audit`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use doorbuster_engine::audit;
use doorbuster_engine::clock::SystemClock;
use doorbuster_wire::AuditReport;

use super::client::AdminArgs;
use super::{Output, Verdict};
use crate::{admin, backend};

/// Check the invariants, on a running server or on a stopped one's directory.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster audit\n  doorbuster audit --data-dir ./data   (the server must be stopped)\n\nExit code 3 when an invariant is violated."
)]
pub(crate) struct AuditArgs {
    /// Audit this embedded directory instead of a running server
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: AuditArgs) -> anyhow::Result<Verdict> {
    let report = match &args.data_dir {
        Some(folder) => {
            anyhow::ensure!(
                folder.join("ledger.sqlite").is_file(),
                "{} has no ledger: it is not a data directory",
                folder.display()
            );
            let opened = backend::open_embedded(folder, Arc::new(SystemClock::new())).await?;
            admin::audit_report(&audit::check(&audit::collect(&opened.backends).await?))
        }
        None => args.admin.client()?.audit().await?,
    };
    args.output.print(&report, describe)?;
    Ok(Verdict::of(report.ok))
}

fn describe(report: &AuditReport) -> String {
    let verdict = if report.ok { "ok: nothing is wrong" } else { "WRONG" };
    let rest =
        if report.at_rest { "at rest" } else { "while orders were in flight, so without the at-rest checks" };
    let mut text =
        format!("{verdict}\n{} orders, {rest}; checked {}", report.orders, report.checked.join(" "));
    for finding in &report.findings {
        text.push_str(&format!("\n{}: {}", finding.invariant, finding.detail));
    }
    text
}
