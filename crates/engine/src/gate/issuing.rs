//! Giving sale tokens out, long before the rush.

use std::time::Duration;

use super::{Challenge, Gate, SaleToken};
use crate::clock::Timestamp;
use crate::order::{SaleId, UserId};
use crate::sale::{Catalog, Sale, SaleState};
use crate::switches::RoomMode;

/// A sale token that was given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token.
    pub token: String,
    /// When it counts no more.
    pub ends: Timestamp,
}

/// Why no sale token is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotIssued {
    /// There is no such sale.
    NoSale,
    /// The user's turn has not come.
    NotYet {
        /// When it comes.
        turn: Timestamp,
        /// How long until then.
        wait: Duration,
    },
    /// The sale is over.
    Ended,
    /// The user may not buy in this sale any more.
    NotEligible,
    /// The sale gives them to those who are let in from its waiting room.
    RoomRequired,
    /// The sale requires a captcha first.
    CaptchaRequired,
    /// The answer to the captcha is wrong, another's, over, or was used before.
    BadCaptcha,
    /// This gateway has no secret to make them with.
    Off,
}

impl Gate {
    /// A sale token for a user who was verified.
    ///
    /// `proof` answers the captcha; it is read only where the sale requires one.
    ///
    /// # Errors
    /// [`NotIssued`], when there is none to be had now.
    pub fn issue_sale_token(
        &self,
        sale: SaleId,
        user: &UserId,
        proof: Option<&[u8]>,
    ) -> Result<IssuedToken, NotIssued> {
        let catalog = self.catalog.load();
        let (sale, now) = self.eligible(&catalog, sale, user)?;
        let rules = self.sale_tokens.rules();
        let turn = sale.terms.opens_at.minus(rules.issue_before).plus(self.sale_tokens.turn(sale.id, user));
        // However the times are set, nobody waits for a token when the sale is open.
        let turn = turn.min(sale.terms.opens_at);
        if now < turn {
            return Err(NotIssued::NotYet { turn, wait: turn.since(now) });
        }
        let entry = catalog.switches().entry(sale.id);
        if entry.room == RoomMode::On {
            return Err(NotIssued::RoomRequired);
        }
        let captcha = entry.captcha;
        if captcha {
            self.take_captcha((sale.id, user), proof.ok_or(NotIssued::CaptchaRequired)?)?;
        }
        let ends = now.plus(rules.lifetime).min(sale.terms.closes_at);
        let token = SaleToken { sale: sale.id, user, begins: now, ends, captcha, let_in: false };
        let token = self.sale_tokens.sign(&token).ok_or(NotIssued::Off)?;
        Ok(IssuedToken { token, ends })
    }

    /// The sale and the stock's time, when this user may buy in it some day.
    pub(super) fn eligible<'c>(
        &self,
        catalog: &'c Catalog,
        sale: SaleId,
        user: &UserId,
    ) -> Result<(&'c Sale, Timestamp), NotIssued> {
        let sale = catalog.sale(sale).ok_or(NotIssued::NoSale)?;
        let now = self.clock.now().ahead_by(catalog.stock_ahead_ms());
        if now >= sale.terms.closes_at || sale.terms.state == SaleState::Closed {
            return Err(NotIssued::Ended);
        }
        if !self.sale_tokens.are_on() {
            return Err(NotIssued::Off);
        }
        if self.barred.has(sale.id, user) {
            return Err(NotIssued::NotEligible);
        }
        Ok((sale, now))
    }

    /// Takes the answer to a captcha, once.
    pub(super) fn take_captcha(&self, of: (SaleId, &UserId), proof: &[u8]) -> Result<(), NotIssued> {
        let now = self.clock.now().ahead_by(self.catalog.load().stock_ahead_ms());
        let taken = self.sale_tokens.take_captcha(of, proof, now, self.clock.monotonic());
        taken.map_err(|_| NotIssued::BadCaptcha)
    }

    /// A captcha for a user who was verified; nothing when there is no such sale, or no secret here.
    pub fn ask_captcha(&self, sale: SaleId, user: &UserId) -> Option<Challenge> {
        let catalog = self.catalog.load();
        let sale = catalog.sale(sale)?;
        let now = self.clock.now().ahead_by(catalog.stock_ahead_ms());
        self.sale_tokens.ask_captcha(sale.id, user, now)
    }
}
