//! How often addresses and users may come.

use doorbuster_engine::gate::{LimitOptions, Limits, Rate, Rates};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, Role};

/// Limits of one gateway. A rate is requests a second, for long; a burst is so many at once.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct GateLimits {
    pub address_rate: u32,
    pub address_burst: u32,
    pub user_rate: u32,
    pub user_burst: u32,
    pub other_rate: u32,
    pub other_burst: u32,
    pub bad_token_rate: u32,
    pub bad_token_burst: u32,
    #[serde(with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub exempt: Vec<IpNet>,
}

impl Config {
    /// The limits as they stand here; whoever serves no buyers keeps no tables for them.
    pub(crate) fn limits(&self) -> Limits {
        if !self.server.roles.contains(&Role::Gateway) {
            return Limits::none();
        }
        let limits = &self.gate.limits;
        let rate = |per_second, burst| Rate { per_second, burst };
        let rates = Rates {
            address: rate(limits.address_rate, limits.address_burst),
            user: rate(limits.user_rate, limits.user_burst),
            others: rate(limits.other_rate, limits.other_burst),
            bad_tokens: rate(limits.bad_token_rate, limits.bad_token_burst),
        };
        Limits::new(LimitOptions {
            rates,
            exempt: limits.exempt.clone(),
            trusted_proxies: self.server.trusted_proxies.clone(),
        })
    }

    /// What is wrong with the limits and with who is believed.
    pub(super) fn impossible_limits(&self) -> Vec<String> {
        let limits = &self.gate.limits;
        let mut wrong = Vec::new();
        for (name, rate, burst) in [
            ("address", limits.address_rate, limits.address_burst),
            ("user", limits.user_rate, limits.user_burst),
            ("other", limits.other_rate, limits.other_burst),
            ("bad_token", limits.bad_token_rate, limits.bad_token_burst),
        ] {
            if rate > 0 && burst == 0 {
                wrong.push(format!(
                    "`gate.limits.{name}_burst` must be at least 1; `gate.limits.{name}_rate = 0` is no limit"
                ));
            }
        }
        if let Some(all) = self.server.trusted_proxies.iter().find(|net| net.prefix_len() == 0) {
            wrong.push(format!(
                "`server.trusted_proxies` has {all}: then everybody may say who he is; name the proxies alone"
            ));
        }
        wrong
    }
}

/// Networks (`10.0.0.0/8`), or single addresses.
pub(super) mod networks {
    use doorbuster_engine::block;
    use ipnet::IpNet;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(from)?;
        let network = |text: &String| {
            block::network(text).map_err(|_| {
                let shown = text.escape_default();
                D::Error::custom(format!("`{shown}` is neither a network such as 10.0.0.0/8 nor an address"))
            })
        };
        texts.iter().map(network).collect()
    }

    pub(in crate::config) fn serialize<S: Serializer>(networks: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
        networks.serialize(to)
    }
}
