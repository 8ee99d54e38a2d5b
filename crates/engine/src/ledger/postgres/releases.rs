//! Units on their way back, and positions, in PostgreSQL.

use async_trait::async_trait;

use super::PostgresLedger;
use super::db::CLOCK;
use super::rows::{self, POSITION_COLUMNS, at_most};
use crate::delivery::Position;
use crate::fault::BackendError;
use crate::ledger::{Positions, ReleaseRow, Releases};
use crate::order::{OrderId, SaleId};

#[async_trait]
impl Releases for PostgresLedger {
    async fn releases_due(&self, skip: &[SaleId], limit: usize) -> Result<Vec<ReleaseRow>, BackendError> {
        // The clock is asked once, so that a row cannot slip between two readings of it. Two ranges of the
        // index, read from their ends: a sale that ended has many rows whose moment has not come.
        let sql = "WITH time AS ( \
                 SELECT coalesce($3::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now \
             ), due AS ( \
                 (SELECT * FROM release_row WHERE sale <> ALL($1) AND due_at <= (SELECT now FROM time) \
                     ORDER BY due_at LIMIT $2) \
                 UNION ALL \
                 (SELECT * FROM release_row WHERE sale <> ALL($1) AND due_at > (SELECT now FROM time) + $4 \
                     ORDER BY due_at LIMIT $2) \
             ) SELECT due.ord, due.sale, due.user_id, s.epoch FROM due JOIN sale s ON s.id = due.sale \
             ORDER BY due.due_at, due.id LIMIT $2";
        let (clock, spread) = (self.db.clock(), self.db.release_spread());
        self.query_all("read releases", (sql, &[&skip, &at_most(limit), &clock, &spread]), |row| {
            Ok(ReleaseRow {
                order: row.try_get("ord")?,
                sale: row.try_get("sale")?,
                user: row.try_get("user_id")?,
                epoch: row.try_get("epoch")?,
            })
        })
        .await
    }

    async fn releases_waiting(&self, limit: usize) -> Result<Vec<OrderId>, BackendError> {
        let sql = "SELECT ord FROM release_row ORDER BY id LIMIT $1";
        self.query_all("read who waits for a release", (sql, &[&at_most(limit)]), |row| {
            Ok(row.try_get("ord")?)
        })
        .await
    }

    async fn releases_done(&self, orders: &[OrderId]) -> Result<(), BackendError> {
        self.db
            .write_batch("drop releases", |tx| async move {
                let [_, now] = tx.pipeline([(LOCK, &[&orders]), (CLOCK, &[&tx.clock()])]).await?;
                tx.rows((DONE, &[&orders, &rows::time(&now)?])).await.map(drop)
            })
            .await
    }

    async fn ensure_releases(&self, orders: &[OrderId]) -> Result<(), BackendError> {
        let sql = "INSERT INTO release_row (ord, sale, user_id) \
             SELECT id, sale, user_id FROM orders \
             WHERE id = ANY($1) AND status NOT IN ('PENDING', 'PAID') ORDER BY id \
             ON CONFLICT (ord) DO NOTHING";
        self.db
            .write("make sure of releases", |tx| async move { tx.rows((sql, &[&orders])).await.map(drop) })
            .await
    }
}

/// In order, so that two releasers with the same rows wait for each other and do not deadlock: in that of the
/// index by which they are found.
const LOCK: &str = "SELECT id FROM release_row WHERE ord = ANY($1) ORDER BY ord FOR UPDATE";

/// Drops the rows; what they gave back can be bought from now on, and the shop is told. What never had a
/// step of the stock gave nothing back. No join with the table itself: between two sales the server counts
/// it as empty, and would go through all of it for each row.
const DONE: &str = "WITH gone AS (DELETE FROM release_row WHERE ord = ANY($1) RETURNING ord) \
     INSERT INTO shop_event (kind, sale, item, units, at) \
     SELECT 'stock.returned', o.sale, o.item, sum(o.units)::bigint, $2 \
     FROM gone JOIN orders o ON o.id = gone.ord AND o.seq <> 0 GROUP BY o.sale, o.item";

#[async_trait]
impl Positions for PostgresLedger {
    async fn register(&self, partitions: &[Position]) -> Result<(), BackendError> {
        let sql = "INSERT INTO queue_offset (topic, part, next) \
             SELECT topic, part, 0 FROM unnest($1::text[], $2::bigint[]) AS t (topic, part) \
             ORDER BY topic, part ON CONFLICT DO NOTHING";
        self.db
            .write("register partitions", |tx| async move {
                let topics: Vec<&str> = partitions.iter().map(|it| it.topic.0.as_str()).collect();
                let parts: Vec<i64> = partitions.iter().map(|it| i64::from(it.partition)).collect();
                tx.rows((sql, &[&topics, &parts])).await.map(drop)
            })
            .await
    }

    async fn cut_back(&self, from: &Position, end: u64) -> Result<bool, BackendError> {
        let sql = "UPDATE queue_offset SET next = $4 \
             WHERE topic = $1 AND part = $2 AND next = $3 AND next > $4 RETURNING next";
        self.db
            .write("cut a position back", |tx| async move {
                let (part, next) = (i64::from(from.partition), rows::signed(from.next));
                Ok(!tx.rows((sql, &[&from.topic.0, &part, &next, &rows::signed(end)])).await?.is_empty())
            })
            .await
    }

    async fn positions(&self) -> Result<Vec<Position>, BackendError> {
        let sql = format!("SELECT {POSITION_COLUMNS} FROM queue_offset ORDER BY topic, part");
        self.query_all("read positions", (&sql, &[]), rows::position).await
    }
}
