//! `doorbuster refund …`.

use clap::{Args, Subcommand, ValueEnum};
use doorbuster_wire::{CloseRefund, RefundOrder, RefundRow, RetryRefund};

use super::client::AdminArgs;
use super::confirm::Consent;
use super::{Output, Verdict, output};

/// Money to be given back: refund an order, look what is due, settle what the provider refuses.
#[derive(Args)]
pub(crate) struct RefundArgs {
    #[command(subcommand)]
    command: RefundCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

/// Where a refund stands.
#[derive(Clone, Copy, ValueEnum)]
enum State {
    Due,
    Done,
    Refused,
}

#[derive(Subcommand)]
enum RefundCommand {
    /// Refund a paid order: it becomes REFUNDED, its units return, its provider gives the money back
    #[command(
        after_help = "Example:\n  doorbuster refund order 0190b8c4-7d00-7000-8000-000000000001 \\\n    --by ada --reason \"does not fit\" --yes"
    )]
    Order {
        /// The order's id
        order: String,
        /// Who does it; kept in the log
        #[arg(long, value_name = "NAME", env = "USER")]
        by: String,
        /// Why; kept in the log
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Every refund; those that the provider refuses wait for you
    #[command(after_help = "Example:\n  doorbuster refund list --state refused")]
    List {
        /// Only those
        #[arg(long, value_enum)]
        state: Option<State>,
    },
    /// Note that you have given the money back yourself
    #[command(
        after_help = "Example:\n  doorbuster refund close manual bank-2026-0001 --reference transfer-77 --by ada"
    )]
    Close {
        /// Who took the money
        provider: String,
        /// Names the payment there
        payment: String,
        /// Names the refund, such as a transfer's number
        #[arg(long, value_name = "TEXT")]
        reference: String,
        /// Who gave it back; kept in the log
        #[arg(long, value_name = "NAME", env = "USER")]
        by: String,
    },
    /// Let the provider be asked again
    #[command(after_help = "Example:\n  doorbuster refund retry stripe pi_3Nx --by ada")]
    Retry {
        /// Who took the money
        provider: String,
        /// Names the payment there
        payment: String,
        /// Who asks; kept in the log
        #[arg(long, value_name = "NAME", env = "USER")]
        by: String,
    },
}

pub(crate) async fn run(args: RefundArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    match args.command {
        RefundCommand::Order { order, by, reason, consent } => {
            consent.ask(&format!("Order {order} will be REFUNDED: its buyer loses it."))?;
            let refunded = client.refund_order(&order, &RefundOrder { by, reason }).await?;
            args.output.print(&refunded, |order| format!("order {} is {}", order.order_id, order.status))?;
        }
        RefundCommand::List { state } => {
            let word = state.map(|state| match state {
                State::Due => "DUE",
                State::Done => "DONE",
                State::Refused => "REFUSED",
            });
            args.output.print(&client.refunds(word).await?, |refunds| list(refunds))?;
        }
        RefundCommand::Close { provider, payment, reference, by } => {
            let asked = CloseRefund { provider, payment_id: payment, reference, by };
            args.output.print(&client.close_refund(&asked).await?, describe)?;
        }
        RefundCommand::Retry { provider, payment, by } => {
            let asked = RetryRefund { provider, payment_id: payment, by };
            args.output.print(&client.retry_refund(&asked).await?, describe)?;
        }
    }
    Ok(Verdict::Fine)
}

fn list(refunds: &[RefundRow]) -> String {
    if refunds.is_empty() {
        return "no refunds".to_owned();
    }
    let row = |it: &RefundRow| {
        vec![
            it.provider.clone(),
            it.payment_id.escape_default().to_string(),
            it.order_id.clone(),
            format!("{} {}", it.amount.amount, it.amount.currency),
            it.state.clone(),
            it.tries.to_string(),
            said(it),
        ]
    };
    let rows: Vec<Vec<String>> = refunds.iter().map(row).collect();
    output::table(&["provider", "payment", "order", "amount", "state", "tries", "said"], &rows)
}

fn said(refund: &RefundRow) -> String {
    let text = refund.reference.as_ref().or(refund.said.as_ref());
    text.map(|text| text.escape_default().to_string()).unwrap_or_default()
}

fn describe(refund: &RefundRow) -> String {
    format!("payment {} of {}: {}", refund.payment_id.escape_default(), refund.provider, refund.state)
}
