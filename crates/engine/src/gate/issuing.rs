//! Giving sale tokens out, long before the rush.

use std::time::Duration;

use super::{Challenge, Gate, SaleToken};
use crate::clock::Timestamp;
use crate::order::{SaleId, UserId};
use crate::sale::SaleState;

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
        let rules = self.sale_tokens.rules();
        let turn = sale.terms.opens_at.minus(rules.issue_before).plus(self.sale_tokens.turn(sale.id, user));
        // However the times are set, nobody waits for a token when the sale is open.
        let turn = turn.min(sale.terms.opens_at);
        if now < turn {
            return Err(NotIssued::NotYet { turn, wait: turn.since(now) });
        }
        let captcha = catalog.switches().entry(sale.id).captcha;
        if captcha {
            let (proof, since_start) = (proof.ok_or(NotIssued::CaptchaRequired)?, self.clock.monotonic());
            let taken = self.sale_tokens.take_captcha((sale.id, user), proof, now, since_start);
            taken.map_err(|_| NotIssued::BadCaptcha)?;
        }
        let ends = now.plus(rules.lifetime).min(sale.terms.closes_at);
        let token = SaleToken { sale: sale.id, user, begins: now, ends, captcha };
        let token = self.sale_tokens.sign(&token).ok_or(NotIssued::Off)?;
        Ok(IssuedToken { token, ends })
    }

    /// A captcha for a user who was verified; nothing when there is no such sale, or no secret here.
    pub fn ask_captcha(&self, sale: SaleId, user: &UserId) -> Option<Challenge> {
        let catalog = self.catalog.load();
        let sale = catalog.sale(sale)?;
        let now = self.clock.now().ahead_by(catalog.stock_ahead_ms());
        self.sale_tokens.ask_captcha(sale.id, user, now)
    }
}
