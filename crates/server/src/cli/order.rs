//! `doorbuster order …`.

use clap::{Args, Subcommand};
use doorbuster_wire::OrderRow;

use super::client::AdminArgs;
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
    Get {
        /// The order's id
        order: String,
    },
}

pub(crate) async fn run(args: OrderArgs) -> anyhow::Result<Verdict> {
    let OrderCommand::Get { order } = args.command;
    args.output.print(&args.admin.client()?.order(&order).await?, describe)?;
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
