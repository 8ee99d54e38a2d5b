//! Requests whose replies are still to come.

use std::sync::Arc;

use super::board::{Board, Installed};
use super::dialect::{ReplyForm, Request};
use super::kafka;
use super::lane::Delay;
use super::toxic::{Effect, Stream, Then};

/// A request whose reply is still to come.
pub(super) struct Open {
    pub(super) reply: ReplyForm,
    toxics: Vec<Arc<Installed>>,
    /// Set for the second copy of a request.
    pub(super) copy_of: Option<Arc<Installed>>,
    /// Whether the reply names brokers.
    pub(super) names_brokers: bool,
    fate: Option<Fate>,
}

/// What becomes of a reply.
#[derive(Clone)]
pub(super) enum Fate {
    /// It is passed on, perhaps later.
    Passed(Option<Delay>),
    /// It is dropped: it answers the second copy of a request.
    Dropped(Arc<Installed>),
    /// It is dropped, and the client is left with this.
    Swallowed(Then, Arc<Installed>),
}

impl Open {
    pub(super) fn of(request: &Request, toxics: Vec<Arc<Installed>>) -> Self {
        let names_brokers = kafka::names_brokers(&request.said);
        Self { reply: request.reply, toxics, copy_of: None, names_brokers, fate: None }
    }

    /// The second copy of a request.
    pub(super) fn copy(reply: ReplyForm, toxic: Arc<Installed>) -> Self {
        Self { reply, toxics: Vec::new(), copy_of: Some(toxic), names_brokers: false, fate: None }
    }

    /// What becomes of the reply, decided when its first piece is there: a toxic that was removed in the
    /// meantime does nothing.
    pub(super) fn fate(&mut self, board: &Board) -> Fate {
        let decide = || {
            if let Some(toxic) = &self.copy_of {
                return Fate::Dropped(toxic.clone());
            }
            let mut longest: Option<Delay> = None;
            for toxic in self.toxics.iter().filter(|it| board.is_in_force(it)) {
                match toxic.effect() {
                    Effect::SwallowReply(then) => return Fate::Swallowed(then, toxic.clone()),
                    Effect::Delay(Stream::Downstream, by) => {
                        board.fire(toxic);
                        longest = Delay::longer(longest, by, toxic);
                    }
                    _ => {}
                }
            }
            Fate::Passed(longest)
        };
        self.fate.get_or_insert_with(decide).clone()
    }
}
