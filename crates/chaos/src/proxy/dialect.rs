//! How each protocol divides its bytes into requests and replies.

use bytes::{Buf as _, Bytes, BytesMut};

use super::kafka::Kafka;
use super::postgres::Postgres;
use super::resp::Resp;

/// The largest frame. A longer one ends its connection, so that no peer can fill the memory.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// What a client and a server say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Anything: bytes are passed on as they come.
    Bytes,
    /// Redis: commands as arrays of bulk strings, replies in their order, RESP2 and RESP3. After a command
    /// that ends this order (SUBSCRIBE, MONITOR, CLIENT REPLY …) a connection is passed on unread.
    Resp,
    /// PostgreSQL, unencrypted: a request is a simple query, or the messages up to Sync; its reply goes up
    /// to ReadyForQuery.
    Postgres,
    /// Kafka, unencrypted: replies are matched by correlation id. Where a reply names the broker's
    /// address (host and port of the upstream), the proxy's port is put in, so that clients stay on it.
    Kafka,
}

/// Why bytes cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// They are not of the protocol, or of a part of it that the proxy does not read.
    Unparsed,
    /// The frame is longer than [`FRAME_BYTES_MAX`].
    TooLarge,
}

/// How the reply to a request is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// The next frame.
    OneFrame,
    /// The next byte.
    OneByte,
    /// All up to ReadyForQuery.
    UntilReady,
    /// The same, unless it asks for a COPY: then the run that ends the COPY has the rest.
    UntilReadyOrCopy,
    /// The frame with this correlation id.
    Numbered(i32),
    /// There is none.
    None,
}

/// What a request says, as far as [`super::Matching`] can ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The words of a Redis command.
    Command(Vec<Bytes>),
    /// The SQL of a Postgres request.
    Sql(Vec<Bytes>),
    /// The api key of a Kafka request.
    Api(i16),
    /// It opens the connection.
    Opening,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) said: Said,
    pub(super) reply: ReplyForm,
    /// Whether the server would do the same again if its bytes came twice.
    pub(super) repeatable: bool,
}

impl Request {
    pub(super) fn has_reply(&self) -> bool {
        self.reply != ReplyForm::None
    }
}

/// A piece of what a client says: a whole request, or something that has no reply of its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FromClient {
    pub(super) bytes: Bytes,
    pub(super) request: Option<Request>,
}

/// Whose reply a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyTo {
    /// Nobody asked for it.
    Nobody,
    /// The oldest request that has no reply yet; `ends` when nothing more comes.
    Oldest {
        /// Whether this is the last piece of the reply.
        ends: bool,
    },
    /// The request with this correlation id.
    Numbered(i32),
}

/// A piece of what a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FromServer {
    pub(super) bytes: Bytes,
    pub(super) reply_to: ReplyTo,
}

/// The state of one connection's protocol.
#[derive(Debug)]
pub(super) enum Dialect {
    /// Passed on unread.
    Bytes,
    /// Redis.
    Resp(Resp),
    /// PostgreSQL.
    Postgres(Postgres),
    /// Kafka.
    Kafka(Kafka),
}

impl Dialect {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Bytes => Self::Bytes,
            Protocol::Resp => Self::Resp(Resp),
            Protocol::Postgres => Self::Postgres(Postgres::default()),
            Protocol::Kafka => Self::Kafka(Kafka::default()),
        }
    }

    /// Takes the next piece off what the client has said; `None` while it is not there whole.
    pub(super) fn next_from_client(&mut self, input: &mut BytesMut) -> Result<Option<FromClient>, Trouble> {
        if input.is_empty() {
            return Ok(None);
        }
        match self {
            Self::Bytes => Ok(Some(FromClient { bytes: input.split().freeze(), request: None })),
            Self::Resp(resp) => resp.command(input),
            Self::Postgres(postgres) => postgres.next_from_client(input),
            Self::Kafka(kafka) => kafka.request(input),
        }
    }

    /// Takes the next piece off what the server has said, where `oldest` is how the oldest open request
    /// is answered; `None` while it is not there whole.
    pub(super) fn next_from_server(
        &mut self,
        input: &mut BytesMut,
        oldest: Option<ReplyForm>,
    ) -> Result<Option<FromServer>, Trouble> {
        if input.is_empty() {
            return Ok(None);
        }
        match self {
            Self::Bytes => Ok(Some(FromServer { bytes: input.split().freeze(), reply_to: ReplyTo::Nobody })),
            Self::Resp(resp) => resp.reply(input, oldest.is_some()),
            Self::Postgres(postgres) => postgres.next_from_server(input, oldest),
            Self::Kafka(kafka) => kafka.reply(input),
        }
    }

    /// A second copy of a request, and how its reply is recognised.
    pub(super) fn again(&mut self, bytes: &Bytes, reply: ReplyForm) -> (Bytes, ReplyForm) {
        match self {
            Self::Kafka(kafka) => kafka.again(bytes, reply),
            Self::Bytes | Self::Resp(_) | Self::Postgres(_) => (bytes.clone(), reply),
        }
    }
}

/// Reads big-endian numbers and byte strings off the front; `None` when the bytes are too few.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.bytes(2).map(|mut it| it.get_i16())
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.bytes(4).map(|mut it| it.get_i32())
    }

    /// An unsigned number in groups of seven bits, the lowest first.
    pub(super) fn varint(&mut self) -> Option<usize> {
        let mut value = 0;
        for group in 0..5 {
            let byte = self.bytes(1)?[0];
            value |= usize::from(byte & 0x7f) << (7 * group);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The text up to a zero byte.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        Some(text)
    }
}
