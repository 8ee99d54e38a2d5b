//! PostgreSQL's frontend/backend messages: a request ends with Sync or is a simple query.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::dialect::{
    FRAME_BYTES_MAX, FromClient, FromServer, Reader, ReplyForm, ReplyTo, Request, Said, Trouble,
};

/// The messages that a client sends once it is in.
const CLIENT_TAGS: &[u8] = b"QPBEDSHCFXcdfp";
/// The messages that a server sends.
const SERVER_TAGS: &[u8] = b"123AcCdDEGHIKNnRSstTVvWZ";
/// PostgreSQL reads no opening message that is longer.
const OPENING_BYTES_MAX: usize = 10_000;
/// How much of names and SQL of prepared statements a connection remembers. One that prepares more is
/// passed on unread from there: a filter that silently missed it would be worse.
const STATEMENTS_BYTES_MAX: usize = 16 << 20;

/// The codes that stand where an opening message has its version.
const CANCEL: i32 = 80_877_102;
const ENCRYPT_TLS: i32 = 80_877_103;
const ENCRYPT_GSS: i32 = 80_877_104;

/// Divides what a PostgreSQL connection says.
#[derive(Debug, Default)]
pub(super) struct Postgres {
    /// Whether the client has sent its startup message: from then on messages have a tag.
    open: bool,
    /// How much of the input is in the run that has not ended yet.
    scanned: usize,
    /// The SQL of this run.
    sql: Vec<Bytes>,
    /// Whether a part of this run went ahead, by a Flush.
    flushed: bool,
    /// The SQL of prepared statements by their names.
    statements: HashMap<Bytes, Bytes>,
    statements_bytes: usize,
}

/// What a message ends.
enum Boundary {
    /// Nothing: the run goes on.
    None,
    /// Something that must go on now, and has no reply of its own.
    Part,
    /// A request.
    Request(Request),
}

impl Postgres {
    /// The next request, or a part that asks for nothing.
    pub(super) fn next_from_client(&mut self, input: &mut BytesMut) -> Result<Option<FromClient>, Trouble> {
        if !self.open {
            return self.opening(input);
        }
        while let Some(end) = message_end(input, self.scanned, CLIENT_TAGS)? {
            let (tag, body) = (input[self.scanned], self.scanned + 5..end);
            self.read(tag, &input[body])?;
            self.scanned = end;
            let request = match self.boundary(tag) {
                Boundary::None => continue,
                Boundary::Part => None,
                Boundary::Request(request) => Some(request),
            };
            let bytes = input.split_to(std::mem::take(&mut self.scanned)).freeze();
            return Ok(Some(FromClient { bytes, request }));
        }
        Ok(None)
    }

    /// The first messages have no tag: a wish for encryption, a cancellation, or the startup.
    fn opening(&mut self, input: &mut BytesMut) -> Result<Option<FromClient>, Trouble> {
        let mut reader = Reader(input);
        let (Some(length), Some(code)) = (reader.i32(), reader.i32()) else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| Trouble::Unparsed)?;
        if !(8..=OPENING_BYTES_MAX).contains(&length) {
            return Err(Trouble::Unparsed);
        }
        if input.len() < length {
            return Ok(None);
        }
        let reply = match code {
            CANCEL => ReplyForm::None,
            ENCRYPT_TLS | ENCRYPT_GSS => ReplyForm::OneByte,
            version if version >> 16 == 3 => ReplyForm::UntilReady,
            _ => return Err(Trouble::Unparsed),
        };

        self.open = reply == ReplyForm::UntilReady;
        let request = Request { said: Said::Opening, reply, repeatable: false };
        Ok(Some(FromClient { bytes: input.split_to(length).freeze(), request: Some(request) }))
    }

    /// Remembers what one message says of SQL.
    fn read(&mut self, tag: u8, body: &[u8]) -> Result<(), Trouble> {
        let mut reader = Reader(body);
        match tag {
            b'Q' => self.sql.push(Bytes::copy_from_slice(reader.text().ok_or(Trouble::Unparsed)?)),
            b'P' => {
                let (name, sql) = (reader.text(), reader.text());
                let (Some(name), Some(sql)) = (name, sql) else { return Err(Trouble::Unparsed) };
                let sql = Bytes::copy_from_slice(sql);
                self.sql.push(sql.clone());
                self.forget(name);
                self.statements_bytes += name.len() + sql.len();
                if self.statements_bytes > STATEMENTS_BYTES_MAX {
                    return Err(Trouble::Unparsed);
                }
                self.statements.insert(Bytes::copy_from_slice(name), sql);
            }
            b'B' => {
                let (_portal, name) = (reader.text(), reader.text());
                let name = name.ok_or(Trouble::Unparsed)?;
                self.sql.extend(self.statements.get(name).cloned());
            }
            b'C' if body.first() == Some(&b'S') => {
                self.forget(body[1..].strip_suffix(b"\0").ok_or(Trouble::Unparsed)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn forget(&mut self, name: &[u8]) {
        if let Some(sql) = self.statements.remove(name) {
            self.statements_bytes -= name.len() + sql.len();
        }
    }

    /// What ends with a message of this tag.
    fn boundary(&mut self, tag: u8) -> Boundary {
        let reply = match tag {
            b'Q' | b'F' => ReplyForm::UntilReady,
            b'S' => ReplyForm::UntilReadyOrCopy,
            b'H' => {
                self.flushed = true;
                return Boundary::Part;
            }
            // The data of a COPY, its end, a password, the goodbye.
            b'd' | b'c' | b'f' | b'p' | b'X' => return Boundary::Part,
            _ => return Boundary::None,
        };
        let repeatable = !std::mem::take(&mut self.flushed);
        let said = Said::Sql(std::mem::take(&mut self.sql));
        Boundary::Request(Request { said, reply, repeatable })
    }

    /// The next message of the server, or its one byte about encryption.
    pub(super) fn next_from_server(
        &self,
        input: &mut BytesMut,
        oldest: Option<ReplyForm>,
    ) -> Result<Option<FromServer>, Trouble> {
        let oldest_is = |form| oldest == Some(form);
        // A server that is too old to know the wish answers it by an error message.
        if oldest_is(ReplyForm::OneByte) && input[0] != b'E' {
            if input[0] != b'N' {
                return Err(Trouble::Unparsed);
            }
            let bytes = input.split_to(1).freeze();
            return Ok(Some(FromServer { bytes, reply_to: ReplyTo::Oldest { ends: true } }));
        }
        let Some(end) = message_end(input, 0, SERVER_TAGS)? else { return Ok(None) };

        let asks_for_data = matches!(input[0], b'G' | b'W') && oldest_is(ReplyForm::UntilReadyOrCopy);
        let ends = input[0] == b'Z' || asks_for_data;
        let bytes = input.split_to(end).freeze();
        let reply_to = if oldest.is_some() { ReplyTo::Oldest { ends } } else { ReplyTo::Nobody };
        Ok(Some(FromServer { bytes, reply_to }))
    }
}

/// Where the message that begins at `from` ends; `None` while it does not.
fn message_end(input: &[u8], from: usize, tags: &[u8]) -> Result<Option<usize>, Trouble> {
    let Some((tag, rest)) = input[from..].split_first() else { return Ok(None) };
    if !tags.contains(tag) {
        return Err(Trouble::Unparsed);
    }
    let Some(length) = Reader(rest).i32() else { return Ok(None) };
    let length = usize::try_from(length).ok().filter(|&it| it >= 4).ok_or(Trouble::Unparsed)?;
    let end = from + 1 + length;
    if end > FRAME_BYTES_MAX {
        return Err(Trouble::TooLarge);
    }
    Ok((input.len() >= end).then_some(end))
}
