//! The books as the servers have them, read by their own clients: neither our program nor its client
//! libraries are asked.

use std::collections::HashSet;
use std::fmt;
use std::process::Command;

use anyhow::{Context as _, Result};
use doorbuster_services::command::output_of;

use super::roles::Stage;

/// What PostgreSQL and Redis say of one sale.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Books {
    quantity: i64,
    sold: i64,
    /// Units of live orders, summed row by row.
    live_units: i64,
    live_users: i64,
    /// The most units of live orders that one user has.
    most_per_user: i64,
    limit: i64,
    rejected: i64,
    waiting_releases: i64,
    dead_letters: i64,
    free: i64,
    unconfirmed: i64,
    /// What the PAID orders cost, and what the payments that paid them are, in minor units.
    paid_orders_minor: i64,
    paid_payments_minor: i64,
    /// Orders that one side has and the other has not.
    only_in_ledger: usize,
    only_in_stock: usize,
    /// From the last reservation to the last record, by the servers' clocks: more than from the last
    /// 202 on, which came between.
    last_recorded_after_ms: i64,
}

impl Books {
    /// What is wrong, one sentence each.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |fine: bool, text: String| {
            if !fine {
                faults.push(text);
            }
        };
        expect(
            self.live_units <= self.quantity,
            format!("{} units are sold where there are {}", self.live_units, self.quantity),
        );
        expect(
            self.live_units == self.sold,
            format!("the rows have {} units, their sum says {}", self.live_units, self.sold),
        );
        expect(
            self.most_per_user <= self.limit,
            format!("one user has {} units where {} are allowed", self.most_per_user, self.limit),
        );
        expect(
            self.free + self.live_units == self.quantity,
            format!(
                "{} units are free in Redis and {} are sold in PostgreSQL, of {}",
                self.free, self.live_units, self.quantity
            ),
        );
        let apart = self.only_in_ledger + self.only_in_stock;
        expect(
            apart == 0,
            format!(
                "{} orders are live in PostgreSQL and not held in Redis, {} the other way round",
                self.only_in_ledger, self.only_in_stock
            ),
        );
        expect(
            self.paid_orders_minor == self.paid_payments_minor,
            format!(
                "PAID orders cost {} in minor units, the payments that paid are {}",
                self.paid_orders_minor, self.paid_payments_minor
            ),
        );
        for (count, what) in [
            (self.rejected, "orders were rejected"),
            (self.dead_letters, "records were parked as dead letters"),
            (self.waiting_releases, "release rows wait"),
            (self.unconfirmed, "outbox entries wait"),
        ] {
            expect(count == 0, format!("{count} {what}"));
        }
        faults
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PostgreSQL has {} of {} units sold to {} users, {} paid in minor units, Redis has {} free; the last order \
             was recorded {} ms after the last reservation",
            self.live_units,
            self.quantity,
            self.live_users,
            self.paid_payments_minor,
            self.free,
            self.last_recorded_after_ms
        )
    }
}

/// Reads both servers.
pub(super) fn books(stage: &Stage, sale: &str) -> Result<Books> {
    let row = sql(
        stage,
        &format!(
            "SELECT (SELECT sum(quantity) FROM item WHERE sale = {sale}), (SELECT sum(sold) FROM item WHERE sale = {sale}), \
             coalesce(sum(units), 0), count(DISTINCT user_id), \
             coalesce((SELECT max(n) FROM (SELECT sum(units) AS n FROM orders WHERE sale = {sale} \
             AND status IN ('PENDING', 'PAID') GROUP BY user_id) AS per_user), 0), \
             (SELECT unit_limit FROM sale WHERE id = {sale}), \
             (SELECT count(*) FROM orders WHERE sale = {sale} AND status = 'REJECTED'), \
             (SELECT count(*) FROM release_row WHERE sale = {sale}), (SELECT count(*) FROM dead_letter), \
             (SELECT epoch FROM sale WHERE id = {sale}), \
             coalesce((SELECT max(at) FROM order_event WHERE from_status IS NULL) - max(reserved_at), 0), \
             (SELECT coalesce(sum(total_minor), 0) FROM orders WHERE sale = {sale} AND status = 'PAID'), \
             (SELECT coalesce(sum(p.amount_minor), 0) FROM payment p JOIN orders o ON o.id = p.ord \
             WHERE o.sale = {sale} AND p.outcome = 'PAID') \
             FROM orders WHERE sale = {sale} AND status IN ('PENDING', 'PAID')"
        ),
    )?;
    let numbers: Vec<i64> = row
        .split('|')
        .map(|number| number.trim().parse().with_context(|| format!("PostgreSQL answered {row}")))
        .collect::<Result<_>>()?;
    let &[
        quantity,
        sold,
        live_units,
        live_users,
        most_per_user,
        limit,
        rejected,
        waiting_releases,
        dead_letters,
        epoch,
        last_recorded_after_ms,
        paid_orders_minor,
        paid_payments_minor,
    ] = numbers.as_slice()
    else {
        anyhow::bail!("PostgreSQL answered {row}");
    };
    let live = sql(
        stage,
        &format!(
            "SELECT replace(id::text, '-', '') FROM orders WHERE sale = {sale} AND status IN ('PENDING', 'PAID')"
        ),
    )?;
    let key = |name: &str| format!("{}:{{s{sale}.0}}:{epoch}:{name}", stage.name);
    let holds = redis(stage, &["HVALS", &key("buy")])?;
    // A hold is a line that begins with its order; the key's mark is a line of one digit.
    let held: HashSet<&str> =
        holds.lines().filter_map(|line| line.split(' ').next()).filter(|id| id.len() == 32).collect();
    let live: HashSet<&str> = live.lines().filter(|id| !id.is_empty()).collect();
    // Fields and values by turns; the mark's field is empty.
    let shelves = redis(stage, &["HGETALL", &key("stk")])?;
    let shelves: Vec<&str> = shelves.lines().collect();
    let free = shelves.chunks(2).filter(|pair| !pair[0].is_empty());
    let free = free.filter_map(|pair| pair.get(1)?.parse::<i64>().ok()).sum();
    let entries: i64 = redis(stage, &["ZCARD", &key("out")])?.parse().context("ZCARD")?;
    Ok(Books {
        quantity,
        sold,
        live_units,
        live_users,
        most_per_user,
        limit,
        rejected,
        waiting_releases,
        dead_letters,
        free,
        unconfirmed: entries - 1,
        only_in_ledger: live.difference(&held).count(),
        only_in_stock: held.difference(&live).count(),
        last_recorded_after_ms,
        paid_orders_minor,
        paid_payments_minor,
    })
}

fn sql(stage: &Stage, statement: &str) -> Result<String> {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", "-c"]);
    command.arg(format!("SET search_path = {}; {statement}", stage.name));
    command.arg(&stage.postgres);
    let printed = output_of(&mut command)?;
    let printed = printed.trim();
    Ok(printed.strip_prefix("SET").unwrap_or(printed).trim().to_owned())
}

fn redis(stage: &Stage, words: &[&str]) -> Result<String> {
    let mut command = Command::new("redis-cli");
    command.args(["--no-auth-warning", "--raw", "-u", &stage.redis]).args(words);
    let printed = output_of(&mut command)?;
    // Empty first lines stay: they are fields.
    Ok(printed.strip_suffix('\n').unwrap_or(&printed).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Books {
        Books {
            quantity: 10,
            sold: 7,
            live_units: 7,
            live_users: 7,
            most_per_user: 1,
            limit: 1,
            free: 3,
            ..Books::default()
        }
    }

    #[test]
    fn sound_books_have_no_faults_and_each_fault_is_told() {
        assert_eq!(sound().faults(), Vec::<String>::new());
        for (books, word) in [
            (Books { live_units: 11, sold: 11, free: -1, ..sound() }, "11 units are sold"),
            (Books { sold: 6, ..sound() }, "sum says 6"),
            (Books { most_per_user: 2, ..sound() }, "one user has 2"),
            (Books { free: 4, ..sound() }, "free in Redis"),
            (Books { only_in_ledger: 1, ..sound() }, "not held"),
            (Books { only_in_stock: 1, ..sound() }, "other way"),
            (Books { paid_payments_minor: 1_990, ..sound() }, "payments that paid are 1990"),
            (Books { rejected: 1, ..sound() }, "rejected"),
            (Books { dead_letters: 1, ..sound() }, "dead letters"),
            (Books { waiting_releases: 1, ..sound() }, "release rows"),
            (Books { unconfirmed: 1, ..sound() }, "outbox"),
        ] {
            let faults = books.faults();
            assert!(faults.len() == 1 && faults[0].contains(word), "{faults:?}");
        }
    }
}
