//! What is said of a user beside who it is: how near to the shop, and where; and the rules of a sale about that.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::order::{InvalidValue, UserId};

/// Most levels that a shop has.
pub const LEVELS_MAX: usize = 7;
/// Most regions that a sale is for.
const REGIONS_MAX: usize = 64;
/// Longest name of a level, in bytes.
const NAME_MAX: usize = 32;
/// Longest wait behind a sale's opening.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Longest text of all waits, in bytes: a time can be written at any length.
const WAITS_TEXT_MAX: usize = 512;

/// A country or territory, by the two capital letters of ISO 3166-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region([u8; 2]);

impl Region {
    /// The region that these bytes name, if they have the form of one. Whether there is such a country is not asked.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let letters = <[u8; 2]>::try_from(bytes).ok()?;
        letters.iter().all(u8::is_ascii_uppercase).then_some(Self(letters))
    }

    /// Its letters; two zeros where it is not known.
    pub(crate) fn letters(region: Option<Self>) -> [u8; 2] {
        region.map_or([0; 2], |it| it.0)
    }
}

impl FromStr for Region {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::of(text.as_bytes())
            .ok_or(InvalidValue("a region is two capital letters of ISO 3166-1, such as DE"))
    }
}

/// How near to the shop a user is: 0 is no member, and a higher level is nearer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u8);

/// What a shop calls a level: 1 to 32 of `a` to `z`, `A` to `Z`, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelName(String);

impl LevelName {
    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LevelName {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidValue("a level's name needs 1 to 32 of a-z, A-Z, 0-9, . _ and -"))
    }
}

/// A shop's levels, in rising order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels(Vec<LevelName>);

impl Levels {
    /// Levels with these names, the lowest first.
    ///
    /// # Errors
    /// [`InvalidValue`] when there are too many, one has no good name, or two have the same.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidValue> {
        let names = names.into_iter().map(str::parse).collect::<Result<Vec<LevelName>, _>>()?;
        if names.len() > LEVELS_MAX {
            return Err(InvalidValue("there are at most 7 levels"));
        }
        if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
            return Err(InvalidValue("two levels have the same name"));
        }
        Ok(Self(names))
    }

    /// The level of this name; a name that is not known makes nobody a member.
    pub fn level(&self, name: &str) -> Level {
        let place = self.0.iter().position(|it| it.as_str() == name);
        place.map_or(Level(0), |place| rank(place + 1))
    }

    /// The highest there is; 0 without levels.
    pub fn highest(&self) -> Level {
        rank(self.0.len())
    }

    /// Their names, the lowest first.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.iter().map(LevelName::as_str)
    }
}

fn rank(place: usize) -> Level {
    Level(u8::try_from(place).unwrap_or(u8::MAX))
}

/// What is said of a user beside who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// How near to the shop.
    pub level: Level,
    /// Where, if that is known.
    pub region: Option<Region>,
}

/// A user as a good token tells of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Who it is.
    pub user: UserId,
    /// What is said beside.
    pub profile: Profile,
}

/// The regions that a sale is for, as in `DE,FR,AT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// Whether the sale is for somebody who is there; who is nowhere known is not.
    pub fn include(&self, region: Option<Region>) -> bool {
        region.is_some_and(|region| self.0.contains(&region))
    }
}

impl FromStr for Regions {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let regions: Vec<Region> = text
            .split(',')
            .take(REGIONS_MAX + 1)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| InvalidValue("it is set to regions with commas between, such as DE,FR,AT"))?;
        if regions.len() > REGIONS_MAX {
            return Err(InvalidValue("it is set to at most 64 regions"));
        }
        Ok(Self(regions))
    }
}

/// How long behind a sale's opening each level may buy, as in `gold=0s,silver=10m,*=30m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyAccess {
    named: Vec<(LevelName, Duration)>,
    others: Duration,
}

impl EarlyAccess {
    /// How long somebody of this level waits: as long as the nearest level that they have reached and that is named,
    /// so that who is nearer never waits for being left out.
    pub fn wait(&self, level: Level, levels: &Levels) -> Duration {
        let reached = levels.0.iter().take(usize::from(level.0)).rev();
        let mut waits =
            reached.filter_map(|name| self.named.iter().find(|(it, _)| it == name).map(|(_, wait)| *wait));
        waits.next().unwrap_or(self.others)
    }

    /// A level that it names and that is none of these.
    pub fn unknown_in(&self, levels: &Levels) -> Option<&LevelName> {
        self.named.iter().map(|(name, _)| name).find(|name| !levels.0.contains(name))
    }
}

impl FromStr for EarlyAccess {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const FORM: InvalidValue = InvalidValue(
            "it is set to waits of levels and of everybody else, each at most 7days, such as gold=0s,silver=10m,*=30m",
        );
        if text.len() > WAITS_TEXT_MAX {
            return Err(FORM);
        }
        let (mut named, mut others) = (Vec::<(LevelName, Duration)>::new(), None);
        for part in text.split(',') {
            let (name, wait) = part.split_once('=').ok_or(FORM)?;
            let wait = humantime::parse_duration(wait).ok().filter(|wait| *wait <= WAIT_MAX).ok_or(FORM)?;
            if name == "*" {
                if others.replace(wait).is_some() {
                    return Err(FORM);
                }
                continue;
            }
            let name: LevelName = name.parse().map_err(|_| FORM)?;
            if named.len() == LEVELS_MAX || named.iter().any(|(other, _)| *other == name) {
                return Err(FORM);
            }
            named.push((name, wait));
        }
        let others = others.ok_or(InvalidValue("it needs a wait for everybody else, such as *=30m"))?;
        Ok(Self { named, others })
    }
}

impl fmt::Display for LevelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(names: &[&str]) -> Levels {
        Levels::new(names.iter().copied()).unwrap()
    }

    #[test]
    fn a_region_is_two_capital_letters() {
        for good in ["DE", "XX", "AA"] {
            assert_eq!(Region::letters(Region::of(good.as_bytes())), good.as_bytes());
        }
        for bad in ["", "D", "DEU", "de", "De", "T1", "D ", "ÄÖ", "\0\0", "**"] {
            assert_eq!(Region::of(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn levels_rise_in_their_order_and_an_unknown_name_is_no_member() {
        let levels = levels(&["silver", "gold"]);
        for (name, level) in [("silver", 1), ("gold", 2), ("platin", 0), ("Gold", 0), ("", 0), ("gold ", 0)] {
            assert_eq!(levels.level(name), Level(level), "{name}");
        }
        assert_eq!((levels.highest(), Levels::default().highest()), (Level(2), Level(0)));
        let eight = ["a", "b", "c", "d", "e", "f", "g", "h"];
        assert!(Levels::new(eight[..7].iter().copied()).is_ok());
        let long = "x".repeat(33);
        for bad in [&eight[..], &["a", "a"], &[""], &["a b"], &["*"], &["a=b"], &["gött"], &[long.as_str()]]
        {
            assert!(Levels::new(bad.iter().copied()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_sale_for_regions_is_for_nobody_whose_region_is_unknown() {
        let regions: Regions = "DE,FR,AT".parse().unwrap();
        for (region, included) in [("DE", true), ("AT", true), ("CH", false), ("", false)] {
            assert_eq!(regions.include(Region::of(region.as_bytes())), included, "{region}");
        }
        let all: Vec<String> = (b'A'..=b'C')
            .flat_map(|a| (b'A'..=b'Z').map(move |b| (a, b)))
            .map(|(a, b)| format!("{}{}", char::from(a), char::from(b)))
            .collect();
        assert!(all[..64].join(",").parse::<Regions>().is_ok());
        assert!(all[..65].join(",").parse::<Regions>().is_err());
        for bad in ["", "de", "DE,", ",DE", "DE FR", "DE, FR", "DE;FR", "on", "*"] {
            assert!(bad.parse::<Regions>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn each_level_waits_as_long_as_the_nearest_one_that_is_named() {
        let levels = levels(&["bronze", "silver", "gold"]);
        let (s, m) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
        for (text, waits) in [
            ("gold=0s,silver=10m,*=30m", [m(30), m(30), m(10), s(0)]),
            ("*=30m,silver=10m,gold=0s", [m(30), m(30), m(10), s(0)]),
            ("bronze=1m,*=30m", [m(30), m(1), m(1), m(1)]),
            ("gold=1h 30m,*=0s", [s(0), s(0), s(0), m(90)]),
            ("platin=1m,*=2m", [m(2); 4]),
            ("*=7days", [m(7 * 24 * 60); 4]),
        ] {
            let early: EarlyAccess = text.parse().unwrap();
            assert_eq!([0, 1, 2, 3].map(|level| early.wait(Level(level), &levels)), waits, "{text}");
            assert_eq!(early.wait(Level(200), &levels), waits[3], "{text}: a level of other levels");
        }
        let early: EarlyAccess = "gold=0s,platin=1m,*=2m".parse().unwrap();
        assert_eq!(early.unknown_in(&levels).map(LevelName::as_str), Some("platin"));
        let long = format!("*=1s{}", " 1s".repeat(200));
        for bad in [
            "",
            "*",
            "*=",
            "*=30",
            "*=8days",
            "gold=0s",
            "gold=0s,",
            "*=1m,*=2m",
            "gold=1m,gold=2m,*=3m",
            "*=-1s",
            "g d=1m,*=2m",
            "*=1m;gold=0s",
            "=1m,*=2m",
            "a=0s,b=0s,c=0s,d=0s,e=0s,f=0s,g=0s,h=0s,*=1s",
            &long,
        ] {
            assert!(bad.parse::<EarlyAccess>().is_err(), "{bad:?}");
        }
    }
}
