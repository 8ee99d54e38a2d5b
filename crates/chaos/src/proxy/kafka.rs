//! Kafka: frames with a length, requests and replies matched by correlation id.

use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::dialect::{
    FRAME_BYTES_MAX, FromClient, FromServer, Reader, ReplyForm, ReplyTo, Request, Said, Trouble,
};

/// Api keys are small numbers; anything far above is not Kafka.
const API_KEY_MAX: i16 = 1_000;
/// The same of their versions.
const API_VERSION_MAX: i16 = 100;
const PRODUCE: i16 = 0;
/// From this version on, Produce has headers with tagged fields and compact strings.
const PRODUCE_FLEXIBLE: i16 = 9;
/// From this version on, Produce names a transaction before it says how many copies are waited for.
const PRODUCE_TRANSACTIONS: i16 = 3;
/// Metadata, FindCoordinator and DescribeCluster: their replies name brokers.
const NAMES_BROKERS: [i16; 3] = [3, 10, 60];

/// Divides what a Kafka connection says.
#[derive(Debug, Default)]
pub(super) struct Kafka {
    copies: i32,
}

impl Kafka {
    /// The next request.
    pub(super) fn request(&self, input: &mut BytesMut) -> Result<Option<FromClient>, Trouble> {
        let Some(length) = frame_length(input)? else { return Ok(None) };
        let mut reader = Reader(&input[4..length]);
        let header = (reader.i16(), reader.i16(), reader.i32());
        let (Some(key), Some(version), Some(number)) = header else { return Err(Trouble::Unparsed) };
        if !(0..=API_KEY_MAX).contains(&key) || !(0..=API_VERSION_MAX).contains(&version) {
            return Err(Trouble::Unparsed);
        }
        let unanswered = key == PRODUCE && copies_awaited(version, reader).ok_or(Trouble::Unparsed)? == 0;

        let reply = if unanswered { ReplyForm::None } else { ReplyForm::Numbered(number) };
        let request = Request { said: Said::Api(key), reply, repeatable: true };
        Ok(Some(FromClient { bytes: input.split_to(length).freeze(), request: Some(request) }))
    }

    /// The next reply.
    pub(super) fn reply(&self, input: &mut BytesMut) -> Result<Option<FromServer>, Trouble> {
        let Some(length) = frame_length(input)? else { return Ok(None) };
        let number = Reader(&input[4..length]).i32().ok_or(Trouble::Unparsed)?;
        let bytes = input.split_to(length).freeze();
        Ok(Some(FromServer { bytes, reply_to: ReplyTo::Numbered(number) }))
    }

    /// The same request under a correlation id that no client uses: clients count up from zero.
    pub(super) fn again(&mut self, bytes: &Bytes, reply: ReplyForm) -> (Bytes, ReplyForm) {
        self.copies = self.copies.wrapping_add(1);
        let number = i32::MIN.wrapping_add(self.copies);
        let mut copy = BytesMut::from(&bytes[..]);
        (&mut copy[8..12]).put_i32(number);
        let reply = if reply == ReplyForm::None { reply } else { ReplyForm::Numbered(number) };
        (copy.freeze(), reply)
    }
}

/// Whether the reply to this api names brokers.
pub(super) fn names_brokers(said: &Said) -> bool {
    matches!(said, Said::Api(key) if NAMES_BROKERS.contains(key))
}

/// Puts the proxy's port where the reply names the broker's address: in every version of these replies
/// the port follows the host's text. The host must be the same, so that no length changes.
pub(super) fn readdress(reply: Bytes, broker: SocketAddr, proxy: SocketAddr) -> Bytes {
    let mut named = broker.ip().to_string().into_bytes();
    named.extend(i32::from(broker.port()).to_be_bytes());
    let places: Vec<usize> = memchr::memmem::find_iter(&reply, &named).collect();
    if places.is_empty() || broker.ip() != proxy.ip() {
        return reply;
    }

    let mut reply = BytesMut::from(&reply[..]);
    for place in places {
        let port = place + named.len() - 4;
        (&mut reply[port..port + 4]).put_i32(i32::from(proxy.port()));
    }
    reply.freeze()
}

/// How long the frame at the front is; `None` while its end is not there.
fn frame_length(input: &[u8]) -> Result<Option<usize>, Trouble> {
    let Some(length) = Reader(input).i32() else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_| Trouble::Unparsed)? + 4;
    if length > FRAME_BYTES_MAX {
        return Err(Trouble::TooLarge);
    }
    Ok((input.len() >= length).then_some(length))
}

/// The `acks` of a Produce request, behind the correlation id. At zero there is no reply.
fn copies_awaited(version: i16, mut reader: Reader<'_>) -> Option<i16> {
    skip_text(&mut reader)?;
    if version >= PRODUCE_FLEXIBLE {
        for _ in 0..reader.varint()? {
            reader.varint()?;
            let length = reader.varint()?;
            reader.bytes(length)?;
        }
        let length = reader.varint()?;
        reader.bytes(length.saturating_sub(1))?;
    } else if version >= PRODUCE_TRANSACTIONS {
        skip_text(&mut reader)?;
    }
    reader.i16()
}

/// A text of 16 bits of length, where -1 says that there is none.
fn skip_text(reader: &mut Reader<'_>) -> Option<()> {
    let length = usize::try_from(reader.i16()?).unwrap_or(0);
    reader.bytes(length).map(drop)
}
