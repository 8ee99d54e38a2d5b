//! The staff's switches and trail in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};

use super::SqliteLedger;
use super::rows::{self, signed};
use crate::fault::BackendError;
use crate::ledger::staff::BegunBefore;
use crate::ledger::{ActionAnswer, ActionKey, BeginActionOutcome, Staff, StaffAction, TrailEntry};
use crate::order::SaleId;
use crate::switches::{SwitchChange, TurnedSwitch};

#[async_trait]
impl Staff for SqliteLedger {
    async fn turn_switch(&self, change: &SwitchChange) -> Result<Option<TurnedSwitch>, BackendError> {
        let (change, at) = (change.clone(), self.clock.now());
        self.db
            .write("turn a switch", move |tx| {
                if let Some(sale) = change.sale
                    && rows::sale(tx, sale)?.is_none()
                {
                    return Ok(None);
                }
                let sale = change.sale.unwrap_or(SaleId(0));
                tx.execute(
                    "INSERT INTO switch (name, sale, value, reason, set_by, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    (&change.name, sale, &change.value, &change.reason, &change.by, at),
                )?;
                Ok(Some(TurnedSwitch { id: tx.last_insert_rowid(), change, at }))
            })
            .await
    }

    async fn switches(&self) -> Result<Vec<TurnedSwitch>, BackendError> {
        self.db
            .read("read the switches", |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT * FROM switch WHERE value IS NOT NULL \
                     AND id IN (SELECT max(id) FROM switch GROUP BY name, sale) ORDER BY name, sale",
                )?;
                let turned = statement.query_map([], turned)?;
                turned.collect()
            })
            .await
    }

    async fn switch_history(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<TurnedSwitch>, BackendError> {
        self.db
            .read("read the switches' history", move |tx| {
                let mut statement =
                    tx.prepare_cached("SELECT * FROM switch WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?;
                let turned =
                    statement.query_map((before.unwrap_or(i64::MAX), signed(limit as u64)), turned)?;
                turned.collect()
            })
            .await
    }

    async fn begin_action(&self, action: &StaffAction) -> Result<BeginActionOutcome, BackendError> {
        let (it, at) = (action.clone(), self.clock.now());
        self.db
            .write("write the staff's trail", move |tx| {
                if let Some(key) = &it.key
                    && let Some(before) = begun_before(tx, &it.by, key)?
                {
                    return Ok(before.outcome(key));
                }
                let (key, digest) = it.key.as_ref().map(|it| (&it.key, &it.digest)).unzip();
                tx.execute(
                    "INSERT INTO staff_action (at, done_by, role, method, path, body, request, idempotency_key, digest) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                    (at, &it.by, &it.role, &it.method, &it.path, &it.body, &it.request, key, digest),
                )?;
                Ok(BeginActionOutcome::Begun(tx.last_insert_rowid()))
            })
            .await
    }

    async fn end_action(&self, id: i64, answer: &ActionAnswer) -> Result<(), BackendError> {
        let ActionAnswer { status, body } = answer.clone();
        self.db
            .write("write the staff's trail", move |tx| {
                let sql = "UPDATE staff_action SET status = ?2, answer = ?3 WHERE id = ?1";
                tx.execute(sql, (id, status, body)).map(drop)
            })
            .await
    }

    async fn trail(&self, before: Option<i64>, limit: usize) -> Result<Vec<TrailEntry>, BackendError> {
        self.db
            .read("read the staff's trail", move |tx| {
                let mut statement =
                    tx.prepare_cached("SELECT * FROM staff_action WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?;
                let entries =
                    statement.query_map((before.unwrap_or(i64::MAX), signed(limit as u64)), entry)?;
                entries.collect()
            })
            .await
    }
}

/// The action that this member began under this key. Nobody else writes meanwhile.
fn begun_before(tx: &Connection, by: &str, key: &ActionKey) -> rusqlite::Result<Option<BegunBefore>> {
    let mut statement = tx.prepare_cached(
        "SELECT digest, request, status, answer FROM staff_action WHERE done_by = ?1 AND idempotency_key = ?2",
    )?;
    let before = |row: &Row<'_>| {
        Ok(BegunBefore {
            digest: row.get("digest")?,
            request: row.get("request")?,
            status: row.get("status")?,
            answer: row.get("answer")?,
        })
    };
    statement.query_row((by, &key.key), before).optional()
}

fn turned(row: &Row<'_>) -> rusqlite::Result<TurnedSwitch> {
    let sale: SaleId = row.get("sale")?;
    Ok(TurnedSwitch {
        id: row.get("id")?,
        change: SwitchChange {
            name: row.get("name")?,
            sale: (sale != SaleId(0)).then_some(sale),
            value: row.get("value")?,
            reason: row.get("reason")?,
            by: row.get("set_by")?,
        },
        at: row.get("at")?,
    })
}

fn entry(row: &Row<'_>) -> rusqlite::Result<TrailEntry> {
    Ok(TrailEntry {
        id: row.get("id")?,
        at: row.get("at")?,
        action: StaffAction {
            by: row.get("done_by")?,
            role: row.get("role")?,
            method: row.get("method")?,
            path: row.get("path")?,
            body: row.get("body")?,
            request: row.get("request")?,
            key: match row.get("idempotency_key")? {
                Some(key) => Some(ActionKey { key, digest: row.get("digest")? }),
                None => None,
            },
        },
        status: row.get("status")?,
    })
}
