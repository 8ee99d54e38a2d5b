//! What every waiting room promises.

use std::sync::Arc;
use std::time::Duration;

use super::sound;
use crate::clock::Timestamp;
use crate::order::{SaleId, UserId};
use crate::room::{Asking, Crowd, Moment, Openings, Place, Rank, Room, RoomRules};

/// A room kept by [`RULES`].
pub struct Bench {
    /// The room.
    pub room: Arc<dyn Room>,
    /// Makes it forget everything.
    pub forget: Box<dyn Fn() -> Arc<dyn Room> + Send + Sync>,
}

/// How the room is kept.
pub const RULES: RoomRules = RoomRules {
    grace: Duration::from_secs(60),
    turn: Duration::from_secs(120),
    refill: Duration::from_secs(20),
    waiting_max: 2_000,
};

const SALE: SaleId = SaleId(7);

/// So many seconds after the sale opened.
fn at(s: i64) -> Moment {
    let opens_at = Timestamp::from_ms(1_800_000_000_000);
    Moment { now: Timestamp::from_ms(opens_at.as_ms() + s * 1_000), opens_at }
}

fn user(number: u64) -> UserId {
    UserId::new(&format!("user {number}")).expect("short")
}

fn comes(number: u64) -> Asking {
    Asking { user: user(number), rank: None, sealed_at: None }
}

fn draws(number: u64, rank: u64) -> Asking {
    Asking { rank: Some(Rank(rank)), ..comes(number) }
}

/// Shows a place that was sealed so many seconds after the sale opened.
fn shows(number: u64, rank: Rank, s: i64) -> Asking {
    Asking { rank: Some(rank), sealed_at: Some(at(s).now), ..comes(number) }
}

fn openings(inside: u64) -> Openings {
    Openings { inside, most: 1_000, per_minute: None }
}

async fn ask(room: &dyn Room, asking: &[Asking], s: i64) -> Vec<Place> {
    sound(room.ask(SALE, asking, at(s)).await)
}

async fn admit(room: &dyn Room, inside: u64, s: i64) -> Crowd {
    sound(room.admit(SALE, openings(inside), at(s)).await)
}

/// How many stand before each; `None` for who is not waiting.
fn ahead(places: &[Place]) -> Vec<Option<u64>> {
    let ahead = |place: &Place| match place {
        Place::Waiting { ahead, .. } => Some(*ahead),
        Place::Inside { .. } | Place::Full => None,
    };
    places.iter().map(ahead).collect()
}

fn rank(place: &Place) -> Rank {
    match place {
        Place::Waiting { rank, .. } => *rank,
        Place::Inside { .. } | Place::Full => panic!("not waiting: {place:?}"),
    }
}

/// Promise 1.
pub async fn who_asks_again_keeps_the_one_place(bench: &Bench) {
    let room = bench.room.as_ref();
    let first = ask(room, &[comes(1), comes(2), comes(1)], 0).await;
    assert_eq!(ahead(&first), [Some(0), Some(1), Some(0)]);
    assert_eq!(first[0], first[2]);
    assert_eq!(
        ask(room, &[comes(2), comes(1), shows(1, Rank(5), 0)], 30).await,
        [first[1], first[0], first[0]]
    );
    assert_eq!(admit(room, 0, 31).await.waiting, 2);
}

/// Promise 2.
pub async fn drawn_places_come_first_and_late_ones_by_arrival(bench: &Bench) {
    let room = bench.room.as_ref();
    ask(room, &[draws(1, 900), draws(2, 1 << 50), draws(3, 4)], -60).await;
    ask(room, &[comes(4)], 1).await;
    let places = ask(room, &[comes(5), draws(6, 5), comes(4), comes(3), comes(1), comes(2)], 2).await;
    assert_eq!(ahead(&places), [Some(5), Some(1), Some(4), Some(0), Some(2), Some(3)]);
    assert!(rank(&places[2]) >= Rank::LATE && rank(&places[2]) < rank(&places[0]), "{places:?}");
}

/// Promise 3.
pub async fn the_first_are_let_in_as_far_as_there_are_places(bench: &Bench) {
    let room = bench.room.as_ref();
    let everybody: Vec<Asking> = (0..10).map(|it| draws(it, it)).collect();
    ask(room, &everybody, -1).await;
    let crowd = admit(room, 3, 0).await;
    assert_eq!(crowd, Crowd { waiting: 7, inside: 3, admitted: 3, admitted_now: 3 });
    assert_eq!(admit(room, 3, 0).await.admitted_now, 0);
    let few = Openings { most: 1, ..openings(9) };
    let crowd = sound(room.admit(SALE, few, at(1)).await);
    assert_eq!((crowd.admitted_now, crowd.inside, crowd.admitted), (1, 4, 4));

    let places = ask(room, &everybody, 2).await;
    assert_eq!(ahead(&places)[4..], [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)]);
    assert_eq!(places[0], Place::Inside { until: at(120).now });
    assert_eq!(places[3], Place::Inside { until: at(121).now });
    assert_eq!(admit(room, 100, 3).await, Crowd { waiting: 0, inside: 10, admitted: 10, admitted_now: 6 });
}

/// Promise 4.
pub async fn a_turn_ends_and_its_place_is_given_to_the_next(bench: &Bench) {
    let room = bench.room.as_ref();
    ask(room, &[comes(1), comes(2)], 0).await;
    assert_eq!(admit(room, 1, 0).await.admitted_now, 1);
    ask(room, &[comes(2)], 59).await;
    assert_eq!(admit(room, 1, 119).await, Crowd { waiting: 1, inside: 1, admitted: 1, admitted_now: 0 });
    assert_eq!(admit(room, 1, 119).await.admitted_now, 0);
    let places = ask(room, &[comes(1), comes(2)], 120).await;
    assert_eq!(ahead(&places), [Some(1), Some(0)], "the first comes back, behind the second");
    let crowd = admit(room, 1, 120).await;
    assert_eq!(crowd, Crowd { waiting: 1, inside: 1, admitted: 2, admitted_now: 1 });
    assert_eq!(ask(room, &[comes(2)], 121).await, [Place::Inside { until: at(240).now }]);
}

/// Promise 5.
pub async fn who_left_is_not_let_in_and_holds_up_nobody(bench: &Bench) {
    let room = bench.room.as_ref();
    let first = ask(room, &[comes(1), comes(2), comes(3)], 0).await;
    assert_eq!(ask(room, &[comes(2), comes(3)], 60).await[0], first[1]);
    // Who was seen a minute ago is still here; a second later he is gone.
    assert_eq!(admit(room, 0, 60).await.waiting, 3);
    let crowd = admit(room, 1, 61).await;
    assert_eq!(crowd, Crowd { waiting: 1, inside: 1, admitted: 1, admitted_now: 1 });
    let places = ask(room, &[comes(1), comes(2), comes(3)], 62).await;
    assert_eq!(ahead(&places), [Some(1), None, Some(0)]);
}

/// Promise 6.
pub async fn a_room_that_forgot_lets_nobody_in_before_those_who_waited(bench: &Bench) {
    let room = bench.room.as_ref();
    ask(room, &[draws(1, 10), draws(2, 5)], -60).await;
    let places = ask(room, &[comes(1), comes(2), comes(3), comes(4)], 1).await;
    let anew = (bench.forget)();
    let room = anew.as_ref();

    // Somebody new comes first, then they come back, in another order.
    ask(room, &[comes(9)], 2).await;
    ask(room, &[shows(4, rank(&places[3]), 1)], 3).await;
    ask(room, &[shows(1, rank(&places[0]), 1), shows(3, rank(&places[2]), 1)], 5).await;
    assert_eq!(admit(room, 100, 21).await.admitted_now, 0);
    let back =
        ask(room, &[shows(2, rank(&places[1]), 1), comes(1), comes(3), comes(4), comes(9), comes(8)], 21)
            .await;
    assert_eq!(back[0], places[1]);
    assert_eq!(ahead(&back), [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5)]);
    assert_eq!(admit(room, 1, 22).await.admitted_now, 1);
    assert!(matches!(ask(room, &[comes(2)], 22).await[0], Place::Inside { .. }));
}

/// Promise 7.
pub async fn who_leaves_waits_no_more_and_keeps_a_turn_that_was_given(bench: &Bench) {
    let room = bench.room.as_ref();
    let places = ask(room, &[comes(1), comes(2), comes(3)], 0).await;
    admit(room, 1, 0).await;
    // Who was let in has a token for it: leaving makes no room for another, and an old place brings no second turn.
    sound(room.leave(SALE, &user(1)).await);
    assert_eq!(admit(room, 1, 1).await.admitted_now, 0);
    assert_eq!(ask(room, &[shows(1, rank(&places[0]), 0)], 1).await, [Place::Inside { until: at(120).now }]);
    sound(room.leave(SALE, &user(2)).await);
    sound(room.leave(SALE, &user(2)).await);
    sound(room.leave(SALE, &user(77)).await);
    assert_eq!(admit(room, 0, 1).await, Crowd { waiting: 1, inside: 1, admitted: 1, admitted_now: 0 });
    // An old place brings it back, and closes nobody's room: it is younger than the room.
    assert_eq!(ahead(&ask(room, &[shows(2, rank(&places[1]), 0), comes(3)], 2).await), [Some(0), Some(1)]);
    assert_eq!(admit(room, 2, 3).await.admitted_now, 1);
}

/// Promise 8.
pub async fn the_rate_holds_whoever_lets_in(bench: &Bench) {
    let room = bench.room.as_ref();
    let everybody: Vec<Asking> = (0..200).map(comes).collect();
    ask(room, &everybody, 0).await;
    let openings = Openings { per_minute: Some(120), ..openings(1_000) };
    let mut admitted = Vec::new();
    for s in [1, 1, 1, 2, 4, 4, 30] {
        admitted.push(sound(room.admit(SALE, openings, at(s)).await).admitted_now);
    }
    assert_eq!(admitted, [2, 0, 0, 2, 2, 0, 2], "two a second, and no more for having waited");
    let slow = Openings { per_minute: Some(6), ..openings };
    let mut admitted = Vec::new();
    for s in [45, 46, 54, 55] {
        admitted.push(sound(room.admit(SALE, slow, at(s)).await).admitted_now);
    }
    assert_eq!(admitted, [1, 0, 0, 1]);
    let none = Openings { per_minute: Some(0), ..openings };
    assert_eq!(sound(room.admit(SALE, none, at(56)).await).admitted_now, 0);
}

/// Promise 9.
pub async fn rooms_know_nothing_of_each_other(bench: &Bench) {
    let room = bench.room.as_ref();
    ask(room, &[comes(1), comes(2)], 0).await;
    let other = SaleId(8);
    let places = sound(room.ask(other, &[comes(2)], at(1)).await);
    assert_eq!(ahead(&places), [Some(0)]);
    let crowd = sound(room.admit(other, openings(10), at(1)).await);
    assert_eq!(crowd, Crowd { waiting: 0, inside: 1, admitted: 1, admitted_now: 1 });
    assert_eq!(admit(room, 0, 1).await, Crowd { waiting: 2, ..Crowd::default() });
}

/// Promise 10.
pub async fn a_full_room_takes_nobody_more(bench: &Bench) {
    let room = bench.room.as_ref();
    for hundred in 0..20 {
        let everybody: Vec<Asking> = (hundred * 100..hundred * 100 + 100).map(comes).collect();
        ask(room, &everybody, 0).await;
    }
    let places = ask(room, &[comes(5_000), comes(3)], 1).await;
    assert_eq!(places[0], Place::Full);
    assert_eq!(ahead(&places), [None, Some(3)]);
    assert_eq!(admit(room, 1, 2).await.admitted_now, 1);
    assert_eq!(ahead(&ask(room, &[comes(5_000)], 2).await), [Some(1_999)]);
}

/// Promise 11.
pub async fn a_closed_room_is_empty(bench: &Bench) {
    let room = bench.room.as_ref();
    ask(room, &[comes(1), comes(2)], 0).await;
    admit(room, 1, 0).await;
    sound(room.close(SALE).await);
    sound(room.close(SALE).await);
    assert_eq!(admit(room, 5, 1).await, Crowd::default());
    assert_eq!(ahead(&ask(room, &[comes(2), comes(1)], 2).await), [Some(0), Some(1)]);
}

/// The promises, for a macro that makes a test of each.
#[macro_export]
macro_rules! room_promises {
    ($tests:ident) => {
        $tests! {
            who_asks_again_keeps_the_one_place,
            drawn_places_come_first_and_late_ones_by_arrival,
            the_first_are_let_in_as_far_as_there_are_places,
            a_turn_ends_and_its_place_is_given_to_the_next,
            who_left_is_not_let_in_and_holds_up_nobody,
            a_room_that_forgot_lets_nobody_in_before_those_who_waited,
            who_leaves_waits_no_more_and_keeps_a_turn_that_was_given,
            the_rate_holds_whoever_lets_in,
            rooms_know_nothing_of_each_other,
            a_full_room_takes_nobody_more,
            a_closed_room_is_empty,
        }
    };
}
