//! The staff's switches and trail in PostgreSQL.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresLedger;
use super::db::CLOCK;
use super::failure::Failure;
use super::rows::{self, at_most};
use crate::fault::{BackendError, Fault};
use crate::ledger::staff::BegunBefore;
use crate::ledger::{ActionAnswer, ActionKey, BeginActionOutcome, Staff, StaffAction, TrailEntry};
use crate::order::SaleId;
use crate::switches::{SwitchChange, TurnedSwitch};

#[async_trait]
impl Staff for PostgresLedger {
    async fn turn_switch(&self, change: &SwitchChange) -> Result<Option<TurnedSwitch>, BackendError> {
        let it = change;
        let sale = it.sale.unwrap_or(SaleId(0));
        let sql = "INSERT INTO switch (name, sale, value, reason, set_by, at) \
             SELECT $1::text, $2::bigint, $3::text, $4::text, $5::text, $6::bigint WHERE $2 = 0 OR EXISTS (SELECT FROM sale WHERE id = $2) \
             RETURNING id, name, sale, value, reason, set_by, at";
        self.db
            .write("turn a switch", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let written = tx.rows((sql, &[&it.name, &sale, &it.value, &it.reason, &it.by, &now])).await?;
                rows::one(&written, turned)
            })
            .await
    }

    async fn switches(&self) -> Result<Vec<TurnedSwitch>, BackendError> {
        let sql = "SELECT * FROM (SELECT DISTINCT ON (name, sale) id, name, sale, value, reason, set_by, at \
             FROM switch ORDER BY name, sale, id DESC) newest WHERE value IS NOT NULL ORDER BY name, sale";
        self.query_all("read the switches", (sql, &[]), turned).await
    }

    async fn switch_history(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<TurnedSwitch>, BackendError> {
        let sql = "SELECT id, name, sale, value, reason, set_by, at FROM switch \
             WHERE id < $1 ORDER BY id DESC LIMIT $2";
        let before = before.unwrap_or(i64::MAX);
        self.query_all("read the switches' history", (sql, &[&before, &at_most(limit)]), turned).await
    }

    async fn begin_action(&self, action: &StaffAction) -> Result<BeginActionOutcome, BackendError> {
        let it = action;
        let (key, digest) = it.key.as_ref().map(|it| (&it.key, &it.digest)).unzip();
        // Of two that begin at once under one key, the second waits for the first to be committed.
        let insert = "INSERT INTO staff_action (at, done_by, role, method, path, body, request, idempotency_key, digest) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (done_by, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING id";
        let select = "SELECT digest, request, status, answer FROM staff_action \
             WHERE done_by = $1 AND idempotency_key = $2";
        self.db
            .write("write the staff's trail", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let written = tx
                    .rows((
                        insert,
                        &[&now, &it.by, &it.role, &it.method, &it.path, &it.body, &it.request, &key, &digest],
                    ))
                    .await?;
                if let Some(id) = rows::one(&written, |row| Ok(row.try_get("id")?))? {
                    return Ok(BeginActionOutcome::Begun(id));
                }
                let found = tx.rows((select, &[&it.by, &key])).await?;
                let before = rows::one(&found, begun_before)?.ok_or(Failure::Overtaken)?;
                it.key.as_ref().map(|key| before.outcome(key)).ok_or(Failure::Overtaken)
            })
            .await
    }

    async fn end_action(&self, id: i64, answer: &ActionAnswer) -> Result<(), BackendError> {
        let status = i64::from(answer.status);
        let bare = "UPDATE staff_action SET status = $2 WHERE id = $1";
        let whole = "UPDATE staff_action SET status = $2, answer = $3 WHERE id = $1";
        let what = "write the staff's trail";
        if let Some(body) = &answer.body {
            let written =
                self.db.write(what, |tx| async move { tx.rows((whole, &[&id, &status, body])).await }).await;
            match written {
                // A role that was made before there were keys may not write the answer: how it ended stands all the same.
                Err(error) if error.fault == Fault::Permanent => {}
                written => return written.map(drop),
            }
        }
        self.db.write(what, |tx| async move { tx.rows((bare, &[&id, &status])).await }).await.map(drop)
    }

    async fn trail(&self, before: Option<i64>, limit: usize) -> Result<Vec<TrailEntry>, BackendError> {
        let sql = "SELECT id, at, done_by, role, method, path, body, request, idempotency_key, digest, status \
             FROM staff_action WHERE id < $1 ORDER BY id DESC LIMIT $2";
        let before = before.unwrap_or(i64::MAX);
        self.query_all("read the staff's trail", (sql, &[&before, &at_most(limit)]), entry).await
    }
}

fn status(row: &Row) -> Result<Option<u16>, Failure> {
    let status: Option<i64> = row.try_get("status")?;
    Ok(status.and_then(|status| u16::try_from(status).ok()))
}

fn begun_before(row: &Row) -> Result<BegunBefore, Failure> {
    Ok(BegunBefore {
        digest: row.try_get("digest")?,
        request: row.try_get("request")?,
        status: status(row)?,
        answer: row.try_get("answer")?,
    })
}

fn turned(row: &Row) -> Result<TurnedSwitch, Failure> {
    let sale: SaleId = row.try_get("sale")?;
    Ok(TurnedSwitch {
        id: row.try_get("id")?,
        change: SwitchChange {
            name: row.try_get("name")?,
            sale: (sale != SaleId(0)).then_some(sale),
            value: row.try_get("value")?,
            reason: row.try_get("reason")?,
            by: row.try_get("set_by")?,
        },
        at: row.try_get("at")?,
    })
}

fn entry(row: &Row) -> Result<TrailEntry, Failure> {
    Ok(TrailEntry {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        action: StaffAction {
            by: row.try_get("done_by")?,
            role: row.try_get("role")?,
            method: row.try_get("method")?,
            path: row.try_get("path")?,
            body: row.try_get("body")?,
            request: row.try_get("request")?,
            key: match row.try_get("idempotency_key")? {
                Some(key) => Some(ActionKey { key, digest: row.try_get("digest")? }),
                None => None,
            },
        },
        status: status(row)?,
    })
}
