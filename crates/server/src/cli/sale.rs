//! `doorbuster sale …`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use doorbuster_loadtest::AdminClient;
use doorbuster_wire::{ItemDraft, PreheatReport, Restock, SaleDetail, SaleDraft};

use super::client::AdminArgs;
use super::{Output, Verdict, output};

/// Create sales and run them, through the staff's listener of a running server.
#[derive(Args)]
pub(crate) struct SaleArgs {
    #[command(subcommand)]
    command: SaleCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum SaleCommand {
    /// Write a new sale down, from a file or from flags
    Create(CreateArgs),
    /// Every sale
    List,
    /// One sale
    Show(SaleId),
    /// Load the sale's stock and read it back; repeating changes nothing
    Preheat(SaleId),
    /// Sell from now on
    Open(SaleId),
    /// Stop selling until it is opened again
    Pause(SaleId),
    /// End the sale for good
    Close(SaleId),
    /// Change an item's quantity by a difference
    Restock(RestockArgs),
}

#[derive(Args)]
struct SaleId {
    /// The sale's id
    sale: String,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster sale create --file sale.toml\n  doorbuster sale create --name Drop --product SHOE-1 --quantity 10000 --price-minor 1990 --currency EUR \\\n      --opens-at 2026-11-27T09:00:00+01:00 --closes-at 2026-11-27T12:00:00+01:00\n\nA file has the same names as the JSON of the admin API:\n  name = \"Drop\"\n  opensAt = \"2026-11-27T09:00:00+01:00\"\n  closesAt = \"2026-11-27T12:00:00+01:00\"\n  [[items]]\n  productId = \"SHOE-1\"\n  quantity = 10000\n  priceMinor = 1990\n  currency = \"EUR\""
)]
struct CreateArgs {
    /// The sale as TOML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "product", "quantity", "price_minor", "currency", "opens_at", "closes_at"])]
    file: Option<PathBuf>,
    /// Its name
    #[arg(long, required_unless_present = "file")]
    name: Option<String>,
    /// The product's id in the shop
    #[arg(long, required_unless_present = "file")]
    product: Option<String>,
    /// What the page calls it
    #[arg(long)]
    title: Option<String>,
    /// Units for sale
    #[arg(long, required_unless_present = "file")]
    quantity: Option<u64>,
    /// Price of one unit in minor units, such as 1990 for 19.90
    #[arg(long, required_unless_present = "file")]
    price_minor: Option<i64>,
    /// ISO 4217 code
    #[arg(long, default_value = "EUR")]
    currency: String,
    /// When it opens: RFC 3339 with an offset
    #[arg(long, required_unless_present = "file")]
    opens_at: Option<String>,
    /// When it closes: RFC 3339 with an offset
    #[arg(long, required_unless_present = "file")]
    closes_at: Option<String>,
    /// Most units one user may hold
    #[arg(long)]
    limit: Option<u32>,
    /// Seconds an order may stay unpaid; 600 when absent
    #[arg(long)]
    payment_window: Option<u64>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster sale restock 1 1 --units +500\n  doorbuster sale restock 1 1 --units=-20"
)]
struct RestockArgs {
    /// The sale's id
    sale: String,
    /// The item's id
    item: String,
    /// The difference, such as +500 or -20
    #[arg(long, allow_hyphen_values = true)]
    units: String,
    /// A UUID for this operation: the same one sent again changes nothing more
    #[arg(long)]
    operation_id: Option<uuid::Uuid>,
}

pub(crate) async fn run(args: SaleArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    let one = |sale: &SaleDetail| describe(std::slice::from_ref(sale));
    match args.command {
        SaleCommand::Create(create) => args.output.print(&client.create_sale(&draft(create)?).await?, one)?,
        SaleCommand::List => args.output.print(&client.sales().await?, |sales| describe(sales))?,
        SaleCommand::Show(id) => args.output.print(&client.sale(&id.sale).await?, one)?,
        SaleCommand::Preheat(id) => {
            let report = client.preheat(&id.sale).await?;
            args.output.print(&report, describe_preheat)?;
            return Ok(Verdict::of(report.ok));
        }
        SaleCommand::Open(id) => args.output.print(&client.open(&id.sale).await?, one)?,
        SaleCommand::Pause(id) => args.output.print(&client.pause(&id.sale).await?, one)?,
        SaleCommand::Close(id) => args.output.print(&client.close(&id.sale).await?, one)?,
        SaleCommand::Restock(restock) => args.output.print(&run_restock(&client, restock).await?, one)?,
    }
    Ok(Verdict::Fine)
}

fn draft(args: CreateArgs) -> anyhow::Result<SaleDraft> {
    if let Some(path) = &args.file {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        return toml::from_str(&text).with_context(|| format!("{} is not a sale", path.display()));
    }
    let (Some(name), Some(product_id), Some(quantity), Some(price_minor), Some(opens_at), Some(closes_at)) =
        (args.name, args.product, args.quantity, args.price_minor, args.opens_at, args.closes_at)
    else {
        bail!(
            "without --file, --name, --product, --quantity, --price-minor, --opens-at and --closes-at are needed"
        );
    };
    let item = ItemDraft {
        product_id,
        title: args.title,
        quantity,
        price_minor,
        list_price_minor: None,
        currency: args.currency,
    };
    Ok(SaleDraft {
        name,
        opens_at,
        closes_at,
        payment_window_seconds: args.payment_window,
        max_units_per_user: args.limit,
        items: vec![item],
    })
}

async fn run_restock(client: &AdminClient, args: RestockArgs) -> anyhow::Result<SaleDetail> {
    let units: i64 =
        args.units.trim_start_matches('+').parse().context("--units is a difference, such as +500 or -20")?;
    let operation = args.operation_id.unwrap_or_else(|| uuid::Uuid::from_u128(rand::random()));
    output::say(&format!("operation {operation} (repeat it with --operation-id {operation})"));
    let restock = Restock { operation_id: operation.to_string(), units };
    Ok(client.restock(&args.sale, &args.item, &restock).await?)
}

fn describe(sales: &[SaleDetail]) -> String {
    let rows: Vec<Vec<String>> = sales
        .iter()
        .flat_map(|sale| {
            let state = match &sale.fence {
                Some(fence) => format!("{} (fenced: {fence})", sale.state),
                None => sale.state.clone(),
            };
            sale.items.iter().map(move |item| {
                vec![
                    sale.sale_id.clone(),
                    sale.name.clone(),
                    state.clone(),
                    sale.opens_at.clone(),
                    item.item_id.clone(),
                    item.title.clone(),
                    format!("{} {}", item.price.amount, item.price.currency),
                    item.quantity.to_string(),
                    item.sold.to_string(),
                    item.free.map_or("-".to_owned(), |free| free.to_string()),
                ]
            })
        })
        .collect();
    if rows.is_empty() {
        return "no sales yet; `doorbuster sale create --help` shows how to make one".to_owned();
    }
    output::table(
        &["SALE", "NAME", "STATE", "OPENS", "ITEM", "TITLE", "PRICE", "QUANTITY", "SOLD", "FREE"],
        &rows,
    )
}

fn describe_preheat(report: &PreheatReport) -> String {
    let rows: Vec<Vec<String>> = report
        .items
        .iter()
        .map(|item| {
            let verdict = if item.ok { "ok" } else { "DIFFERS" };
            vec![
                item.item_id.clone(),
                item.quantity.to_string(),
                item.sold.to_string(),
                item.free.to_string(),
                item.held.to_string(),
                verdict.to_owned(),
            ]
        })
        .collect();
    let table = output::table(&["ITEM", "QUANTITY", "SOLD", "FREE", "HELD", "READ BACK"], &rows);
    let verdict = if report.ok { "loaded and read back" } else { "the stock differs from the ledger" };
    format!("sale {}, epoch {}: {verdict}\n{table}", report.sale_id, report.epoch)
}
