//! Giving sale tokens out, long before the rush.

use std::time::Duration;

use super::{Challenge, Gate, Ineligible, SaleToken, Visitor};
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

/// What a user sends for the captcha; it is looked at only where the sale requires one.
#[derive(Clone, Copy, Debug)]
pub enum CaptchaAnswer<'a> {
    /// Nothing.
    Missing,
    /// The answer to a [`Challenge`] of ours.
    Proof(&'a [u8]),
    /// An answer that its provider found good a moment ago, for this user in this sale.
    Judged(&'a [u8]),
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
    /// The user may not buy in this sale.
    NotEligible(Ineligible),
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
    /// A sale token for a user who was verified. Early access waits for no token, nor does a token wait for it.
    ///
    /// # Errors
    /// [`NotIssued`], when there is none to be had now.
    pub fn issue_sale_token(
        &self,
        sale: SaleId,
        visitor: &Visitor,
        answer: CaptchaAnswer<'_>,
    ) -> Result<IssuedToken, NotIssued> {
        let (catalog, user) = (self.catalog.load(), &visitor.known.user);
        let (sale, now) = self.entitled(&catalog, sale, visitor)?;
        let captcha = catalog.switches().entry(sale.id).captcha;
        if captcha {
            self.take_captcha((sale.id, user), answer)?;
        }
        let ends = now.plus(self.sale_tokens.rules().lifetime).min(sale.terms.closes_at);
        let token = SaleToken {
            sale: sale.id,
            user,
            begins: now,
            ends,
            captcha,
            let_in: false,
            profile: visitor.known.profile,
        };
        let token = self.sale_tokens.sign(&token).ok_or(NotIssued::Off)?;
        Ok(IssuedToken { token, ends })
    }

    /// Whether this user needs a captcha's answer for a sale token, and nothing else: asked before another is
    /// asked to judge the answer, so that only those who could have a token make us ask.
    ///
    /// # Errors
    /// [`NotIssued`], when no answer would give one now.
    pub fn needs_captcha(&self, sale: SaleId, visitor: &Visitor) -> Result<bool, NotIssued> {
        let catalog = self.catalog.load();
        let (sale, _) = self.entitled(&catalog, sale, visitor)?;
        Ok(catalog.switches().entry(sale.id).captcha)
    }

    /// The sale and the stock's time, when this user may have a sale token but for a captcha.
    fn entitled<'c>(
        &self,
        catalog: &'c Catalog,
        sale: SaleId,
        visitor: &Visitor,
    ) -> Result<(&'c Sale, Timestamp), NotIssued> {
        let (sale, now) = self.for_sale(catalog, sale, visitor)?;
        let rules = self.sale_tokens.rules();
        let turn = sale
            .terms
            .opens_at
            .minus(rules.issue_before)
            .plus(self.sale_tokens.turn(sale.id, &visitor.known.user));
        // However the times are set, nobody waits for a token when the sale is open.
        let turn = turn.min(sale.terms.opens_at);
        if now < turn {
            return Err(NotIssued::NotYet { turn, wait: turn.since(now) });
        }
        if catalog.switches().entry(sale.id).room == RoomMode::On {
            return Err(NotIssued::RoomRequired);
        }
        Ok((sale, now))
    }

    /// The sale and the stock's time, when this user may buy in it some day.
    pub(super) fn for_sale<'c>(
        &self,
        catalog: &'c Catalog,
        sale: SaleId,
        visitor: &Visitor,
    ) -> Result<(&'c Sale, Timestamp), NotIssued> {
        let sale = catalog.sale(sale).ok_or(NotIssued::NoSale)?;
        let now = self.clock.now().ahead_by(catalog.stock_ahead_ms());
        if now >= sale.terms.closes_at || sale.terms.state == SaleState::Closed {
            return Err(NotIssued::Ended);
        }
        if !self.sale_tokens.are_on() {
            return Err(NotIssued::Off);
        }
        self.may_buy(sale.id, visitor).map_err(NotIssued::NotEligible)?;
        Ok((sale, now))
    }

    /// Takes the answer to a captcha, once.
    pub(super) fn take_captcha(
        &self,
        of: (SaleId, &UserId),
        answer: CaptchaAnswer<'_>,
    ) -> Result<(), NotIssued> {
        let since_start = self.clock.monotonic();
        let now = self.clock.now().ahead_by(self.catalog.load().stock_ahead_ms());
        let taken = match answer {
            CaptchaAnswer::Missing => return Err(NotIssued::CaptchaRequired),
            CaptchaAnswer::Proof(proof) => self.sale_tokens.take_captcha(of, proof, now, since_start),
            CaptchaAnswer::Judged(answer) => self.sale_tokens.take_judged_captcha(answer, since_start),
        };
        taken.map_err(|_| NotIssued::BadCaptcha)
    }

    /// A captcha for a user who was verified; nothing when there is no such sale, or no secret here.
    pub fn ask_captcha(&self, sale: SaleId, user: &UserId) -> Option<Challenge> {
        let catalog = self.catalog.load();
        let sale = catalog.sale(sale)?;
        let now = self.clock.now().ahead_by(catalog.stock_ahead_ms());
        self.sale_tokens.ask_captcha(sale.id, user, now)
    }

    /// What the answer to another's captcha has to carry, so that it is this user's in this sale; nothing when
    /// there is no such sale, or no secret here.
    pub fn captcha_mark(&self, sale: SaleId, user: &UserId) -> Option<String> {
        let catalog = self.catalog.load();
        let sale = catalog.sale(sale)?;
        self.sale_tokens.captcha_mark((sale.id, user))
    }

    /// Whether an answer that another judged carries that mark.
    pub fn is_captcha_mark(&self, sale: SaleId, user: &UserId, said: &str) -> bool {
        self.sale_tokens.is_captcha_mark((sale, user), said)
    }
}
