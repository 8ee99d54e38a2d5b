//! `doorbuster trail`.

use clap::Args;
use doorbuster_wire::TrailRow;

use super::client::AdminArgs;
use super::{Output, Verdict, output};

/// What the staff changed: who, when, what, and how it ended; newest first.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster trail --limit 20\n  doorbuster trail --output json\n\nA change is written down before it is done. One without a status is under way, or the server died."
)]
pub(crate) struct TrailArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Most changes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: TrailArgs) -> anyhow::Result<Verdict> {
    let trail = args.admin.client()?.trail(args.limit.into()).await?;
    args.output.print(&trail, |trail| list(trail))?;
    Ok(Verdict::Fine)
}

fn list(trail: &[TrailRow]) -> String {
    if trail.is_empty() {
        return "the staff has changed nothing".to_owned();
    }
    let row = |it: &TrailRow| {
        vec![
            it.at.clone(),
            it.by.clone(),
            it.role.clone(),
            format!("{} {}", it.method, it.path.escape_default()),
            it.status.map(|status| status.to_string()).unwrap_or_default(),
            it.request_id.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = trail.iter().map(row).collect();
    output::table(&["at", "by", "role", "what", "status", "request"], &rows)
}
