//! Waiting rooms: how places are kept, and how many are let in.

use std::time::Duration;

use doorbuster_engine::room::RoomRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;
use super::schema::DurationText;

/// Shortest time that a place is kept for somebody who is not seen: a browser in the background looks rarely.
const GRACE_LEAST: Duration = Duration::from_secs(30);
/// Longest time of any kind here.
const TIME_MOST: Duration = Duration::from_secs(24 * 3_600);
/// Most users inside for 100 free units.
const INSIDE_MOST: u32 = 10_000;

/// Waiting rooms.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct WaitingRoom {
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub grace: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub turn: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub refill: Duration,
    pub inside_percent: u32,
    pub waiting_max: u64,
}

impl Config {
    /// How waiting rooms are kept.
    pub fn room_rules(&self) -> RoomRules {
        let WaitingRoom { grace, turn, refill, waiting_max, .. } = self.gate.waiting_room;
        RoomRules { grace, turn, refill, waiting_max }
    }

    /// What is wrong with the waiting rooms.
    pub(super) fn impossible_rooms(&self) -> Vec<String> {
        let it = &self.gate.waiting_room;
        let mut wrong = Vec::new();
        if it.grace < GRACE_LEAST {
            wrong.push(
                "`gate.waiting_room.grace` must be at least 30s: a browser in the background looks rarely"
                    .to_owned(),
            );
        }
        if it.turn < it.grace {
            wrong.push(
                "`gate.waiting_room.turn` must not be shorter than `gate.waiting_room.grace`: whoever was let in could take his \
                 old place again"
                    .to_owned(),
            );
        }
        for (key, time) in [("grace", it.grace), ("turn", it.turn), ("refill", it.refill)] {
            if time > TIME_MOST {
                wrong.push(format!("`gate.waiting_room.{key}` must be at most 24h"));
            }
        }
        if !(100..=INSIDE_MOST).contains(&it.inside_percent) {
            wrong.push(format!(
                "`gate.waiting_room.inside_percent` must be from 100 to {INSIDE_MOST}: with fewer users inside than units, some are \
                 never sold"
            ));
        }
        if it.waiting_max == 0 {
            wrong.push("`gate.waiting_room.waiting_max` must be at least 1".to_owned());
        }
        wrong
    }
}
