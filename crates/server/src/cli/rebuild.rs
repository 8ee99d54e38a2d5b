//! `doorbuster rebuild`: the one repair.

use clap::Args;
use doorbuster_wire::{Rebuild, RebuildReport, SaleDetail};

use super::client::AdminArgs;
use super::confirm::Consent;
use super::sale::describe_read_back;
use super::{Output, Verdict, output};

/// Load a sale's stock anew from the ledger.
///
/// Selling stops until every order in flight is recorded and the new stock is read back; buyers
/// hear NOT_READY meanwhile. No order and no payment is lost.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster rebuild 1 --dry-run\n  doorbuster rebuild 1 --yes --reason \"the audit found I8\"\n\nExit code 3 when the new stock differs from the ledger."
)]
pub(crate) struct RebuildArgs {
    /// The sale's id
    sale: String,
    /// Why, for the log and for those who wait
    #[arg(long, value_name = "TEXT", default_value = "asked for on the command line")]
    reason: String,
    /// Say what would be loaded and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: RebuildArgs) -> anyhow::Result<Verdict> {
    if args.dry_run {
        let sale = args.admin.client()?.sale(&args.sale).await?;
        anyhow::ensure!(
            sale.epoch > 0 && sale.state != "draft",
            "sale {} was never preheated, so it has no stock to rebuild",
            sale.sale_id
        );
        args.output.print(&sale, describe_plan)?;
        return Ok(Verdict::Fine);
    }
    args.consent.ask(&format!("Rebuilding sale {} stops selling it for a moment.", args.sale))?;

    let rebuild = Rebuild { reason: args.reason };
    let report = args.admin.client()?.rebuild(&args.sale, &rebuild).await?;
    args.output.print(&report, describe)?;
    Ok(Verdict::of(report.ok))
}

fn describe(report: &RebuildReport) -> String {
    describe_read_back(&report.sale_id, report.epoch, report.ok, &report.items)
}

fn describe_plan(sale: &SaleDetail) -> String {
    let plan = match &sale.fence {
        Some(fence) => format!("is being rebuilt already ({fence}); a rebuild would wait for that one"),
        None => format!("a rebuild would load epoch {} from the ledger", sale.epoch + 1),
    };
    let rows: Vec<Vec<String>> = sale
        .items
        .iter()
        .map(|item| {
            let to_load = item.quantity.saturating_sub(item.sold).to_string();
            let free = item.free.map_or("-".to_owned(), |free| free.to_string());
            vec![item.item_id.clone(), item.quantity.to_string(), item.sold.to_string(), to_load, free]
        })
        .collect();
    let table = output::table(&["ITEM", "QUANTITY", "SOLD", "WOULD BE FREE", "FREE NOW"], &rows);
    format!(
        "sale {} ({}, {}), epoch {}: {plan}; nothing was changed\n{table}",
        sale.sale_id, sale.name, sale.state, sale.epoch
    )
}
