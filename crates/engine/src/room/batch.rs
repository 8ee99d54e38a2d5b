//! The desk in front of the room: who asks while the previous call is under way goes into the next one, as with
//! the stock's batcher. No timer is involved.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::{ASK_BATCH_MAX, Asking, Moment, Place, Room};
use crate::order::SaleId;
use crate::told::Told;

/// Users of one core who may wait for an answer; one more is put off at once.
const WAITING_MAX: usize = 16_384;

/// Longest time for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

struct Waiting {
    asking: Asking,
    at: Moment,
    answer: oneshot::Sender<Place>,
}

/// The side of the desk that users come to. One per core.
#[derive(Clone)]
pub struct Desk {
    sender: mpsc::Sender<(SaleId, Waiting)>,
}

/// The side that calls the room; [`DeskWork::run`] ends when every [`Desk`] is dropped.
pub struct DeskWork {
    arriving: mpsc::Receiver<(SaleId, Waiting)>,
    room: Arc<dyn Room>,
    told: Arc<Told>,
}

impl Desk {
    /// A desk for `room` and the work that somebody must run.
    pub fn new(room: Arc<dyn Room>) -> (Self, DeskWork) {
        let (sender, arriving) = mpsc::channel(WAITING_MAX);
        (Self { sender }, DeskWork { arriving, room, told: Arc::default() })
    }

    /// Where a user stands, who is taken in if he is not there; nothing when the room does not answer.
    pub async fn ask(&self, sale: SaleId, asking: Asking, at: Moment) -> Option<Place> {
        let (answer, place) = oneshot::channel();
        self.sender.try_send((sale, Waiting { asking, at, answer })).ok()?;
        place.await.ok()
    }
}

impl DeskWork {
    /// Serves users until every sender is gone and the last call is answered.
    pub async fn run(mut self) {
        let mut lanes: HashMap<SaleId, VecDeque<Waiting>> = HashMap::new();
        let mut calls: FuturesUnordered<BoxFuture<'static, (SaleId, bool)>> = FuturesUnordered::new();
        let mut arrived = Vec::with_capacity(ASK_BATCH_MAX);
        let mut open = true;
        while open || !calls.is_empty() {
            tokio::select! {
                biased;
                Some((sale, answered)) = calls.next(), if !calls.is_empty() => match lanes.get_mut(&sale) {
                    Some(waiting) if answered && !waiting.is_empty() => calls.push(self.call(sale, waiting)),
                    // Before a room that is not there nobody waits any longer: dropping the sender answers.
                    _ => drop(lanes.remove(&sale)),
                },
                count = self.arriving.recv_many(&mut arrived, ASK_BATCH_MAX), if open => {
                    open = count > 0;
                    let mut idle = Vec::new();
                    for (sale, waiting) in arrived.drain(..) {
                        let lane = lanes.entry(sale).or_insert_with(|| { idle.push(sale); VecDeque::new() });
                        if lane.len() < WAITING_MAX {
                            lane.push_back(waiting);
                        }
                    }
                    for sale in idle {
                        if let Some(waiting) = lanes.get_mut(&sale) {
                            calls.push(self.call(sale, waiting));
                        }
                    }
                }
            }
        }
    }

    fn call(&self, sale: SaleId, waiting: &mut VecDeque<Waiting>) -> BoxFuture<'static, (SaleId, bool)> {
        let batch: Vec<Waiting> = waiting.drain(..waiting.len().min(ASK_BATCH_MAX)).collect();
        let (room, told) = (Arc::clone(&self.room), Arc::clone(&self.told));
        Box::pin(async move { (sale, serve(room.as_ref(), &told, sale, batch).await) })
    }
}

/// One call; whoever gets no answer asks again by himself. Answers whether the room did.
async fn serve(room: &dyn Room, told: &Told, sale: SaleId, batch: Vec<Waiting>) -> bool {
    // All came within one call's time: the moment of the first is that of all.
    let Some(at) = batch.first().map(|first| first.at) else { return true };
    let (asking, answers): (Vec<Asking>, Vec<_>) = batch.into_iter().map(|it| (it.asking, it.answer)).unzip();
    let asked = tokio::time::timeout(CALL_TIMEOUT, room.ask(sale, &asking, at)).await;
    let why = match asked {
        Ok(Ok(places)) if places.len() == asking.len() => {
            for (place, answer) in places.into_iter().zip(answers) {
                // A receiver that is gone has hung up.
                let _ = answer.send(place);
            }
            return true;
        }
        Ok(Ok(_)) => "it answered another number of users than asked".to_owned(),
        Ok(Err(error)) => error.chain(),
        Err(_) => format!("no answer within {} s", CALL_TIMEOUT.as_secs()),
    };
    if let Some(calls) = told.due(1) {
        tracing::warn!(
            sale.id = %sale, calls, error = why,
            "the waiting room does not answer; users hear BUSY and ask again, their places are sealed in what they hold"
        );
    }
    false
}
