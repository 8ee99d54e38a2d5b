//! At the waiting room's door: who may wait, what place he draws or shows, and what he gets when he is let in.
//! The room itself is another stage; this one knows users, captchas and seals.

use super::place::SealedPlace;
use super::{CaptchaAnswer, Gate, IssuedToken, NotIssued, SaleToken, Visitor};
use crate::clock::Timestamp;
use crate::member::Known;
use crate::order::SaleId;
use crate::sale::Sale;
use crate::switches::RoomMode;

/// A user who may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtDoor {
    /// For this sale.
    pub sale: SaleId,
    /// The user, and what is said of them.
    pub known: Known,
    /// Now, by the stock's clock as far as it is known.
    pub now: Timestamp,
    /// When the sale opens.
    pub opens_at: Timestamp,
    /// The place that he shows he had, at most the grace ago.
    pub shown: Option<u64>,
    /// When it was sealed.
    pub sealed_at: Option<Timestamp>,
    /// What he draws for a place; nothing once the sale is open.
    pub drawn: Option<[u8; 8]>,
    /// Whether he has to pass the captcha first.
    pub needs_captcha: bool,
    /// Whether he has passed it.
    pub passed_captcha: bool,
    closes_at: Timestamp,
}

impl Gate {
    /// Whether users wait for this sale at `now` of the stock's clock. For a sale whose room is automatic, all who
    /// come before it opens do: only then it is known whether they are too many.
    pub fn is_waited_for(&self, sale: &Sale, room: RoomMode, now: Timestamp) -> bool {
        let to_come = room == RoomMode::Automatic && now < sale.terms.opens_at;
        to_come || self.rooms.is_needed(sale.id, room)
    }

    /// Whether a verified user may wait, and what for. `shown` is the place that he was given, as far as he has
    /// it. Nothing when the sale has no waiting room at this moment.
    ///
    /// # Errors
    /// [`NotIssued`], as for a sale token.
    pub fn at_door(
        &self,
        sale: SaleId,
        visitor: &Visitor,
        shown: Option<&[u8]>,
    ) -> Result<Option<AtDoor>, NotIssued> {
        let catalog = self.catalog.load();
        let (sale, now) = self.for_sale(&catalog, sale, visitor)?;
        let known = &visitor.known;
        let entry = catalog.switches().entry(sale.id);
        if !self.is_waited_for(sale, entry.room, now) {
            return Ok(None);
        }
        let opens_at = sale.terms.opens_at;
        // Who may buy from the first moment on draws a place for it; who may buy later comes then.
        let own = self.opens_for(catalog.switches(), sale, known.profile.level);
        let turn = if own > opens_at { own } else { opens_at.minus(self.sale_tokens.rules().issue_before) };
        if now < turn {
            return Err(NotIssued::NotYet { turn, wait: turn.since(now) });
        }
        let of = (sale.id, &known.user);
        let shown = shown.and_then(|shown| self.sale_tokens.unseal_place(of, shown, now));
        let passed_captcha = shown.is_some_and(|place| place.captcha);
        Ok(Some(AtDoor {
            sale: sale.id,
            known: known.clone(),
            now,
            opens_at,
            shown: shown.and_then(|place| place.rank),
            sealed_at: shown.filter(|place| place.rank.is_some()).map(|place| place.at),
            drawn: if now < opens_at { self.sale_tokens.draw(of) } else { None },
            needs_captcha: entry.captcha && !passed_captcha,
            passed_captcha,
            closes_at: sale.terms.closes_at,
        }))
    }

    /// Takes his answer to the captcha.
    ///
    /// # Errors
    /// [`NotIssued`], when it is not good.
    pub fn pass_captcha(&self, door: AtDoor, answer: CaptchaAnswer<'_>) -> Result<AtDoor, NotIssued> {
        self.take_captcha((door.sale, &door.known.user), answer)?;
        Ok(AtDoor { needs_captcha: false, passed_captcha: true, ..door })
    }

    /// His place, sealed, to be shown when he comes back, or that he has passed the captcha for one; nothing when
    /// there is no secret here.
    pub fn seal_place(&self, door: &AtDoor, rank: Option<u64>) -> Option<String> {
        let place = SealedPlace { rank, at: door.now, captcha: door.passed_captcha };
        self.sale_tokens.seal_place((door.sale, &door.known.user), place)
    }

    /// The sale token of somebody who was let in; nothing when there is no secret here.
    pub fn let_in(&self, door: &AtDoor, until: Timestamp) -> Option<IssuedToken> {
        let ends = until.min(door.closes_at);
        let token = SaleToken {
            sale: door.sale,
            user: &door.known.user,
            begins: door.now,
            ends,
            captcha: door.passed_captcha,
            let_in: true,
            profile: door.known.profile,
        };
        Some(IssuedToken { token: self.sale_tokens.sign(&token)?, ends })
    }
}
