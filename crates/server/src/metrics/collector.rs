//! Writes the figures out by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use doorbuster_engine::block::Blocked;
use doorbuster_engine::gate::RoomState;
use doorbuster_engine::observed::{BOUNDS_US, LAYERS, Reading};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{Metrics, Standing};
use crate::tls::{Handshakes, Shown};

/// The purchase's route, which stands before the router.
const PURCHASE: &str = "/api/flash-sales/items/{item}/purchase";

/// One scrape: all counters, and how things stood when it began.
pub(super) struct Scrape {
    pub(super) metrics: Arc<Metrics>,
    pub(super) standing: Standing,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page { encoder };
        self.listeners(&mut page)?;
        self.stages(&mut page)?;
        self.repairs(&mut page)?;
        self.latencies(&mut page)?;
        self.sales(&mut page)?;
        self.rooms(&mut page)?;
        self.gate(&mut page)?;
        self.whole(&mut page)
    }
}

impl Scrape {
    /// What buyers and staff were answered. (The library adds `_total` to a counter's name.)
    fn listeners(&self, page: &mut Page<'_>) -> fmt::Result {
        let cores = &self.metrics.cores;
        let mut purchases: BTreeMap<&str, u64> = BTreeMap::new();
        let mut requests: BTreeMap<[String; 3], u64> = BTreeMap::new();
        let row = |listener: &str, route: &str, class: u16| {
            [listener.to_owned(), route.to_owned(), format!("{class}xx")]
        };
        for core in cores {
            for (word, status, count) in core.purchases() {
                *purchases.entry(word).or_default() += count;
                *requests.entry(row("public", PURCHASE, status / 100)).or_default() += count;
            }
            for ((route, class), count) in core.requests.read() {
                *requests.entry(row("public", &route, class)).or_default() += count;
            }
        }
        for ((route, class), count) in self.metrics.staff.read() {
            *requests.entry(row("admin", &route, class)).or_default() += count;
        }
        let purchases = purchases.into_iter().map(|(word, count)| ([word.to_owned()], count));
        page.counters("purchases", "Answered purchases by what was said", ["outcome"], purchases)?;
        let labels = ["listener", "route", "status"];
        page.counters("http_requests", "Answered requests by route and status class", labels, requests)?;
        let open: usize = cores.iter().map(|core| core.connections.load(Ordering::Relaxed)).sum();
        page.gauges("connections", "Open connections of buyers", [], [([], open as u64)])?;
        let away = cores.iter().map(|core| core.turned_away.load(Ordering::Relaxed)).sum();
        page.counters("connections_refused", "Connections closed for too many were open", [], [([], away)])?;
        self.certificates(page)
    }

    /// How the listeners with TLS are doing; no rows where there is none.
    fn certificates(&self, page: &mut Page<'_>) -> fmt::Result {
        let shown = &self.metrics.tls;
        let of = |shown: &Shown| [shown.listener.to_owned()];
        let ended = shown.iter().flat_map(|shown| {
            let Handshakes { done, failed, late } = &shown.handshakes;
            [("done", done), ("failed", failed), ("late", late)].map(|(word, count)| {
                ([shown.listener.to_owned(), word.to_owned()], count.load(Ordering::Relaxed))
            })
        });
        let labels = ["listener", "outcome"];
        page.counters("tls_handshakes", "Handshakes of TLS, by how they ended", labels, ended)?;
        let ends = shown.iter().map(|shown| (of(shown), shown.pair().ends().as_ms().div_euclid(1_000)));
        let help = "When the certificate ends that a listener shows";
        page.gauges("tls_certificate_expiry_timestamp_seconds", help, ["listener"], ends)?;
        let unusable = shown.iter().map(|shown| (of(shown), u64::from(shown.is_unusable())));
        let help = "1 while a certificate's files cannot be used and an earlier one is shown";
        page.gauges("tls_files_unusable", help, ["listener"], unusable)
    }

    /// What the stages answered, at the seam between them.
    fn stages(&self, page: &mut Page<'_>) -> fmt::Result {
        let seen = &self.metrics.observed;
        let words = |(word, count): (&str, u64)| ([word.to_owned()], count);
        let reserved = seen.reserved.read().map(words);
        page.counters("reserve", "Requests that reached the stock, by its answer", ["outcome"], reserved)?;
        let published = seen.published.read().map(words);
        page.counters(
            "publish",
            "Orders published to the queue, by what became of it",
            ["outcome"],
            published,
        )?;
        let orders = seen.orders.read().map(words);
        page.counters("orders", "Orders in the ledger, by what happened to them", ["event"], orders)?;
        let faults = seen.faults().map(|(layer, fault, count)| ([layer.to_owned(), fault.to_owned()], count));
        page.counters("backend_faults", "Failed calls to a stage", ["layer", "fault"], faults)?;
        let workers = seen.workers();
        let steps = workers.iter().flat_map(|worker| {
            worker.steps.read().map(|(ended, count)| ([worker.name.to_owned(), ended.to_owned()], count))
        });
        page.counters("worker_steps", "Steps of the workers, by how they ended", ["worker", "outcome"], steps)
    }

    /// What waits in the ledger for a worker or for the staff; nothing while it does not answer.
    fn backlog(&self, page: &mut Page<'_>) -> fmt::Result {
        let backlog = self.standing.backlog;
        let rows = backlog.map(|backlog| ([], backlog.release_rows));
        page.gauges("release_rows", "Closed orders whose units are not back in the stock", [], rows)?;
        let letters = backlog.map(|backlog| ([], backlog.open_dead_letters));
        page.gauges("dead_letters_open", "Dead letters that wait for the staff", [], letters)?;
        let late = backlog.map(|backlog| ([], backlog.late_payments));
        page.gauges("late_payments", "Payments that came too late and wait to buy again", [], late)?;
        let refunds = backlog.into_iter().flat_map(|it| {
            [(["due".to_owned()], it.refunds_due), (["refused".to_owned()], it.refunds_refused)]
        });
        page.gauges("refunds", "Money that is still to be given back", ["state"], refunds)?;
        let told = self.metrics.observed.deliveries.read();
        let told = told.map(|(word, count)| ([word.to_owned()], count));
        page.counters("event_deliveries", "Attempts to tell the shop of an event", ["outcome"], told)?;
        let deliveries = backlog.into_iter().flat_map(|it| {
            [(["waiting".to_owned()], it.waiting_deliveries), (["dead".to_owned()], it.dead_deliveries)]
        });
        page.gauges("event_deliveries_open", "Deliveries of events that are not done", ["state"], deliveries)
    }

    /// What was done about faults.
    fn repairs(&self, page: &mut Page<'_>) -> fmt::Result {
        let seen = &self.metrics.observed;
        let words = |(word, count): (&str, u64)| ([word.to_owned()], count);
        let one = |count: &AtomicU64| [([], count.load(Ordering::Relaxed))];
        let rebuilds = seen.rebuilds.read().map(words);
        page.counters("rebuilds", "Rebuilds of a stock that were begun here", ["reason"], rebuilds)?;
        let finished = one(&seen.rebuilds_finished);
        page.counters("rebuilds_finished", "Rebuilds of a stock that were ended here", [], finished)?;
        let again = one(&seen.published_again);
        page.counters("published_again", "Orders published again by the sweeper", [], again)?;
        let zombies = one(&seen.zombie_batches);
        page.counters("zombie_batches", "Batches that another recorder recorded first", [], zombies)?;
        let repeats =
            self.metrics.cores.iter().map(|core| core.reserve_repeats.load(Ordering::Relaxed)).sum();
        page.counters("reserve_repeats", "Reserve calls that were repeated", [], [([], repeats)])?;
        let payments = seen.payments.read().map(words);
        page.counters("payments", "Payments decided, by what became of them", ["outcome"], payments)?;
        self.backlog(page)?;
        let shared = &self.metrics.shared;
        let silence = shared.backpressure.ledger_silence(shared.backends.clock.monotonic());
        let silence = [([], silence.as_secs_f64())];
        page.gauges(
            "ledger_silence_seconds",
            "Time since the ledger's last answer to the watch",
            [],
            silence,
        )?;
        let ahead_ms = shared.catalog.load().stock_ahead_ms();
        let ahead = [([], std::time::Duration::from_millis(ahead_ms.unsigned_abs()).as_secs_f64())];
        page.gauges("stock_clock_difference_seconds", "How far the stock's clock and ours differ", [], ahead)
    }

    fn latencies(&self, page: &mut Page<'_>) -> fmt::Result {
        let seen = &self.metrics.observed;
        let (mut accepted, mut refused) = (Reading::default(), Reading::default());
        for core in &self.metrics.cores {
            accepted.add(&core.accepted.read());
            refused.add(&core.refused.read());
        }
        let purchases = [(["accepted".to_owned()], accepted), (["refused".to_owned()], refused)];
        let name = "purchase_duration_seconds";
        page.histograms(name, "From a purchase's head to its answer", ["answer"], purchases)?;
        for (name, help, latency) in [
            ("reserve_duration_seconds", "Reserve calls to the stock, each for many requests", &seen.reserve),
            ("publish_duration_seconds", "Publish calls to the queue, until durable", &seen.publish),
            ("record_duration_seconds", "Record calls to the ledger, each for many orders", &seen.record),
        ] {
            page.histograms(name, help, [], [([], latency.read())])?;
        }
        Ok(())
    }

    /// How the running sales stand.
    fn sales(&self, page: &mut Page<'_>) -> fmt::Result {
        let sales = &self.standing.sales;
        let levels = || sales.iter().filter_map(|(sale, level)| Some((sale, level.as_ref()?)));
        let units = levels().flat_map(|(sale, level)| {
            level.items.iter().flat_map(move |it| {
                let paid = sale.item(it.item).map_or(0, |item| item.paid);
                let held = it.allocated.saturating_sub(it.free).saturating_sub(paid);
                [("free", it.free), ("held", held), ("sold", paid)].map(|(state, units)| {
                    ([sale.id.to_string(), it.item.to_string(), state.to_owned()], units)
                })
            })
        });
        page.gauges("stock_units", "Units of running sales", ["sale", "item", "state"], units)?;
        let entries = levels().map(|(sale, level)| ([sale.id.to_string()], level.unconfirmed));
        page.gauges("outbox_entries", "Holds not yet known to be recorded", ["sale"], entries)?;
        let ages = levels().map(|(sale, level)| {
            let age = level.oldest_unconfirmed.map_or(0.0, |at| level.now.since(at).as_secs_f64());
            ([sale.id.to_string()], age)
        });
        page.gauges("outbox_oldest_age_seconds", "Age of the oldest such hold", ["sale"], ages)?;
        let fences = sales.iter().map(|(sale, level)| {
            let fenced = sale.fence.is_some() || level.as_ref().is_some_and(|level| level.fenced);
            ([sale.id.to_string()], u64::from(fenced))
        });
        page.gauges("sale_fenced", "1 while a running sale is being rebuilt", ["sale"], fences)
    }

    /// How the waiting rooms stand, as the usher last saw them.
    fn rooms(&self, page: &mut Page<'_>) -> fmt::Result {
        let rooms = self.metrics.shared.rooms.all();
        let figure = |of: fn(&RoomState) -> u64| {
            rooms.iter().map(move |(sale, room)| ([sale.to_string()], of(room))).collect::<Vec<_>>()
        };
        let waiting = figure(|room| room.waiting);
        page.gauges("room_waiting", "Users who wait to be let in", ["sale"], waiting)?;
        let inside = figure(|room| room.inside);
        page.gauges("room_inside", "Users who were let in and whose turn is not over", ["sale"], inside)?;
        let admitted = figure(|room| room.admitted);
        page.counters("room_admitted", "Users who were let in, by whichever gateway", ["sale"], admitted)
    }

    /// Whom the gate keeps out.
    fn gate(&self, page: &mut Page<'_>) -> fmt::Result {
        let shared = &self.metrics.shared;
        let busy = u64::from(shared.backpressure.is_on());
        page.gauges("backpressure", "1 while new orders are refused as BUSY", [], [([], busy)])?;
        let shedding = shared.backpressure.shedding();
        let ratio = [([], f64::from(shedding.pressure_percent()) / 100.0)];
        page.gauges("pressure_ratio", "The worst of what may make BUSY, as a share of its limit", [], ratio)?;
        // As in the switch early_access, where no name can be so.
        let levels = ["*"].into_iter().chain(shared.tokens.levels().names());
        let shed = levels.zip(shedding.counts()).map(|(level, count)| ([level.to_owned()], count));
        page.counters("shed", "Orders refused as BUSY while nearer users' were taken", ["level"], shed)?;
        let kinds = Blocked::KINDS.map(|kind| ([kind.to_owned()], shared.barred.blocked(kind)));
        page.gauges("blocks", "Blocks that stand, as this gateway has read them", ["kind"], kinds)?;
        let barred = shared.barred.count() as u64;
        page.gauges("barred_users", "Users who have too many unpaid orders to buy", [], [([], barred)])
    }

    /// How the process stands.
    fn whole(&self, page: &mut Page<'_>) -> fmt::Result {
        let standing = &self.standing;
        let lag = standing.lag.map(|lag| ([], lag));
        page.gauges("queue_lag_orders", "Orders published and not yet recorded", [], lag)?;
        let age = standing.lag_age.map(|age| ([], age.as_secs_f64()));
        page.gauges("queue_lag_seconds", "At most the age of the oldest such order", [], age)?;
        let up = LAYERS.iter().zip(standing.up).map(|(layer, up)| ([(*layer).to_owned()], u64::from(up)));
        page.gauges("layer_up", "1 when the layer answered this scrape", ["layer"], up)?;
        let keys = u64::try_from(self.metrics.shared.tokens.keys()).unwrap_or(u64::MAX);
        page.gauges("token_keys", "Keys that access tokens are verified with", [], [([], keys)])?;
        let sets = &self.metrics.key_sets;
        let sets = [("taken", &sets.taken), ("unchanged", &sets.unchanged), ("failed", &sets.failed)];
        let sets = sets.map(|(word, count)| ([word.to_owned()], count.load(Ordering::Relaxed)));
        page.counters("jwks_readings", "Readings of the identity provider's keys", ["outcome"], sets)?;
        let verdicts = self.metrics.verdicts.read().map(|(word, count)| ([word.to_owned()], count));
        page.counters("siteverify", "Answers to captchas of others, by the verdict", ["outcome"], verdicts)?;
        let version = [([env!("CARGO_PKG_VERSION").to_owned()], 1_u64)];
        page.gauges("build_info", "Always 1; the label says which program this is", ["version"], version)
    }
}

/// The page being written.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        rows: impl IntoIterator<Item = ([String; N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (values, count) in rows {
            let row = pair(labels, values);
            metric.encode_family(&row)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        Ok(())
    }

    fn gauges<const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        rows: impl IntoIterator<Item = ([String; N], V)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (values, value) in rows {
            let row = pair(labels, values);
            metric.encode_family(&row)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn histograms<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        rows: impl IntoIterator<Item = ([String; N], Reading)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (values, reading) in rows {
            let row = pair(labels, values);
            let seconds = |us: u64| std::time::Duration::from_micros(us).as_secs_f64();
            let bounds = BOUNDS_US.into_iter().map(seconds).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(reading.buckets).collect();
            let mut family = metric.encode_family(&row)?;
            family.encode_histogram::<NoLabelSet>(
                seconds(reading.sum_us),
                reading.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

fn pair<const N: usize>(labels: [&str; N], values: [String; N]) -> [(&str, String); N] {
    let mut values = values.into_iter();
    labels.map(|label| (label, values.next().unwrap_or_default()))
}
