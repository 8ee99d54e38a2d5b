//! `doorbuster order export`: every order of a sale, page by page.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use doorbuster_loadtest::AdminClient;
use doorbuster_wire::OrderRow;
use tempfile::NamedTempFile;

use super::completions::to_stdout;
use super::{Output, output};

/// Orders asked for at once; the server gives at most so many.
const PAGE: usize = 5_000;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster order export 1 --file orders.csv\n  doorbuster order export 1 --format json-lines | jq -r 'select(.status == \"PAID\") | .orderId'\n\nOrders come by their id. Those recorded meanwhile may be missing: export a closed sale for the books."
)]
pub(super) struct ExportArgs {
    /// The sale's id
    sale: String,
    /// Where to; standard output when absent. An older file of this name is replaced when, and only
    /// when, every order is written
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Comma-separated with one line of names, or one JSON object a line; CSV unless `--output json`
    #[arg(long, value_enum)]
    format: Option<Format>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Csv,
    JsonLines,
}

/// The columns, with the names that the JSON has.
const COLUMNS: [&str; 12] = [
    "orderId",
    "saleId",
    "itemId",
    "userId",
    "quantity",
    "status",
    "reason",
    "amount",
    "currency",
    "minor",
    "reservedAt",
    "expiresAt",
];

pub(super) async fn run(client: &AdminClient, args: ExportArgs, output: Output) -> anyhow::Result<()> {
    let by_output = if output == Output::Json { Format::JsonLines } else { Format::Csv };
    let format = args.format.unwrap_or(by_output);
    let mut half = args.file.as_deref().map(beside).transpose()?;
    let (mut cursor, mut orders): (Option<String>, usize) = (None, 0);
    loop {
        let page = client.orders_page(&args.sale, cursor.as_deref(), PAGE).await?;
        let bytes = format.write(&page.items, orders == 0)?;
        match &mut half {
            Some(half) => half.write_all(&bytes).context("the orders cannot be written")?,
            None => to_stdout(&bytes)?,
        }
        orders += page.items.len();
        let Some(next) = page.next else { break };
        ensure!(cursor.as_ref() != Some(&next), "the server repeats a page: the export would never end");
        cursor = Some(next);
    }
    if let (Some(half), Some(path)) = (half, &args.file) {
        half.as_file().sync_all().context("the orders cannot be written")?;
        half.persist(path).with_context(|| format!("{} cannot be written", path.display()))?;
        output::say(&format!("wrote {orders} orders to {}", path.display()));
    }
    Ok(())
}

/// A file that takes the name of `path` once it is whole; readable by its owner only, since it
/// says who bought what.
fn beside(path: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    NamedTempFile::new_in(folder).with_context(|| format!("no file can be made in {}", folder.display()))
}

impl Format {
    fn write(self, orders: &[OrderRow], first: bool) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Csv => {
                let mut csv = csv::Writer::from_writer(Vec::new());
                if first {
                    csv.write_record(COLUMNS)?;
                }
                for order in orders {
                    csv.write_record(record(order))?;
                }
                csv.into_inner().map_err(|error| error.into_error().into())
            }
            Self::JsonLines => {
                let mut lines = Vec::new();
                for order in orders {
                    serde_json::to_writer(&mut lines, order)?;
                    lines.push(b'\n');
                }
                Ok(lines)
            }
        }
    }
}

fn record(order: &OrderRow) -> [String; 12] {
    [
        order.order_id.clone(),
        order.sale_id.clone(),
        order.item_id.clone(),
        order.user_id.clone(),
        order.quantity.to_string(),
        order.status.clone(),
        order.reason.clone().unwrap_or_default(),
        order.total.amount.clone(),
        order.total.currency.clone(),
        order.total.minor.to_string(),
        order.reserved_at.clone(),
        order.expires_at.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use doorbuster_wire::Money;

    use super::*;

    fn order(user: &str) -> OrderRow {
        OrderRow {
            order_id: "o".to_owned(),
            sale_id: "1".to_owned(),
            item_id: "2".to_owned(),
            user_id: user.to_owned(),
            quantity: 1,
            status: "PAID".to_owned(),
            reason: None,
            total: Money { amount: "19.90".to_owned(), currency: "EUR".to_owned(), minor: 1_990 },
            reserved_at: "r".to_owned(),
            expires_at: "e".to_owned(),
        }
    }

    #[test]
    fn a_users_id_cannot_break_out_of_its_cell() {
        let page = Format::Csv.write(&[order("a,\"b\"\n")], true).unwrap();
        let text = String::from_utf8(page).unwrap();
        assert!(text.starts_with("orderId,saleId,"), "{text}");
        assert!(text.contains(",\"a,\"\"b\"\"\n\",1,PAID,,19.90,EUR,1990,r,e\n"), "{text}");
    }

    #[test]
    fn every_order_is_one_line_of_json() {
        let page = Format::JsonLines.write(&[order("a\nb"), order("c")], true).unwrap();
        let text = String::from_utf8(page).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert_eq!(serde_json::from_str::<OrderRow>(text.lines().next().unwrap()).unwrap(), order("a\nb"));
    }
}
