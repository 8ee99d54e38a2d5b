//! What an operator does to a sale's servers, past every proxy, by their own clients.

use anyhow::{Context as _, Result, bail};
use tokio_postgres::{NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::scene::{REST, Scene};

impl Scene<'_> {
    /// Runs statements on the ledger as an operator would, in the schema of this sale.
    pub(crate) async fn sql(&self, statements: &str) -> Result<()> {
        self.ask_ledger(statements).await.map(drop)
    }

    /// The sale's epoch, and whether a fence stands. The ledger alone is asked: the stock may be hurt.
    pub(crate) async fn epoch(&self) -> Result<(u64, bool)> {
        let rows = self.ask_ledger("SELECT epoch, fence_reason IS NOT NULL FROM sale WHERE id = 1").await?;
        let row = first(&rows).context("the sale is there")?;
        Ok((row.get(0).context("an epoch")?.parse()?, row.get(1) == Some("t")))
    }

    /// One number that the ledger has.
    pub(crate) async fn number(&self, query: &str) -> Result<u64> {
        let rows = self.ask_ledger(query).await?;
        let row = first(&rows).context("a count has a row")?;
        Ok(row.get(0).context("a number")?.parse()?)
    }

    async fn ask_ledger(&self, statements: &str) -> Result<Vec<SimpleQueryMessage>> {
        let (client, connection) = tokio_postgres::connect(&self.engines.postgres.url, NoTls).await?;
        let set = format!("SET search_path = {}", self.name);
        let all = async {
            client.batch_execute(&set).await?;
            client.simple_query(statements).await
        };
        tokio::select! {
            rows = all => Ok(rows?),
            ended = connection => bail!("the connection ended: {ended:?}"),
        }
    }

    /// Sends a command to Redis, past every proxy.
    pub(crate) async fn redis_says(&self, words: &[&str]) -> Result<redis::Value> {
        let mut connection =
            redis::Client::open(self.redis.url.as_str())?.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        Ok(command.query_async(&mut connection).await?)
    }

    /// A key of the stock's present epoch, as Redis has it.
    pub(crate) async fn stock_key(&self, name: &str) -> Result<String> {
        let (epoch, _) = self.epoch().await?;
        Ok(format!("{}:{{s{}.0}}:{epoch}:{name}", self.name, self.offer.sale))
    }

    /// Appends a record as it stands to a partition of the topic.
    pub(crate) async fn append(&self, partition: i32, bytes: &[u8]) -> Result<()> {
        let mut client = rdkafka::ClientConfig::new();
        client.set("bootstrap.servers", &self.engines.kafka.url);
        let client: rdkafka::producer::FutureProducer = client.create()?;
        let record = rdkafka::producer::FutureRecord::<[u8], [u8]>::to(&self.name);
        let sent = client.send(record.partition(partition).payload(bytes), REST).await;
        sent.map(drop).map_err(|(error, _)| error.into())
    }
}

fn first(rows: &[SimpleQueryMessage]) -> Option<&SimpleQueryRow> {
    rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}
