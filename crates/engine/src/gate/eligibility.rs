//! Who may buy in a sale, and from when on: by blocks, strikes, region and level.

use std::net::IpAddr;

use super::{Caller, Gate, Refusal, ms_between};
use crate::clock::Timestamp;
use crate::member::{Known, Level, Region};
use crate::order::SaleId;
use crate::sale::Sale;
use crate::switches::Switches;

/// Why a user may not buy in a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// The staff has blocked them, or the network that they come from.
    Blocked,
    /// Too many of their orders in it were not paid.
    Strikes,
    /// It is for certain regions, and theirs is none of them or is not known.
    Region,
}

/// Somebody who asks for something: who it is, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Who, and what is said of them.
    pub known: Known,
    /// The client's address, which limits go by, too.
    pub address: IpAddr,
}

impl Gate {
    /// Whether somebody may buy in a sale: whoever may not needs no captcha for it either.
    ///
    /// # Errors
    /// [`Ineligible`], with the reason.
    pub fn may_buy(&self, sale: SaleId, visitor: &Visitor) -> Result<(), Ineligible> {
        self.eligible(self.catalog.load().switches(), sale, &visitor.known, visitor.address)
    }

    /// Whether somebody may buy in a sale at all.
    pub(super) fn eligible(
        &self,
        switches: &Switches,
        sale: SaleId,
        known: &Known,
        address: IpAddr,
    ) -> Result<(), Ineligible> {
        if self.barred.blocks(sale, &known.user, address) {
            return Err(Ineligible::Blocked);
        }
        if self.barred.has(sale, &known.user) {
            return Err(Ineligible::Strikes);
        }
        match switches.regions(sale) {
            Some(regions) if !regions.include(known.profile.region) => Err(Ineligible::Region),
            Some(_) | None => Ok(()),
        }
    }

    /// The same with the region that a proxy of ours says, where the token says none. The token goes first, since
    /// the shop has signed it: a journey makes nobody a stranger.
    pub(super) fn placed(&self, mut known: Known, caller: Caller<'_>) -> Known {
        let said = || caller.region.filter(|_| self.limits.trusts(caller.peer)).and_then(Region::of);
        known.profile.region = known.profile.region.or_else(said);
        known
    }

    /// Whether the time of somebody's level has come in a sale that has begun.
    pub(super) fn in_turn(
        &self,
        switches: &Switches,
        sale: &Sale,
        level: Level,
        stock_now: Timestamp,
    ) -> Result<(), Refusal> {
        let opens_at = self.opens_for(switches, sale, level);
        if stock_now >= opens_at {
            return Ok(());
        }
        Err(Refusal::NotYet { opens_at, starts_in_ms: ms_between(stock_now, opens_at) })
    }

    /// When a sale opens for users of this level.
    pub(super) fn opens_for(&self, switches: &Switches, sale: &Sale, level: Level) -> Timestamp {
        let wait = switches.early_access(sale.id).map(|early| early.wait(level, self.tokens.levels()));
        sale.terms.opens_at.plus(wait.unwrap_or_default())
    }
}
