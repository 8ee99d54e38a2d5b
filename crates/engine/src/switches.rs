//! What the staff can turn while sales run. What was turned stands over the configuration, on every gateway,
//! within a second.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::member::{EarlyAccess, Regions};
use crate::order::{InvalidValue, SaleId};

/// Shortest time that a switch can be set to: below, everybody would hear BUSY all the time.
const TIME_MIN: Duration = Duration::from_secs(1);
/// Longest.
const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Names a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "SwitchName::meaning says what each does")]
pub enum SwitchName {
    TokenRequired,
    CaptchaRequired,
    Room,
    RoomRate,
    Regions,
    EarlyAccess,
    PublishPause,
    StrikesMax,
    QueueLagMax,
    OutboxAgeMax,
    LedgerSilenceMax,
    AddressRate,
    AddressBurst,
    UserRate,
    UserBurst,
    OtherRate,
    OtherBurst,
    BadTokenRate,
    BadTokenBurst,
}

/// What a switch can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// `on` or `off`.
    OnOff,
    /// A whole number.
    Number,
    /// A time with its unit, such as `30s`.
    Time,
    /// `off`, `on` or `auto`.
    Room,
    /// Regions with commas between, such as `DE,FR,AT`.
    Regions,
    /// Waits of levels and of everybody else, such as `gold=0s,silver=10m,*=30m`.
    Waits,
}

impl SwitchKind {
    /// What a switch of this kind takes, in words.
    pub const fn takes(self) -> &'static str {
        match self {
            Self::OnOff => "on or off",
            Self::Number => "a whole number",
            Self::Time => "a time such as 30s",
            Self::Room => "off, on or auto",
            Self::Regions => "regions such as DE,FR,AT",
            Self::Waits => "waits such as gold=0s,silver=10m,*=30m",
        }
    }
}

/// What a switch is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchValue {
    /// On, or off.
    OnOff(bool),
    /// A number.
    Number(u32),
    /// A time.
    Time(Duration),
    /// A waiting room.
    Room(RoomMode),
    /// Regions.
    Regions(Regions),
    /// How long behind the opening each level may buy.
    Waits(EarlyAccess),
}

impl SwitchName {
    /// Every switch.
    pub const ALL: [Self; 19] = [
        Self::TokenRequired,
        Self::CaptchaRequired,
        Self::Room,
        Self::RoomRate,
        Self::Regions,
        Self::EarlyAccess,
        Self::PublishPause,
        Self::StrikesMax,
        Self::QueueLagMax,
        Self::OutboxAgeMax,
        Self::LedgerSilenceMax,
        Self::AddressRate,
        Self::AddressBurst,
        Self::UserRate,
        Self::UserBurst,
        Self::OtherRate,
        Self::OtherBurst,
        Self::BadTokenRate,
        Self::BadTokenBurst,
    ];

    /// The word for it, which is that of the configuration's key where there is one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenRequired => "token_required",
            Self::CaptchaRequired => "captcha_required",
            Self::Room => "room",
            Self::RoomRate => "room_rate",
            Self::Regions => "regions",
            Self::EarlyAccess => "early_access",
            Self::PublishPause => "publish_pause",
            Self::StrikesMax => "strikes_max",
            Self::QueueLagMax => "queue_lag_max",
            Self::OutboxAgeMax => "outbox_age_max",
            Self::LedgerSilenceMax => "ledger_silence_max",
            Self::AddressRate => "address_rate",
            Self::AddressBurst => "address_burst",
            Self::UserRate => "user_rate",
            Self::UserBurst => "user_burst",
            Self::OtherRate => "other_rate",
            Self::OtherBurst => "other_burst",
            Self::BadTokenRate => "bad_token_rate",
            Self::BadTokenBurst => "bad_token_burst",
        }
    }

    /// What it does.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::TokenRequired => {
                "buyers of this sale need a sale token beside or instead of an access token"
            }
            Self::CaptchaRequired => "buyers of this sale need a sale token, and a captcha to get one",
            Self::Room => {
                "buyers of this sale wait until they are let in: always (on), or when more come than it can serve (auto)"
            }
            Self::RoomRate => "users a minute that are let in from this sale's waiting room; 0 is no limit",
            Self::Regions => "only who is known to be in one of these regions buys in this sale",
            Self::EarlyAccess => {
                "how long behind this sale's opening each level of gate.levels may buy; * is everybody else"
            }
            Self::PublishPause => "no new orders are taken in any sale; buyers hear BUSY",
            Self::StrikesMax => "who has so many unpaid orders in a sale buys no more in it; 0 bars nobody",
            Self::QueueLagMax => "BUSY while more orders than this wait to be recorded",
            Self::OutboxAgeMax => "BUSY while the oldest unrecorded hold is older than this",
            Self::LedgerSilenceMax => "BUSY when the ledger has answered nothing for longer than this",
            Self::AddressRate => "clicks a second of one address at each gateway; 0 is no limit",
            Self::AddressBurst => "the same at once",
            Self::UserRate => "clicks a second of one user at each gateway; 0 is no limit",
            Self::UserBurst => "the same at once",
            Self::OtherRate => "other requests a second of one user at each gateway; 0 is no limit",
            Self::OtherBurst => "the same at once",
            Self::BadTokenRate => {
                "bad tokens a second of one address that are checked by a public key; 0 is no limit"
            }
            Self::BadTokenBurst => "the same at once",
        }
    }

    /// Whether it is turned for one sale at a time.
    pub const fn is_per_sale(self) -> bool {
        matches!(
            self,
            Self::TokenRequired
                | Self::CaptchaRequired
                | Self::Room
                | Self::RoomRate
                | Self::Regions
                | Self::EarlyAccess
        )
    }

    /// What it can be set to.
    pub const fn kind(self) -> SwitchKind {
        match self {
            Self::TokenRequired | Self::CaptchaRequired | Self::PublishPause => SwitchKind::OnOff,
            Self::OutboxAgeMax | Self::LedgerSilenceMax => SwitchKind::Time,
            Self::Room => SwitchKind::Room,
            Self::Regions => SwitchKind::Regions,
            Self::EarlyAccess => SwitchKind::Waits,
            Self::StrikesMax
            | Self::RoomRate
            | Self::QueueLagMax
            | Self::AddressRate
            | Self::AddressBurst
            | Self::UserRate
            | Self::UserBurst
            | Self::OtherRate
            | Self::OtherBurst
            | Self::BadTokenRate
            | Self::BadTokenBurst => SwitchKind::Number,
        }
    }

    /// What a text sets it to.
    ///
    /// # Errors
    /// [`InvalidValue`] when it cannot be set to that.
    pub fn value(self, text: &str) -> Result<SwitchValue, InvalidValue> {
        match self.kind() {
            SwitchKind::OnOff => match text {
                "on" => Ok(SwitchValue::OnOff(true)),
                "off" => Ok(SwitchValue::OnOff(false)),
                _ => Err(InvalidValue("it is set to on or off")),
            },
            SwitchKind::Number => {
                let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok());
                number
                    .flatten()
                    .filter(|&number| number > 0 || !self.is_a_burst())
                    .map(SwitchValue::Number)
                    .ok_or(InvalidValue(
                        "it is set to a whole number below 4294967296; a burst to at least 1",
                    ))
            }
            SwitchKind::Time => humantime::parse_duration(text)
                .ok()
                .filter(|time| (TIME_MIN..=TIME_MAX).contains(time))
                .map(SwitchValue::Time)
                .ok_or(InvalidValue("it is set to a time with its unit, such as 30s, from 1s to 24h")),
            SwitchKind::Room => match text {
                "off" => Ok(SwitchValue::Room(RoomMode::Off)),
                "on" => Ok(SwitchValue::Room(RoomMode::On)),
                "auto" => Ok(SwitchValue::Room(RoomMode::Automatic)),
                _ => Err(InvalidValue("it is set to off, on or auto")),
            },
            SwitchKind::Regions => text.parse().map(SwitchValue::Regions),
            SwitchKind::Waits => text.parse().map(SwitchValue::Waits),
        }
    }

    const fn is_a_burst(self) -> bool {
        matches!(self, Self::AddressBurst | Self::UserBurst | Self::OtherBurst | Self::BadTokenBurst)
    }
}

impl fmt::Display for SwitchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SwitchName {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or(InvalidValue("there is no such switch"))
    }
}

/// A switch that is to be turned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchChange {
    /// Which; names that this version does not know are kept all the same.
    pub name: String,
    /// For one sale, or for all.
    pub sale: Option<SaleId>,
    /// To what; `None` lets the configuration stand again.
    pub value: Option<String>,
    /// Why, in the words of who does it.
    pub reason: String,
    /// Who does it.
    pub by: String,
}

/// A switch as it was turned once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedSwitch {
    /// Grows with each turn.
    pub id: i64,
    /// What was turned, by whom and why.
    pub change: SwitchChange,
    /// When.
    pub at: Timestamp,
}

/// Whether buyers wait for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoomMode {
    /// They do not.
    #[default]
    Off,
    /// They do.
    On,
    /// They do when more come than the sale can serve.
    Automatic,
}

/// A sale's waiting room, as the staff wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomSwitch {
    /// Whether there is one.
    pub mode: RoomMode,
    /// Most users to let in per minute; nothing is no limit.
    pub per_minute: Option<u32>,
}

/// What buyers of a sale need beside an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A sale token.
    pub token: bool,
    /// One that was given out for a captcha.
    pub captcha: bool,
    /// One that was given to whoever was let in from the waiting room.
    pub room: RoomMode,
}

/// The switches that stand.
#[derive(Debug, Default)]
pub struct Switches {
    /// Sale 0 is all sales.
    turned: BTreeMap<(SwitchName, SaleId), SwitchValue>,
}

impl Switches {
    /// The switches as the ledger has them. One that this version does not know, or does not understand, was
    /// turned by a newer one and is left to it.
    pub fn new(turned: &[TurnedSwitch]) -> Self {
        let mut switches = Self::default();
        for TurnedSwitch { change, .. } in turned {
            let Some(text) = &change.value else { continue };
            let known = change.name.parse::<SwitchName>().and_then(|name| Ok((name, name.value(text)?)));
            let Ok((name, value)) = known else { continue };
            switches.turned.insert((name, change.sale.unwrap_or(SaleId(0))), value);
        }
        switches
    }

    /// What buyers of this sale need.
    pub fn entry(&self, sale: SaleId) -> Entry {
        let is_on = |name| self.turned.get(&(name, sale)) == Some(&SwitchValue::OnOff(true));
        let captcha = is_on(SwitchName::CaptchaRequired);
        let room = self.room(sale).mode;
        let token = captcha || room == RoomMode::On || is_on(SwitchName::TokenRequired);
        Entry { token, captcha, room }
    }

    /// How buyers of this sale wait.
    pub fn room(&self, sale: SaleId) -> RoomSwitch {
        let mode = match self.turned.get(&(SwitchName::Room, sale)) {
            Some(SwitchValue::Room(mode)) => *mode,
            _ => RoomMode::Off,
        };
        let per_minute = match self.turned.get(&(SwitchName::RoomRate, sale)) {
            Some(SwitchValue::Number(number)) => Some(*number).filter(|number| *number > 0),
            _ => None,
        };
        RoomSwitch { mode, per_minute }
    }

    /// The regions that this sale is for, where it is not for all.
    pub fn regions(&self, sale: SaleId) -> Option<&Regions> {
        match self.turned.get(&(SwitchName::Regions, sale)) {
            Some(SwitchValue::Regions(regions)) => Some(regions),
            _ => None,
        }
    }

    /// How long behind this sale's opening each level may buy, where that differs.
    pub fn early_access(&self, sale: SaleId) -> Option<&EarlyAccess> {
        match self.turned.get(&(SwitchName::EarlyAccess, sale)) {
            Some(SwitchValue::Waits(waits)) => Some(waits),
            _ => None,
        }
    }

    /// Whether no new orders are taken, in any sale.
    pub fn is_paused(&self) -> bool {
        self.turned.get(&(SwitchName::PublishPause, SaleId(0))) == Some(&SwitchValue::OnOff(true))
    }

    /// The number that a switch over all sales is set to; nothing while the configuration stands.
    pub(crate) fn number(&self, name: SwitchName) -> Option<u32> {
        match self.turned.get(&(name, SaleId(0))) {
            Some(SwitchValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The same of a time.
    pub(crate) fn time(&self, name: SwitchName) -> Option<Duration> {
        match self.turned.get(&(name, SaleId(0))) {
            Some(SwitchValue::Time(time)) => Some(*time),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(name: &str, sale: Option<i64>, value: &str) -> TurnedSwitch {
        let (name, value) = (name.to_owned(), Some(value.to_owned()));
        let (reason, by) = ("a test".to_owned(), "ada".to_owned());
        let change = SwitchChange { name, sale: sale.map(SaleId), value, reason, by };
        TurnedSwitch { id: 1, change, at: Timestamp::from_ms(0) }
    }

    #[test]
    fn every_switch_takes_its_kind_of_value_and_no_other() {
        for name in SwitchName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
            let (good, bad): (&[&str], &[&str]) = match name.kind() {
                SwitchKind::OnOff => (&["on", "off"], &["", "ON", "true", "1"]),
                SwitchKind::Number => {
                    (&["1", "4294967295"], &["", "-1", "+1", "1.0", "4294967296", "0x1", " 1", "on"])
                }
                SwitchKind::Room => (&["off", "on", "auto"], &["", "ON", "automatic", "1"]),
                SwitchKind::Time => (&["30s", "24h"], &["", "30", "0s", "999ms", "25h", "-1s", "on"]),
                SwitchKind::Regions => (&["DE", "DE,FR,AT"], &["", "de", "DE,", "DE, FR", "on", "*"]),
                SwitchKind::Waits => {
                    (&["*=0s", "gold=0s,*=30m"], &["", "30m", "gold=0s", "*=8days", "*=30", "*=1s,*=1s"])
                }
            };
            for text in good {
                assert!(name.value(text).is_ok(), "{name} {text}");
            }
            for text in bad {
                assert!(name.value(text).is_err(), "{name} {text}");
            }
        }
        assert_eq!(SwitchName::UserRate.value("0"), Ok(SwitchValue::Number(0)));
        assert!(SwitchName::UserBurst.value("0").is_err());
    }

    #[test]
    fn what_is_turned_stands_over_what_is_configured() {
        let switches = Switches::new(&[
            turned("token_required", Some(7), "on"),
            turned("token_required", Some(8), "off"),
            turned("captcha_required", Some(10), "on"),
            turned("user_rate", None, "0"),
            turned("outbox_age_max", None, "5s"),
            turned("publish_pause", None, "on"),
            turned("regions", Some(7), "DE,FR"),
            turned("early_access", Some(7), "*=30m"),
            turned("of_a_newer_version", None, "on"),
            turned("address_rate", None, "of a newer version"),
        ]);
        let entries = [7, 8, 9, 10].map(|sale| switches.entry(SaleId(sale)));
        let entry = |token, captcha| Entry { token, captcha, room: RoomMode::Off };
        let none = entry(false, false);
        assert_eq!(entries, [entry(true, false), none, none, entry(true, true)]);
        assert_eq!(
            [SwitchName::UserRate, SwitchName::AddressRate].map(|it| switches.number(it)),
            [Some(0), None]
        );
        let times = [SwitchName::OutboxAgeMax, SwitchName::LedgerSilenceMax].map(|it| switches.time(it));
        assert_eq!(times, [Some(Duration::from_secs(5)), None]);
        let rooms = Switches::new(&[
            turned("room", Some(7), "on"),
            turned("room", Some(8), "auto"),
            turned("room_rate", Some(8), "600"),
            turned("room_rate", Some(9), "0"),
        ]);
        assert_eq!(rooms.entry(SaleId(7)), Entry { token: true, captcha: false, room: RoomMode::On });
        assert_eq!(rooms.entry(SaleId(8)), Entry { token: false, captcha: false, room: RoomMode::Automatic });
        assert_eq!(rooms.room(SaleId(8)).per_minute, Some(600));
        assert_eq!(rooms.room(SaleId(9)), RoomSwitch::default());
        assert_eq!(switches.regions(SaleId(7)), "DE,FR".parse().ok().as_ref());
        assert_eq!(switches.early_access(SaleId(7)), "*=30m".parse().ok().as_ref());
        assert!(switches.regions(SaleId(8)).is_none() && switches.early_access(SaleId(8)).is_none());
        assert!(switches.is_paused() && !Switches::default().is_paused());
    }
}
