//! What a scenario does to connections: the words are toxiproxy's where it has one.

use std::time::Duration;

use super::dialect::{Request, Said};

/// One direction of a connection, as toxiproxy calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// From the client to the server.
    Upstream,
    /// From the server to the client.
    Downstream,
}

/// How the client learns that its connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// RST: reading and writing fail.
    Reset,
    /// FIN: reading finds an orderly end.
    Close,
}

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At once, for all that stand. Later ones are spared, and there is no request to match.
    Now,
    /// As soon as it is accepted: for those to come. There is no request to match.
    Accepted,
    /// When a request has been read: the server never sees it.
    BeforeDelivery,
    /// When a request has been handed to the server whole, whatever that does with it. The server is
    /// left to read to the end, so that the request is not lost in the server's own buffers.
    AfterDelivery,
}

/// What a client is left with after its reply was swallowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing: the connection stands and stays silent. A stream has no gaps, so later replies of the
    /// same connection never come either.
    Hang,
    /// The connection ends.
    End(Ending),
}

/// What a toxic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Holds back each request, or the reply to it; what comes behind waits too (toxiproxy: `latency`).
    /// For both directions add two toxics.
    Delay(Stream, Duration),
    /// Ends connections (toxiproxy: `reset_peer`).
    Cut(Moment, Ending),
    /// Does not listen: the system refuses new connections, connections that stand are left alone
    /// (toxiproxy: `down`). It has fired once when the port is shut: nobody can count who knocks. To
    /// count them, use [`Moment::Accepted`].
    Refuse,
    /// Nothing passes either way, and TCP stands. New connections are accepted and the server never
    /// hears of them (toxiproxy: `timeout` of zero, both ways).
    HalfOpen,
    /// Nothing passes in this direction (toxiproxy: `timeout` of zero).
    OneWay(Stream),
    /// Delivers the request and drops the reply. It has fired when the whole reply was dropped: the
    /// server has done it.
    SwallowReply(Then),
    /// Delivers the request twice, passes on the first reply and drops the other. It has fired when that
    /// was dropped. Requests that open a connection, and Postgres runs that began with a Flush, are
    /// not repeated.
    Duplicate,
    /// Stops reading in this direction: nothing is lost, who writes is held up (toxiproxy: `bandwidth`
    /// of zero). It has fired for a connection when bytes wait.
    Clog(Stream),
}

/// Which connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    ToCome,
}

/// One thing that is done to connections until it is removed: an effect, on which requests, how often.
///
/// Without [`Toxic::on`] every request is meant; `HalfOpen`, `OneWay` and `Clog` then begin at once, and
/// with it when a matching request has been read: a matching `OneWay(Downstream)` and `Clog` let that
/// request through.
#[derive(Clone, Debug)]
pub struct Toxic {
    pub(super) effect: Effect,
    pub(super) matching: Option<Matching>,
    pub(super) first: Option<u64>,
    scope: Scope,
}

impl Toxic {
    /// On every request of every connection, without end.
    pub fn new(effect: Effect) -> Self {
        Self { effect, matching: None, first: None, scope: Scope::All }
    }

    /// On requests like these only.
    #[must_use]
    pub fn on(mut self, matching: Matching) -> Self {
        self.matching = Some(matching);
        self
    }

    /// On the first `times` requests only, over all connections. `HalfOpen`, `OneWay`, `Clog` and the
    /// cuts without a request count connections; on `Protocol::Bytes`, `Delay` counts chunks.
    #[must_use]
    pub fn first(mut self, times: u64) -> Self {
        self.first = Some(times);
        self
    }

    /// On connections that are accepted after the toxic was added only.
    #[must_use]
    pub fn to_come(mut self) -> Self {
        self.scope = Scope::ToCome;
        self
    }

    /// Whether it is for connection `number`, where `next` is the first that came after the toxic.
    pub(super) fn is_for(&self, number: u64, next: u64) -> bool {
        match (self.effect, self.scope) {
            (Effect::Cut(Moment::Now, _), _) => number < next,
            (Effect::Cut(Moment::Accepted, _), _) | (_, Scope::ToCome) => number >= next,
            (_, Scope::All) => true,
        }
    }

    /// Why it could never fire, or not as it says.
    pub(super) fn contradiction(&self, sees_requests: bool) -> Option<ToxicError> {
        let whole_connections =
            matches!(self.effect, Effect::Refuse | Effect::Cut(Moment::Now | Moment::Accepted, _));
        let one_request = matches!(
            self.effect,
            Effect::SwallowReply(_)
                | Effect::Duplicate
                | Effect::Cut(Moment::BeforeDelivery | Moment::AfterDelivery, _)
        );
        if !sees_requests && (one_request || self.matching.is_some()) {
            return Some(ToxicError::NoRequests);
        }
        if whole_connections && self.matching.is_some() {
            return Some(ToxicError::NoRequestYet);
        }
        let cuts_now = matches!(self.effect, Effect::Cut(Moment::Now, _));
        (cuts_now && self.scope == Scope::ToCome).then_some(ToxicError::NothingToCome)
    }
}

impl From<Effect> for Toxic {
    fn from(effect: Effect) -> Self {
        Self::new(effect)
    }
}

/// A toxic that could never fire as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToxicError {
    /// The proxy passes on bytes without reading them.
    #[error("a proxy for plain bytes sees no requests")]
    NoRequests,
    /// The effect happens before there is a request.
    #[error("this effect is on whole connections: there is no request to match")]
    NoRequestYet,
    /// What is cut now is not to come.
    #[error("a cut at once is for connections that stand")]
    NothingToCome,
}

/// Which requests are meant. Words are compared without regard to ASCII case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matching {
    /// A Redis command by its name; and, where one is given, with this text in one of its arguments, such
    /// as a script's sha.
    Command {
        /// The first word: `EVALSHA`.
        name: String,
        /// What one of the other words contains.
        argument: Option<String>,
    },
    /// A Postgres request whose SQL contains this text: as a simple query (as `COMMIT` is sent), when it
    /// is prepared, or when a statement that was prepared is bound.
    Sql(String),
    /// A Kafka request by its api key: Produce is 0, Fetch 1, Metadata 3, OffsetCommit 8.
    Api(i16),
}

impl Matching {
    /// A Redis command of this name.
    pub fn command(name: &str) -> Self {
        Self::Command { name: name.to_owned(), argument: None }
    }

    /// A Redis command of this name with `part` in one of its arguments.
    pub fn command_with(name: &str, part: &str) -> Self {
        Self::Command { name: name.to_owned(), argument: Some(part.to_owned()) }
    }

    /// A Postgres request whose SQL contains `part`.
    pub fn sql(part: &str) -> Self {
        Self::Sql(part.to_owned())
    }

    /// Whether `request` is meant.
    pub(super) fn matches(&self, request: &Request) -> bool {
        match (self, &request.said) {
            (Self::Command { name, argument }, Said::Command(words)) => {
                let Some((first, rest)) = words.split_first() else { return false };
                let wanted = argument.as_ref();
                first.eq_ignore_ascii_case(name.as_bytes())
                    && wanted.is_none_or(|part| rest.iter().any(|word| contains(word, part)))
            }
            (Self::Sql(part), Said::Sql(texts)) => texts.iter().any(|text| contains(text, part)),
            (Self::Api(key), Said::Api(asked)) => key == asked,
            _ => false,
        }
    }
}

/// Whether `text` contains `part`, in any case.
fn contains(text: &[u8], part: &str) -> bool {
    memchr::memmem::find(&text.to_ascii_lowercase(), part.to_ascii_lowercase().as_bytes()).is_some()
}
