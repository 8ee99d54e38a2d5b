//! Sales to be written down: from a file, from flags, or after the model of another sale.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use doorbuster_engine::clock::{Clock, SystemClock, Timestamp};
use doorbuster_wire::{ItemDraft, SaleDetail, SaleDraft};

use super::Output;
use crate::{admin, views};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster sale create --file sale.toml --dry-run\n  doorbuster sale create --name Drop --product SHOE-1 --quantity 10000 --price-minor 1990 --currency EUR \\\n      --opens-at 2026-11-27T09:00:00+01:00 --closes-at 2026-11-27T12:00:00+01:00\n\nA file has the same names as the JSON of the admin API:\n  name = \"Drop\"\n  opensAt = \"2026-11-27T09:00:00+01:00\"\n  closesAt = \"2026-11-27T12:00:00+01:00\"\n  [[items]]\n  productId = \"SHOE-1\"\n  quantity = 10000\n  priceMinor = 1990\n  currency = \"EUR\""
)]
pub(super) struct CreateArgs {
    /// The sale as TOML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "product", "title", "quantity", "price_minor", "currency", "opens_at", "closes_at", "limit", "payment_window"])]
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
    /// Check it on this machine, print it and write nothing down
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl CreateArgs {
    /// The draft that was asked for.
    pub(super) fn draft(self) -> anyhow::Result<SaleDraft> {
        if let Some(path) = &self.file {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            return toml::from_str(&text).with_context(|| {
                format!("{} is not a sale; `doorbuster sale create --help` shows one", path.display())
            });
        }
        let (
            Some(name),
            Some(product_id),
            Some(quantity),
            Some(price_minor),
            Some(opens_at),
            Some(closes_at),
        ) = (self.name, self.product, self.quantity, self.price_minor, self.opens_at, self.closes_at)
        else {
            bail!(
                "without --file, --name, --product, --quantity, --price-minor, --opens-at and --closes-at are needed"
            );
        };
        let item = ItemDraft {
            product_id,
            title: self.title,
            quantity,
            price_minor,
            list_price_minor: None,
            currency: self.currency,
        };
        Ok(SaleDraft {
            name,
            opens_at,
            closes_at,
            payment_window_seconds: self.payment_window,
            max_units_per_user: self.limit,
            items: vec![item],
        })
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster sale clone 1 --opens-at 2026-12-04T09:00:00+01:00\n  doorbuster sale clone 1 --name \"Drop 2\" --opens-at 2026-12-04T09:00:00+01:00 --closes-at 2026-12-04T10:00:00+01:00\n\nThe new sale is a draft with the same items, prices, quantities, limit and payment window. Without\n--closes-at it is open as long as the model was."
)]
pub(super) struct CloneArgs {
    /// The id of the sale that is the model
    pub(super) sale: String,
    /// The new sale's name; the model's when absent
    #[arg(long)]
    name: Option<String>,
    /// When it opens: RFC 3339 with an offset; as the model when absent
    #[arg(long)]
    opens_at: Option<String>,
    /// When it closes: RFC 3339 with an offset
    #[arg(long)]
    closes_at: Option<String>,
    /// Check it on this machine, print it and write nothing down
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl CloneArgs {
    /// A draft with the items and terms of `model`.
    pub(super) fn draft(self, model: &SaleDetail) -> anyhow::Result<SaleDraft> {
        let model_opens = views::parse_time(&model.opens_at)?;
        let open_for = views::parse_time(&model.closes_at)?.since(model_opens);
        let opens_at = self.opens_at.as_deref().map(views::parse_time).transpose().context("--opens-at")?;
        let closes_at = match (self.closes_at, opens_at) {
            (Some(closes_at), _) => closes_at,
            (None, Some(opens_at)) => views::time(opens_at.plus(open_for)),
            (None, None) => model.closes_at.clone(),
        };
        let over = views::parse_time(&closes_at).context("--closes-at")? <= now();
        if over && opens_at.is_none() {
            bail!(
                "sale {} is over, so its copy needs a time of its own: name it with --opens-at",
                model.sale_id
            );
        }
        let items = model.items.iter().map(|item| ItemDraft {
            product_id: item.product_id.clone(),
            title: Some(item.title.clone()),
            quantity: item.quantity,
            price_minor: item.price.minor,
            list_price_minor: item.list_price.as_ref().map(|price| price.minor),
            currency: item.price.currency.clone(),
        });
        Ok(SaleDraft {
            name: self.name.unwrap_or_else(|| model.name.clone()),
            opens_at: self.opens_at.unwrap_or_else(|| model.opens_at.clone()),
            closes_at,
            payment_window_seconds: Some(model.payment_window_seconds),
            max_units_per_user: Some(model.max_units_per_user),
            items: items.collect(),
        })
    }
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

/// Checks a draft as the server would and prints it instead of sending it.
pub(super) fn rehearse(draft: &SaleDraft, output: Output) -> anyhow::Result<()> {
    admin::check_draft(draft, now()).context("the sale would be refused")?;
    let text = toml::to_string(draft)?;
    output.print(draft, |_| format!("{text}\n# the sale would be taken; nothing was written down"))
}

#[cfg(test)]
mod tests {
    use doorbuster_wire::{ItemDetail, Money};

    use super::*;

    fn money(minor: i64) -> Money {
        Money { amount: String::new(), currency: "EUR".to_owned(), minor }
    }

    fn model(opens_at: &str, closes_at: &str) -> SaleDetail {
        SaleDetail {
            sale_id: "7".to_owned(),
            name: "Drop".to_owned(),
            state: "closed".to_owned(),
            fence: None,
            epoch: 3,
            opens_at: opens_at.to_owned(),
            closes_at: closes_at.to_owned(),
            payment_window_seconds: 300,
            max_units_per_user: 2,
            items: vec![ItemDetail {
                item_id: "9".to_owned(),
                product_id: "SHOE".to_owned(),
                title: "Shoe".to_owned(),
                price: money(1_990),
                list_price: Some(money(9_900)),
                quantity: 10,
                sold: 10,
                free: Some(0),
            }],
        }
    }

    fn clone(opens_at: Option<&str>) -> CloneArgs {
        let opens_at = opens_at.map(str::to_owned);
        CloneArgs { sale: "7".to_owned(), name: None, opens_at, closes_at: None, dry_run: false }
    }

    #[test]
    fn a_copy_has_the_models_items_and_terms_and_is_open_as_long() {
        let model = model("2020-01-01T00:00:00.000Z", "2020-01-01T02:00:00.000Z");
        let draft = clone(Some("2099-05-05T10:00:00+02:00")).draft(&model).unwrap();
        assert_eq!(draft.opens_at, "2099-05-05T10:00:00+02:00");
        assert_eq!(draft.closes_at, "2099-05-05T10:00:00.000Z");
        assert_eq!((draft.payment_window_seconds, draft.max_units_per_user), (Some(300), Some(2)));
        let item = &draft.items[0];
        assert_eq!((item.quantity, item.price_minor, item.list_price_minor), (10, 1_990, Some(9_900)));
    }

    #[test]
    fn a_copy_of_a_sale_that_is_over_needs_a_time() {
        let over = model("2020-01-01T00:00:00.000Z", "2020-01-01T02:00:00.000Z");
        let error = clone(None).draft(&over).unwrap_err().to_string();
        assert!(error.contains("--opens-at"), "{error}");
        let ahead = model("2099-01-01T00:00:00.000Z", "2099-01-01T02:00:00.000Z");
        assert_eq!(clone(None).draft(&ahead).unwrap().closes_at, ahead.closes_at);
    }
}
