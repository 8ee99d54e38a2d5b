//! `doorbuster order …`.

use clap::{Args, Subcommand};
use doorbuster_wire::OrderRow;

use super::client::AdminArgs;
use super::export::{self, ExportArgs};
use super::{Output, Verdict, output};

/// Look at orders, through the staff's listener of a running server.
#[derive(Args)]
pub(crate) struct OrderArgs {
    #[command(subcommand)]
    command: OrderCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum OrderCommand {
    /// One order
    #[command(after_help = "Example:\n  doorbuster order get 0190b8c4-7d00-7000-8000-000000000001")]
    Get {
        /// The order's id
        order: String,
    },
    /// Every order of a sale, as CSV or as lines of JSON
    Export(ExportArgs),
}

pub(crate) async fn run(args: OrderArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    match args.command {
        OrderCommand::Get { order } => args.output.print(&client.order(&order).await?, describe)?,
        OrderCommand::Export(export) => export::run(&client, export, args.output).await?,
    }
    Ok(Verdict::Fine)
}

fn describe(order: &OrderRow) -> String {
    let status = match &order.reason {
        Some(reason) => format!("{} ({reason})", order.status),
        None => order.status.clone(),
    };
    let rows = [
        ("order", order.order_id.clone()),
        ("status", status),
        ("user", order.user_id.escape_default().to_string()),
        ("sale, item", format!("{}, {}", order.sale_id, order.item_id)),
        ("units", order.quantity.to_string()),
        ("total", format!("{} {}", order.total.amount, order.total.currency)),
        ("reserved", order.reserved_at.clone()),
        ("pay until", order.expires_at.clone()),
    ];
    output::table(&[], &rows.map(|(name, value)| vec![name.to_owned(), value]))
}
