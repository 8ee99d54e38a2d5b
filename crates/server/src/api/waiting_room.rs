//! The waiting room of a sale: who asks is taken in, hears where he stands, and gets a sale token when it is his
//! turn. Asking is all there is to it: whoever asks again keeps his place.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use doorbuster_engine::gate::{AtDoor, CaptchaAnswer, NotIssued, RoomState};
use doorbuster_engine::order::SaleId;
use doorbuster_engine::room::{Asking, Moment, Place, Rank};
use doorbuster_wire::{AskWaitingRoom, JsonScalar, WaitingRoomView};

use super::sale_tokens::{judged, not_issued};
use super::{ApiError, ApiState, Buyer, InPath, SignedIn, fresh_json, said, sale_id};
use crate::problem::{self, With};
use crate::request_id::RequestId;
use crate::views;

/// Soonest and latest time to ask again while waiting.
const SOONEST: Duration = Duration::from_secs(2);
const LATEST: Duration = Duration::from_secs(15);

/// So many who waited for the opening ask again in each second behind it.
const BACK_PER_SECOND: u64 = 20_000;

/// Asks of one user in a sale's waiting room.
pub(super) async fn ask(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    SignedIn(visitor): SignedIn,
    id: RequestId,
    body: Bytes,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let asked: AskWaitingRoom = said(&body, id)?;
    let gate = state.engine.gate();
    let shown = asked.place.as_deref().map(str::as_bytes);
    let door = gate.at_door(sale, &visitor, shown).map_err(|not| not_issued(not, sale, id))?;
    let Some(mut door) = door else { return Ok(fresh_json(&state.view(sale, "NOT_NEEDED"))) };
    if door.needs_captcha {
        let answer = match &asked.captcha {
            Some(answer) => judged(&state, (sale, &visitor.known.user), answer, id).await?,
            None => CaptchaAnswer::Missing,
        };
        door = gate.pass_captcha(door, answer).map_err(|not| not_issued(not, sale, id))?;
    }

    let rank = door.shown.map(Rank).or_else(|| door.drawn.map(Rank::drawn));
    let asking = Asking { user: visitor.known.user, rank, sealed_at: door.sealed_at };
    let at = Moment { now: door.now, opens_at: door.opens_at };
    match state.desk.ask(sale, asking, at).await {
        Some(Place::Waiting { rank, ahead }) => state.waits(&door, rank, ahead, id),
        Some(Place::Inside { until }) => {
            let issued = gate.let_in(&door, until).ok_or_else(|| not_issued(NotIssued::Off, sale, id))?;
            Ok(fresh_json(&WaitingRoomView {
                token: Some(issued.token),
                expires_at: Some(views::time(issued.ends)),
                ..state.view(sale, "ADMITTED")
            }))
        }
        Some(Place::Full) => {
            let why = "As many people wait for this sale as its waiting room takes. Try again later.";
            Err(state.put_off(&door, why, id).after(60))
        }
        None => {
            let why = "The waiting room does not answer. Ask again shortly with the place that you were given: you keep it.";
            Err(state.put_off(&door, why, id).after(2))
        }
    }
}

/// A user waits no more.
pub(super) async fn leave(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    Buyer(user): Buyer,
    id: RequestId,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    if state.engine.shared().catalog.load().sale(sale).is_none() {
        return Err(problem::SALE_NOT_FOUND.said_to(id));
    }
    state.room.leave(sale, &user).await.map_err(|error| ApiError::fault(&error, id))?;
    Ok(fresh_json(&state.view(sale, "LEFT")))
}

impl ApiState {
    fn view(&self, sale: SaleId, status: &str) -> WaitingRoomView {
        let seen = self.engine.shared().rooms.of(sale);
        WaitingRoomView {
            sale_id: sale.to_string(),
            status: status.to_owned(),
            place: None,
            ahead: None,
            waiting: seen.map(|it| it.waiting),
            wait_time_known: false,
            wait_seconds: None,
            sold_out: seen.is_some_and(|it| it.free == Some(0)),
            refresh_in_ms: ms(jittered(LATEST)),
            grace_seconds: self.engine.shared().sale_tokens.rules().place_grace.as_secs(),
            opens_at: None,
            token: None,
            expires_at: None,
        }
    }

    /// Somebody who gets no place now: what he has shown or passed counts the next time.
    fn put_off(&self, door: &AtDoor, why: &str, id: RequestId) -> ApiError {
        let problem = problem::BUSY.because(why);
        match self.engine.gate().seal_place(door, door.shown) {
            Some(place) => ApiError::new(problem.with("place", JsonScalar::Text(place)), id),
            None => ApiError::new(problem, id),
        }
    }

    fn waits(&self, door: &AtDoor, rank: Rank, ahead: u64, id: RequestId) -> Result<Response, ApiError> {
        let place = self.engine.gate().seal_place(door, Some(rank.0));
        let place = Some(place.ok_or_else(|| not_issued(NotIssued::Off, door.sale, id))?);
        let grace = self.engine.shared().sale_tokens.rules().place_grace;
        let state = self.engine.shared().rooms.of(door.sale).unwrap_or_default();
        if door.drawn.is_some() {
            let refresh = until_opening(door.opens_at.since(door.now), state.waiting, grace);
            return Ok(fresh_json(&WaitingRoomView {
                place,
                refresh_in_ms: ms(refresh),
                opens_at: Some(views::time(door.opens_at)),
                ..self.view(door.sale, "PREQUEUE")
            }));
        }
        let wait = about(ahead, &state);
        Ok(fresh_json(&WaitingRoomView {
            place,
            ahead: Some(ahead),
            wait_time_known: wait.is_some(),
            wait_seconds: wait,
            refresh_in_ms: ms(again(ahead, wait, grace)),
            ..self.view(door.sale, "WAITING")
        }))
    }
}

/// About how many seconds until somebody with so many before him is let in; nothing while nobody is.
fn about(ahead: u64, state: &RoomState) -> Option<u64> {
    let pace = state.per_second.filter(|_| state.free.is_some_and(|free| free > 0))?;
    let ahead = f64::from(u32::try_from(ahead).unwrap_or(u32::MAX));
    Duration::try_from_secs_f64(ahead / pace).ok().map(|wait| wait.as_secs() + 1)
}

/// When to ask again before the opening: not all in the second in which it opens, and often enough to be known
/// to be there.
fn until_opening(left: Duration, waiting: u64, grace: Duration) -> Duration {
    let spread = SOONEST.max(Duration::from_secs(waiting / BACK_PER_SECOND));
    (left + spread.mul_f64(rand::random())).min(jittered(grace / 3))
}

/// When to ask again: sooner the nearer the turn is, and often enough to be known to be there.
fn again(ahead: u64, wait: Option<u64>, grace: Duration) -> Duration {
    let near = match wait {
        Some(seconds) => Duration::from_secs(seconds / 10),
        None => Duration::from_millis(ahead / 5),
    };
    jittered(near.clamp(SOONEST, LATEST.min(grace / 3).max(SOONEST)))
}

/// The same, from three quarters of it on: who was answered together does not come together again.
fn jittered(time: Duration) -> Duration {
    time.mul_f64(0.75 + rand::random::<f64>() / 4.0)
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn who_waits_asks_again_in_time_and_not_with_all_others() {
        for _ in 0..1_000 {
            let early = until_opening(S * 3_600, 500_000, S * 120);
            assert!((S * 30..=S * 40).contains(&early), "{early:?}");
            let last = until_opening(S * 5, 500_000, S * 120);
            assert!((S * 5..=S * 30).contains(&last), "{last:?}");
            let near = again(3, Some(1), S * 120);
            assert!((S.mul_f64(1.5)..=S * 2).contains(&near), "{near:?}");
            let far = again(400_000, Some(4_000), S * 120);
            assert!((LATEST.mul_f64(0.75)..=LATEST).contains(&far), "{far:?}");
            let strict = again(400_000, None, S * 30);
            assert!(strict <= S * 10, "{strict:?}");
        }
    }

    #[test]
    fn the_wait_is_known_while_somebody_is_let_in() {
        let state = RoomState { free: Some(5), per_second: Some(10.0), ..RoomState::default() };
        assert_eq!(about(0, &state), Some(1));
        assert_eq!(about(1_000, &state), Some(101));
        assert_eq!(about(1_000, &RoomState { free: Some(0), ..state }), None);
        assert_eq!(about(1_000, &RoomState { free: None, ..state }), None);
        assert_eq!(about(1_000, &RoomState { per_second: None, ..state }), None);
    }
}
