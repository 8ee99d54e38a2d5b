//! Levels and regions: what they are called, who says them, and who is refused first when it gets busy.

use doorbuster_engine::gate::ProfileClaims;
use doorbuster_engine::member::Levels;
use doorbuster_engine::workers::{Backpressure, Shedding};
use hyper::header::HeaderName;

use super::Config;

/// From this on there would be no room for steps.
const SHED_FROM_MOST: u32 = 99;

impl Config {
    /// The shop's levels.
    fn levels(&self) -> Result<Levels, String> {
        let levels = Levels::new(self.gate.levels.iter().map(String::as_str));
        levels.map_err(|why| format!("`gate.levels` cannot be used: {why}"))
    }

    /// The claims of access tokens that say a user's level and region.
    pub(crate) fn profile_claims(&self) -> ProfileClaims {
        let jwt = &self.gate.jwt;
        ProfileClaims {
            level: jwt.level_claim.clone(),
            region: jwt.region_claim.clone(),
            levels: self.levels().unwrap_or_default(),
        }
    }

    /// Who is refused first when something falls behind.
    pub(crate) fn backpressure(&self) -> Backpressure {
        let highest = self.levels().unwrap_or_default().highest();
        Backpressure::shedding_by(Shedding::new(self.gate.shed_from_percent, highest))
    }

    /// The header in which proxies say where a client is.
    pub(crate) fn region_header(&self) -> Option<HeaderName> {
        HeaderName::try_from(&self.gate.region_header).ok()
    }

    /// What is wrong with levels and regions.
    pub(super) fn impossible_eligibility(&self) -> Vec<String> {
        let (mut wrong, gate) = (Vec::new(), &self.gate);
        wrong.extend(self.levels().err());
        if !(1..=SHED_FROM_MOST).contains(&gate.shed_from_percent) {
            wrong.push(format!("`gate.shed_from_percent` must be from 1 to {SHED_FROM_MOST}"));
        }
        if !gate.region_header.is_empty() {
            if self.region_header().is_none() {
                wrong.push("`gate.region_header` is no name of a header, such as CF-IPCountry".to_owned());
            }
            if self.server.trusted_proxies.is_empty() {
                wrong.push(
                    "`gate.region_header` is believed of a trusted proxy alone, and `server.trusted_proxies` names none"
                        .to_owned(),
                );
            }
        }
        wrong
    }
}
