//! Redis: commands are arrays of bulk strings, replies are any value of RESP2 or RESP3.

use bytes::{Bytes, BytesMut};

use super::dialect::{FRAME_BYTES_MAX, FromClient, FromServer, ReplyForm, ReplyTo, Request, Said, Trouble};

/// The longest line: a length, a number, or a status. Redis itself ends a connection at 64 KiB.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Commands after which replies no longer follow requests one by one.
const ORDER_ENDS: [&str; 7] =
    ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC", "REPLCONF"];

/// Divides what a Redis connection says. It has no state: the order says what belongs together.
#[derive(Debug)]
pub(super) struct Resp;

impl Resp {
    /// The next command.
    pub(super) fn command(&self, input: &mut BytesMut) -> Result<Option<FromClient>, Trouble> {
        if input[0] != b'*' {
            return Err(Trouble::Unparsed);
        }
        let Some(length) = value_length(input)? else { return Ok(None) };

        let words = words(&Bytes::copy_from_slice(&input[..length]))?;
        if ends_order(&words) {
            return Err(Trouble::Unparsed);
        }
        let request = Request { said: Said::Command(words), reply: ReplyForm::OneFrame, repeatable: true };
        Ok(Some(FromClient { bytes: input.split_to(length).freeze(), request: Some(request) }))
    }

    /// The next reply, or what Redis says unasked: a push, or an error when it takes no more clients.
    pub(super) fn reply(&self, input: &mut BytesMut, asked: bool) -> Result<Option<FromServer>, Trouble> {
        let Some(length) = value_length(input)? else { return Ok(None) };

        let unasked = !asked || input[0] == b'>';
        let reply_to = if unasked { ReplyTo::Nobody } else { ReplyTo::Oldest { ends: true } };
        Ok(Some(FromServer { bytes: input.split_to(length).freeze(), reply_to }))
    }
}

/// The words of a whole command.
fn words(command: &Bytes) -> Result<Vec<Bytes>, Trouble> {
    let mut at = line_end(command, 0)?.ok_or(Trouble::Unparsed)?;
    let mut words = Vec::new();
    while at < command.len() {
        let start = line_end(command, at)?.ok_or(Trouble::Unparsed)?;
        if command[at] != b'$' {
            return Err(Trouble::Unparsed);
        }
        let length = number(&command[at + 1..start - 2])?.ok_or(Trouble::Unparsed)?;
        words.push(command.slice(start..start + length));
        at = start + length + 2;
    }
    Ok(words)
}

fn ends_order(words: &[Bytes]) -> bool {
    let is = |at: usize, name: &str| words.get(at).is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes()));
    ORDER_ENDS.iter().any(|name| is(0, name)) || (is(0, "CLIENT") && is(1, "REPLY"))
}

/// How long the value at the front is; `None` while its end is not there. It counts the values that are
/// still open, so a deep nesting costs no stack.
fn value_length(input: &[u8]) -> Result<Option<usize>, Trouble> {
    let mut open: usize = 1;
    let mut at = 0;
    while open > 0 {
        let Some(end) = line_end(input, at)? else { return Ok(None) };
        let line = &input[at + 1..end - 2];
        let kind = input[at];
        open -= 1;
        at = end;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => {
                let Some(length) = number(line)? else { continue };
                at += length + 2;
                let bytes = input.get(at - 2..at);
                if bytes.is_some_and(|it| it != b"\r\n") {
                    return Err(Trouble::Unparsed);
                }
            }
            b'*' | b'~' | b'>' => open += number(line)?.unwrap_or(0),
            b'%' => open += 2 * number(line)?.unwrap_or(0),
            // Attributes stand before the value that they belong to.
            b'|' => open += 2 * number(line)?.unwrap_or(0) + 1,
            _ => return Err(Trouble::Unparsed),
        }
        if at.saturating_add(open) > FRAME_BYTES_MAX {
            return Err(Trouble::TooLarge);
        }
        if at > input.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// Where the line that begins at `from` ends, its line break included; `None` while it does not.
fn line_end(input: &[u8], from: usize) -> Result<Option<usize>, Trouble> {
    let rest = &input[from..];
    match memchr::memchr(b'\r', rest) {
        // A carriage return that is not followed by a line feed is no value of Redis.
        Some(0) => Err(Trouble::Unparsed),
        Some(end) if rest.get(end + 1).is_some_and(|&next| next != b'\n') => Err(Trouble::Unparsed),
        Some(end) if end + 1 < rest.len() => Ok(Some(from + end + 2)),
        Some(_) => Ok(None),
        None if rest.len() > LINE_BYTES_MAX => Err(Trouble::Unparsed),
        None => Ok(None),
    }
}

/// A length or a count; `None` for -1, which says that there is nothing.
fn number(digits: &[u8]) -> Result<Option<usize>, Trouble> {
    if digits == b"-1" {
        return Ok(None);
    }
    let plain = !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    if !plain {
        return Err(Trouble::Unparsed);
    }
    let number = digits.iter().fold(0_usize, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    if number > FRAME_BYTES_MAX {
        return Err(Trouble::TooLarge);
    }
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the front of `input` is, and how many bytes of it.
    fn length(input: &str) -> Result<Option<usize>, Trouble> {
        value_length(input.as_bytes())
    }

    #[test]
    fn every_kind_of_value_is_as_long_as_it_says() {
        let values = [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-17\r\n",
            "$5\r\n12\r\n3\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            "_\r\n",
            "#t\r\n",
            ",3.25\r\n",
            "(123456789012345678901234567890\r\n",
            "!3\r\nERR\r\n",
            "=7\r\ntxt:abc\r\n",
            "%1\r\n+a\r\n*1\r\n:1\r\n",
            "~2\r\n:1\r\n:2\r\n",
            ">2\r\n+invalidate\r\n*1\r\n+key\r\n",
            "|1\r\n+ttl\r\n:5\r\n$1\r\nv\r\n",
        ];
        for value in values {
            assert_eq!(length(value), Ok(Some(value.len())), "{value:?}");
            assert_eq!(length(&format!("{value}+more\r\n")), Ok(Some(value.len())), "{value:?}");
            for cut in 1..value.len() {
                assert_eq!(length(&value[..cut]), Ok(None), "{:?}", &value[..cut]);
            }
        }
    }

    #[test]
    fn what_is_no_value_is_told_from_what_is_too_large() {
        for value in [
            "hello\r\n",
            "$x\r\n",
            "$-2\r\n",
            "$3\r\nabcXY",
            "+a\rb\r\n",
            "*\r\n",
            "$99999999999999999999\r\n",
        ] {
            assert_eq!(length(value), Err(Trouble::Unparsed), "{value:?}");
        }
        for value in ["$67108865\r\n", "*99999999\r\n", "*2\r\n$60000000\r\n"] {
            let too_large = length(value) == Err(Trouble::TooLarge);
            assert_eq!(too_large, value != "*2\r\n$60000000\r\n", "{value:?}");
        }
    }

    #[test]
    fn a_command_that_ends_the_order_of_replies_is_not_read() {
        for command in [
            "*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n",
            "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n",
            "PING\r\n",
        ] {
            let mut input = BytesMut::from(command);
            assert_eq!(Resp.command(&mut input), Err(Trouble::Unparsed), "{command:?}");
            assert_eq!(input.len(), command.len(), "what was not read must still be passed on");
        }
    }
}
