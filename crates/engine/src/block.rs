//! Whom the staff keeps out: users and networks, of one sale or of all, until that is lifted.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::clock::Timestamp;
use crate::order::{InvalidValue, SaleId, UserId};

/// Shortest prefix of a network of IPv4 that can be blocked: a shorter one is everybody, and a slip.
const V4_PREFIX_MIN: u8 = 8;
/// The same of IPv6, of which providers get blocks of 19 bits and longer.
const V6_PREFIX_MIN: u8 = 16;

/// Somebody who is kept out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// A user.
    User(UserId),
    /// Everybody at the addresses of a network.
    Network(IpNet),
}

impl Blocked {
    /// The kinds, by their words in SQL and JSON.
    pub const KINDS: [&str; 2] = ["user", "network"];

    /// Somebody of a kind by its word.
    ///
    /// # Errors
    /// [`InvalidValue`] when there is no such kind, or the value is none of it.
    pub fn of(kind: &str, value: &str) -> Result<Self, InvalidValue> {
        match kind {
            "user" => UserId::new(value).map(Self::User),
            "network" => {
                let network = network(value)?;
                let least = if network.addr().is_ipv4() { V4_PREFIX_MIN } else { V6_PREFIX_MIN };
                if network.prefix_len() < least {
                    return Err(InvalidValue(
                        "a network that is blocked has a prefix of at least /8, or /16 in IPv6",
                    ));
                }
                Ok(Self::Network(network))
            }
            _ => Err(InvalidValue("what is blocked is a user or a network")),
        }
    }

    /// The word for its kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => Self::KINDS[0],
            Self::Network(_) => Self::KINDS[1],
        }
    }

    /// Its text: the user's id, or the network as in `192.0.2.0/24`.
    pub fn value(&self) -> String {
        match self {
            Self::User(user) => user.as_str().to_owned(),
            Self::Network(network) => network.to_string(),
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.value())
    }
}

/// The network that a text names: with its prefix, or a single address. The bits behind the prefix do not count, and
/// what IPv6 maps of IPv4 is the latter.
///
/// # Errors
/// [`InvalidValue`] when it is neither.
pub fn network(text: &str) -> Result<IpNet, InvalidValue> {
    let address = || text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    let network = text.parse::<IpNet>().ok().map(|network| shortest(network.trunc())).or_else(address);
    network.ok_or(InvalidValue("a network is one such as 10.0.0.0/8, or an address"))
}

/// Addresses are compared in their shorter form.
fn shortest(network: IpNet) -> IpNet {
    let mapped = match network {
        IpNet::V6(it) if it.prefix_len() >= 96 => it.addr().to_ipv4_mapped().zip(Some(it.prefix_len() - 96)),
        IpNet::V4(_) | IpNet::V6(_) => None,
    };
    let shorter = mapped.and_then(|(address, length)| IpNet::new(address.into(), length).ok());
    shorter.unwrap_or(network)
}

/// Blocks to be written down, all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBlocks {
    /// Whom.
    pub blocked: Vec<Blocked>,
    /// In one sale, or in all.
    pub sale: Option<SaleId>,
    /// Why, in the words of who does it.
    pub reason: String,
    /// Who does it.
    pub by: String,
}

/// One block, as it stands or stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Grows with each block.
    pub id: i64,
    /// Whom.
    pub blocked: Blocked,
    /// In one sale, or in all.
    pub sale: Option<SaleId>,
    /// Why.
    pub reason: String,
    /// Who did it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// How it ended; nothing while it stands.
    pub lifted: Option<Lifted>,
}

/// The end of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifted {
    /// Why.
    pub reason: String,
    /// Who did it.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// One thing that happened to the list: a block was added, or lifted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChange {
    /// Its place in the order of all changes.
    pub number: i64,
    /// The block's id.
    pub id: i64,
    /// Whom.
    pub blocked: Blocked,
    /// In one sale, or in all.
    pub sale: Option<SaleId>,
    /// Whether it stands.
    pub stands: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blocked_has_one_form() {
        for (kind, value, form) in [
            ("user", "alice", "alice"),
            ("user", "10.0.0.0/8", "10.0.0.0/8"),
            ("network", "10.1.2.3/8", "10.0.0.0/8"),
            ("network", "192.0.2.1", "192.0.2.1/32"),
            ("network", "2001:DB8::1/32", "2001:db8::/32"),
            ("network", "2001:db8::1", "2001:db8::1/128"),
            ("network", "::ffff:192.0.2.1", "192.0.2.1/32"),
            ("network", "::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ] {
            let blocked = Blocked::of(kind, value).unwrap();
            assert_eq!((blocked.kind(), blocked.value().as_str()), (kind, form));
            assert_eq!(Blocked::of(kind, form), Ok(blocked));
        }
        for (kind, value) in [
            ("user", ""),
            ("user", "a\u{0}b"),
            ("network", ""),
            ("network", "alice"),
            ("network", "10.0.0.0/33"),
            ("network", "0.0.0.0/0"),
            ("network", "10.0.0.0/7"),
            ("network", "::/0"),
            ("network", "2001::/15"),
            ("network", "::ffff:0.0.0.0/96"),
            ("network", "10.0.0.0/8 "),
            ("asn", "64496"),
        ] {
            assert!(Blocked::of(kind, value).is_err(), "{kind} {value:?}");
        }
    }
}
