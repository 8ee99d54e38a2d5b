//! What becomes of each piece that was read: passed on, held back, dropped, doubled, or the end.

use bytes::Bytes;

use super::connection::Connection;
use super::dialect::{Dialect, FromClient, FromServer, ReplyForm, ReplyTo, Trouble};
use super::lane::Delay;
use super::open::{Fate, Open};
use super::toxic::{Effect, Ending, Moment, Stream, Then};

impl Connection {
    /// Passes everything on unread from now on, both ways.
    pub(super) fn read_no_more(&mut self) {
        if !matches!(self.dialect, Dialect::Bytes) {
            tracing::warn!(connection = self.number, "bytes are not understood: they are passed on unread");
            self.board.count(|counts| counts.unparsed += 1);
            self.dialect = Dialect::Bytes;
            self.open.clear();
        }
        // Plain bytes are never in trouble.
        let _ = (self.divide_up(), self.divide_down());
    }

    pub(super) fn divide_up(&mut self) -> Result<(), Trouble> {
        while self.up.divides() {
            if self.up.is_silent() {
                self.vanish(Stream::Upstream);
                break;
            }
            let Some(piece) = self.dialect.next_from_client(&mut self.up.input)? else { break };
            self.pass_up(piece);
        }
        Ok(())
    }

    pub(super) fn divide_down(&mut self) -> Result<(), Trouble> {
        while self.down.divides() {
            if self.down.is_silent() {
                self.vanish(Stream::Downstream);
                break;
            }
            let oldest = self.open.front().map(|it| it.reply);
            let Some(piece) = self.dialect.next_from_server(&mut self.down.input, oldest)? else { break };
            self.pass_down(piece);
        }
        Ok(())
    }

    /// Loses what was read of a silent stream.
    fn vanish(&mut self, stream: Stream) {
        let lane = self.lane(stream);
        if !lane.input.is_empty() {
            lane.input.clear();
            self.note_lost(stream);
        }
    }

    /// The delay of bytes that are no request and no reply: there is one where nothing is divided.
    fn plain_delay(&self, of: Stream) -> Option<Delay> {
        if !matches!(self.dialect, Dialect::Bytes) {
            return None;
        }
        let toxics = self.board.toxics.borrow().clone();
        let plain = toxics.iter().filter(|it| it.toxic.matching.is_none() && it.is_for(self.number));
        plain.fold(None, |longest, toxic| match toxic.effect() {
            Effect::Delay(stream, by) if stream == of && toxic.take() => {
                self.board.fire(toxic);
                Delay::longer(longest, by, toxic)
            }
            _ => longest,
        })
    }

    fn pass_up(&mut self, piece: FromClient) {
        let FromClient { bytes, request } = piece;
        let Some(request) = request else {
            let delay = self.plain_delay(Stream::Upstream);
            return self.up.push(bytes, delay);
        };
        let toxics = self.board.meant_for(self.number, &request);
        let (mut delay, mut copy_for, mut cut) = (None, None, None);
        for toxic in &toxics {
            match toxic.effect() {
                Effect::Delay(Stream::Upstream, by) => {
                    delay = Delay::longer(delay, by, toxic);
                    self.board.fire(toxic);
                }
                Effect::Cut(Moment::BeforeDelivery, ending) => return self.up.cut(ending, toxic.clone()),
                Effect::Cut(_, ending) => cut = Some((ending, toxic.clone())),
                Effect::Duplicate => copy_for = Some(toxic.clone()),
                // These two are done to the reply.
                Effect::Delay(Stream::Downstream, _) | Effect::SwallowReply(_) | Effect::Refuse => {}
                effect => self.begin(effect, toxic),
            }
        }
        if self.up.is_silent() {
            return self.note_lost(Stream::Upstream);
        }

        let copy = copy_for.map(|toxic| (self.dialect.again(&bytes, request.reply), toxic));
        self.deliver(bytes, delay.clone(), Open::of(&request, toxics));
        if let Some(((bytes, reply), toxic)) = copy {
            self.deliver(bytes, delay, Open::copy(reply, toxic));
        }
        if let Some((ending, toxic)) = cut {
            self.up.cut(ending, toxic);
        }
    }

    fn deliver(&mut self, bytes: Bytes, delay: Option<Delay>, open: Open) {
        self.up.push(bytes, delay);
        if open.reply != ReplyForm::None {
            self.open.push_back(open);
        } else if let Some(toxic) = open.copy_of {
            self.board.fire(&toxic);
        }
    }

    fn pass_down(&mut self, piece: FromServer) {
        let FromServer { bytes, reply_to } = piece;
        let (place, ends) = match reply_to {
            ReplyTo::Nobody => (None, false),
            ReplyTo::Oldest { ends } => (Some(0), ends),
            ReplyTo::Numbered(number) => {
                (self.open.iter().position(|it| it.reply == ReplyForm::Numbered(number)), true)
            }
        };
        let Some((place, open)) = place.and_then(|place| Some((place, self.open.get_mut(place)?))) else {
            let delay = self.plain_delay(Stream::Downstream);
            return self.down.push(bytes, delay);
        };
        let fate = open.fate(&self.board);
        if let Fate::Passed(delay) = &fate {
            let bytes = if open.names_brokers { self.board.readdressed(bytes) } else { bytes };
            self.down.push(bytes, delay.clone());
        }
        if ends {
            self.open.remove(place);
            self.replied(fate);
        }
    }

    /// The whole of a reply is there.
    fn replied(&mut self, fate: Fate) {
        match fate {
            Fate::Passed(_) => {}
            Fate::Dropped(toxic) => self.board.fire(&toxic),
            Fate::Swallowed(Then::End(ending), toxic) => self.down.cut(ending, toxic),
            // Half a reply is lost, and nobody would end the silence.
            Fate::Swallowed(Then::Hang, toxic) if !self.board.is_in_force(&toxic) => {
                self.down.cut(Ending::Reset, toxic);
            }
            Fate::Swallowed(Then::Hang, toxic) => {
                self.board.fire(&toxic);
                self.down.silence(toxic, true);
            }
        }
    }
}
