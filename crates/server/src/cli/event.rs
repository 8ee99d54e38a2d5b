//! `doorbuster event …`.

use clap::{Args, Subcommand, ValueEnum};
use doorbuster_wire::EventDelivery;

use super::client::AdminArgs;
use super::{Output, Verdict, output};

/// Events for the shop: look at their deliveries, send them again.
#[derive(Args)]
pub(crate) struct EventArgs {
    #[command(subcommand)]
    command: EventCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum EventCommand {
    /// Deliveries, the newest first
    #[command(
        after_help = "Examples:\n  doorbuster event list --state dead\n  doorbuster event list --subject 0198c5a4-7b1e-7c3a-9d2f-0a1b2c3d4e5f --output json"
    )]
    List {
        /// Of this endpoint only
        #[arg(long, value_name = "NAME")]
        endpoint: Option<String>,
        /// In this state only
        #[arg(long, value_enum)]
        state: Option<State>,
        /// About this order, by its UUID, or this sale, by its id
        #[arg(long, value_name = "ID")]
        subject: Option<String>,
        /// At most so many
        #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// One delivery with what is sent
    #[command(after_help = "Example:\n  doorbuster event show 17")]
    Show {
        /// The delivery's number
        delivery: String,
    },
    /// Send a delivery again, or all that an endpoint never took; the events keep their ids
    #[command(after_help = "Examples:\n  doorbuster event replay 17\n  doorbuster event replay --dead shop")]
    Replay {
        /// The delivery's number
        #[arg(required_unless_present = "dead", conflicts_with = "dead")]
        delivery: Option<String>,
        /// Every dead delivery of this endpoint
        #[arg(long, value_name = "ENDPOINT")]
        dead: Option<String>,
    },
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// It will be sent, or sent again
    Waiting,
    /// The endpoint took it
    Delivered,
    /// It was given up
    Dead,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

pub(crate) async fn run(args: EventArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    match args.command {
        EventCommand::List { endpoint, state, subject, limit } => {
            let named = [("endpoint", endpoint.as_deref()), ("subject", subject.as_deref())];
            let state = ("state", state.map(State::word));
            let filter: Vec<(&str, &str)> = named
                .into_iter()
                .chain([state])
                .filter_map(|(name, value)| value.map(|value| (name, value)))
                .collect();
            let found = client.event_deliveries(&filter, usize::from(limit)).await?;
            args.output.print(&found, |found| list(found))?;
        }
        EventCommand::Show { delivery } => {
            args.output.print(&client.event_delivery(&delivery).await?, describe)?;
        }
        EventCommand::Replay { delivery: Some(delivery), .. } => {
            args.output.print(&client.replay_event(&delivery).await?, describe)?;
        }
        EventCommand::Replay { delivery: None, dead } => {
            let endpoint = dead.unwrap_or_default();
            let mut whole = client.replay_dead_events(&endpoint).await?;
            // Each request takes a bounded part of them.
            let mut part = whole.replayed;
            while part > 0 {
                part = client.replay_dead_events(&endpoint).await?.replayed;
                whole.replayed += part;
            }
            args.output.print(&whole, |it| {
                format!("{} dead deliveries of {} are due again", it.replayed, it.endpoint)
            })?;
        }
    }
    Ok(Verdict::Fine)
}

fn list(deliveries: &[EventDelivery]) -> String {
    if deliveries.is_empty() {
        return "no deliveries".to_owned();
    }
    let rows: Vec<Vec<String>> = deliveries
        .iter()
        .map(|it| {
            vec![
                it.id.clone(),
                it.endpoint.clone(),
                it.kind.clone(),
                it.subject.clone(),
                it.state.clone(),
                it.attempts.to_string(),
                answer(it),
            ]
        })
        .collect();
    output::table(&["id", "endpoint", "type", "subject", "state", "attempts", "answer"], &rows)
}

/// The last answer: its status, then what became of it.
fn answer(delivery: &EventDelivery) -> String {
    let status = delivery.status.map(|status| format!("{status} ")).unwrap_or_default();
    format!("{status}{}", delivery.answer.as_deref().unwrap_or_default().escape_default())
}

fn describe(delivery: &EventDelivery) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut rows = vec![
        ("delivery", delivery.id.clone()),
        ("endpoint", delivery.endpoint.clone()),
        ("event", delivery.event_id.clone()),
        ("type", delivery.kind.clone()),
        ("state", delivery.state.clone()),
        ("attempts", delivery.attempts.to_string()),
        ("last attempt", or_none(&delivery.attempted_at)),
        ("next attempt", or_none(&delivery.next_at)),
        ("answer", answer(delivery)),
    ];
    if let Some(message) = &delivery.message {
        rows.push(("message", serde_json::to_string(message).unwrap_or_default()));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    output::table(&[], &rows)
}
