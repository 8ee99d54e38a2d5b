//! `doorbuster repair`: look for differences, then mend them.

use clap::Args;
use doorbuster_wire::{Repair, RepairReport};

use super::client::AdminArgs;
use super::confirm::Consent;
use super::sale::describe_read_back;
use super::{Output, Verdict};

/// Compare a sale's stock with the ledger, and load the stock anew if they differ.
///
/// It always looks first, order by order, and changes nothing while they agree. Mending is a rebuild:
/// selling stops for a moment, and no order and no payment is lost.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster repair 1 --dry-run\n  doorbuster repair 1          look, say what differs, ask, mend\n  doorbuster repair 1 --yes\n\nExit code 3 when something differs and was not mended."
)]
pub(crate) struct RepairArgs {
    /// The sale's id
    sale: String,
    /// Say what differs and change nothing
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

pub(crate) async fn run(args: RepairArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    let found = client.repair(&args.sale, &Repair { dry_run: true }).await?;
    if args.dry_run || found.ok {
        args.output.print(&found, describe)?;
        return Ok(Verdict::of(found.ok));
    }
    args.consent.ask(&format!(
        "{}\nMending sale {} stops selling it for a moment.",
        describe(&found),
        args.sale
    ))?;

    let mended = client.repair(&args.sale, &Repair { dry_run: false }).await?;
    args.output.print(&mended, describe)?;
    Ok(Verdict::of(mended.ok))
}

fn describe(report: &RepairReport) -> String {
    if report.differences == 0 {
        return format!("sale {}: stock and ledger agree; nothing was changed", report.sale_id);
    }
    let what = if report.differences == 1 { "difference" } else { "differences" };
    let mut text = format!("sale {}: {} {what}", report.sale_id, report.differences);
    for difference in &report.first {
        text.push_str(&format!("\n- {difference}"));
    }
    if report.differences > report.first.len() as u64 {
        text.push_str("\n- …");
    }
    match &report.rebuilt {
        Some(it) => {
            text.push_str(&format!("\n{}", describe_read_back(&it.sale_id, it.epoch, it.ok, &it.items)))
        }
        None => text.push_str("\nnothing was changed"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_differs_and_whether_it_was_changed() {
        let report = |differences, first: &[&str]| RepairReport {
            sale_id: "7".to_owned(),
            ok: differences == 0,
            differences,
            first: first.iter().map(|&it| it.to_owned()).collect(),
            rebuilt: None,
        };
        assert_eq!(describe(&report(0, &[])), "sale 7: stock and ledger agree; nothing was changed");
        let text = describe(&report(2, &["order 1 is held"]));
        assert_eq!(text, "sale 7: 2 differences\n- order 1 is held\n- …\nnothing was changed");
    }
}
