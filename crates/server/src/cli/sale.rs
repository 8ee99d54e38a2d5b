//! `doorbuster sale …`.

use anyhow::Context;
use clap::{Args, Subcommand};
use doorbuster_loadtest::AdminClient;
use doorbuster_wire::{PreheatItem, PreheatReport, Restock, SaleDetail};

use super::client::AdminArgs;
use super::confirm::Consent;
use super::draft::{self, CloneArgs, CreateArgs};
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
    Close(CloseArgs),
    /// Write a new draft down with another sale's items and terms
    Clone(CloneArgs),
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
    after_help = "Example:\n  doorbuster sale close 1 --yes\n\nOrders that are placed can still be paid."
)]
struct CloseArgs {
    /// The sale's id
    sale: String,
    #[command(flatten)]
    consent: Consent,
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
    let (admin, output) = (args.admin, args.output);
    let client = || admin.client();
    let one = |sale: &SaleDetail| describe(std::slice::from_ref(sale));
    match args.command {
        SaleCommand::Create(create) => {
            let dry_run = create.dry_run;
            let draft = create.draft()?;
            if dry_run {
                draft::rehearse(&draft, output)?;
            } else {
                output.print(&client()?.create_sale(&draft).await?, one)?;
            }
        }
        SaleCommand::Clone(copy) => {
            let (client, dry_run) = (client()?, copy.dry_run);
            let model = client.sale(&copy.sale).await?;
            let draft = copy.draft(&model)?;
            if dry_run {
                draft::rehearse(&draft, output)?;
            } else {
                output.print(&client.create_sale(&draft).await?, one)?;
            }
        }
        SaleCommand::List => output.print(&client()?.sales().await?, |sales| describe(sales))?,
        SaleCommand::Show(id) => output.print(&client()?.sale(&id.sale).await?, one)?,
        SaleCommand::Preheat(id) => {
            let report = client()?.preheat(&id.sale).await?;
            output.print(&report, describe_preheat)?;
            return Ok(Verdict::of(report.ok));
        }
        SaleCommand::Open(id) => output.print(&client()?.open(&id.sale).await?, one)?,
        SaleCommand::Pause(id) => output.print(&client()?.pause(&id.sale).await?, one)?,
        SaleCommand::Close(close) => {
            let what = format!("Closing sale {} ends it for good: it cannot be opened again.", close.sale);
            close.consent.ask(&what)?;
            output.print(&client()?.close(&close.sale).await?, one)?;
        }
        SaleCommand::Restock(restock) => output.print(&run_restock(&client()?, restock).await?, one)?,
    }
    Ok(Verdict::Fine)
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
    describe_read_back(&report.sale_id, report.epoch, report.ok, &report.items)
}

/// What was loaded, read back from the stock.
pub(super) fn describe_read_back(sale: &str, epoch: u64, ok: bool, items: &[PreheatItem]) -> String {
    let rows: Vec<Vec<String>> = items
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
    let verdict = if ok {
        "loaded and read back"
    } else {
        "the stock differs from the ledger: do not open it, run `doorbuster audit`"
    };
    format!("sale {sale}, epoch {epoch}: {verdict}\n{table}")
}
