//! The blocks that stand, so arranged that looking somebody up costs a few hashes, however many there are.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::block::Blocked;
use crate::order::{SaleId, UserId};

/// Everybody who is kept out, by sale; sale 0 is all sales. Never changed once it is made.
#[derive(Debug, Default)]
pub struct BlockList {
    sales: HashMap<SaleId, OfSale>,
    /// How many there are of each kind, in the order of [`Blocked::KINDS`].
    counts: [u64; 2],
}

#[derive(Debug, Default)]
struct OfSale {
    users: HashSet<UserId>,
    networks: Networks,
}

/// Networks by the length of their prefix: an address is in one of them if what is left of it at one of these lengths
/// is there. A list of datacentres has some twenty lengths, and ten thousand networks.
#[derive(Debug, Default)]
struct Networks(Vec<(u8, HashSet<IpAddr>)>);

impl Networks {
    fn add(&mut self, network: IpNet) {
        let length = network.prefix_len();
        // The two kinds of addresses share a table: none is equal to one of the other.
        let at = self.0.iter().position(|(it, _)| *it == length).unwrap_or_else(|| {
            self.0.push((length, HashSet::new()));
            self.0.len() - 1
        });
        self.0[at].1.insert(network.network());
    }

    fn include(&self, address: IpAddr) -> bool {
        self.0.iter().any(|(length, networks)| {
            // Lengths of the other kind's are longer than this address.
            IpNet::new(address, *length).is_ok_and(|it| networks.contains(&it.network()))
        })
    }
}

impl BlockList {
    /// The list of these blocks.
    pub fn new<'a>(blocks: impl IntoIterator<Item = (Option<SaleId>, &'a Blocked)>) -> Self {
        let mut list = Self::default();
        for (sale, blocked) in blocks {
            for (kind, count) in Blocked::KINDS.iter().zip(&mut list.counts) {
                *count += u64::from(*kind == blocked.kind());
            }
            let of_sale = list.sales.entry(sale.unwrap_or(SaleId(0))).or_default();
            match blocked {
                Blocked::User(user) => {
                    of_sale.users.insert(user.clone());
                }
                Blocked::Network(network) => of_sale.networks.add(*network),
            }
        }
        list
    }

    /// How many there are of a kind.
    pub(super) fn count(&self, kind: &str) -> u64 {
        Blocked::KINDS.iter().zip(self.counts).find(|(it, _)| **it == kind).map_or(0, |(_, count)| count)
    }

    /// Whether this user, or everybody at this address, is kept out of a sale.
    pub(super) fn includes(&self, sale: SaleId, user: &UserId, address: IpAddr) -> bool {
        let address = address.to_canonical();
        [SaleId(0), sale]
            .iter()
            .filter_map(|sale| self.sales.get(sale))
            .any(|it| it.users.contains(user) || it.networks.include(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    fn blocked(kind: &str, value: &str) -> Blocked {
        Blocked::of(kind, value).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_looked_up_in_all_its_forms() {
        let networks = ["192.0.2.0/24", "198.51.100.7", "10.0.0.0/8", "2001:db8::/32", "2001:db9::1/128"];
        let networks = networks.map(|it| blocked("network", it));
        let list = BlockList::new(networks.iter().map(|it| (None, it)));
        for (text, included) in [
            ("192.0.2.0", true),
            ("192.0.2.255", true),
            ("::ffff:192.0.2.9", true),
            ("192.0.3.0", false),
            ("198.51.100.7", true),
            ("198.51.100.6", false),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", true),
            ("2001:db9::2", false),
            ("::", false),
            ("0.0.0.0", false),
            // Its bits begin as those of 10.0.0.0/8 do.
            ("0a00::1", false),
        ] {
            assert_eq!(list.includes(SaleId(1), &sample::user(1), address(text)), included, "{text}");
        }
    }

    #[test]
    fn a_block_of_one_sale_is_none_of_another() {
        let (user, network) = (Blocked::User(sample::user(1)), blocked("network", "192.0.2.0/24"));
        let everywhere = Blocked::User(sample::user(2));
        let list =
            BlockList::new([(Some(SaleId(7)), &user), (Some(SaleId(7)), &network), (None, &everywhere)]);
        let elsewhere = address("203.0.113.1");
        for (sale, user, from, included) in [
            (7, 1, elsewhere, true),
            (8, 1, elsewhere, false),
            (7, 3, address("192.0.2.1"), true),
            (8, 3, address("192.0.2.1"), false),
            (7, 2, elsewhere, true),
            (8, 2, elsewhere, true),
            (7, 3, elsewhere, false),
        ] {
            let found = list.includes(SaleId(sale), &sample::user(user), from);
            assert_eq!(found, included, "user {user} in sale {sale}");
        }
    }

    #[test]
    fn ten_thousand_networks_are_a_few_tables() {
        let networks: Vec<Blocked> = (0..10_000_u32)
            .map(|n| {
                let start = std::net::Ipv4Addr::from_bits(0x2000_0000 + (n << 12));
                blocked("network", &format!("{start}/{}", 20 + n % 5))
            })
            .collect();
        let list = BlockList::new(networks.iter().map(|it| (None, it)));
        assert_eq!(list.sales[&SaleId(0)].networks.0.len(), 5);
        assert_eq!((list.count("network"), list.count("user")), (10_000, 0));
        let at =
            |n: u32, host: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(0x2000_0000 + (n << 12) + host));
        for n in 0..10_000 {
            assert!(list.includes(SaleId(1), &sample::user(1), at(n, 255)), "{n}");
            // Behind a /24, the next network is far.
            assert_eq!(list.includes(SaleId(1), &sample::user(1), at(n, 256)), n % 5 != 4, "{n}");
        }
    }
}
