//! What one generator thread saw. Threads share nothing while the storm lasts.

use std::sync::Arc;

use bytes::Bytes;
use hdrhistogram::Histogram;

use crate::schedule::Click;
use crate::timeline::Timeline;

/// Longest latency that is told apart: one hour, which is the longest span of a plan.
const MAX_LATENCY_US: u64 = 3_700_000_000;
/// Most different words of refusals: more than the API has; a broken server cannot fill memory.
const MAX_WORDS: usize = 100;
/// Longest word of a refusal; longer ones are cut off to `OTHER`.
const MAX_WORD: usize = 64;

/// One order as a buyer learned of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenOrder {
    /// The order's id, as the server wrote it.
    pub order_id: String,
    /// The user whose click brought it.
    pub user_id: String,
    /// The item that was asked for.
    pub item_id: Arc<str>,
    /// When the answer came, in microseconds after the first possible click of its storm.
    pub at_us: u64,
}

/// Latencies in microseconds, 1 µs to about an hour, with three digits.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_US, 3).expect("the bounds are constants in order")
}

/// Short names of the words that can end a click. The first few are fixed.
#[derive(Clone, Debug)]
pub(crate) struct Words(Vec<String>);

/// A user's final answer as an index into [`Words`].
pub(crate) type Word = u8;
/// No answer yet.
pub(crate) const NONE: Word = 0;
/// The user has a 202.
pub(crate) const ACCEPTED: Word = 1;
/// The user was told which order is theirs, without having seen its 202.
pub(crate) const HELD: Word = 2;
const OTHER: Word = 3;

impl Words {
    pub(crate) fn new() -> Self {
        Self(["", "ACCEPTED", "ALREADY_PURCHASED", "OTHER"].map(str::to_owned).to_vec())
    }

    /// The index of a word; `OTHER` for what is too long or one word too many.
    pub(crate) fn index(&mut self, word: &str) -> Word {
        let known = self.0.iter().position(|known| known == word);
        let index = match known {
            Some(index) => index,
            None if word.len() > MAX_WORD || self.0.len() >= MAX_WORDS => usize::from(OTHER),
            None => {
                self.0.push(word.to_owned());
                self.0.len() - 1
            }
        };
        Word::try_from(index).unwrap_or(OTHER)
    }

    pub(crate) fn text(&self, word: Word) -> &str {
        self.0.get(usize::from(word)).map_or("OTHER", String::as_str)
    }
}

/// Counts, latencies and orders of one thread.
pub(crate) struct Tally {
    pub(crate) words: Words,
    /// One per user of the thread, in the order of their places.
    pub(crate) finals: Vec<Word>,
    pub(crate) accepted: Vec<SeenOrder>,
    pub(crate) held: Vec<SeenOrder>,
    /// Few different codes come, the frequent ones early: a list is quicker than a map.
    pub(crate) answers: Vec<(u16, Histogram<u64>)>,
    pub(crate) timeline: Timeline,
    pub(crate) broken: u64,
    pub(crate) timed_out: u64,
    pub(crate) retries: u64,
    /// From a click's intended moment to the moment a connection took it.
    pub(crate) send_lag: Histogram<u64>,
    /// When the first and the last user's first click were sent.
    pub(crate) first_send_us: u64,
    pub(crate) last_send_us: u64,
    pub(crate) last_answer_us: u64,
    /// CPU time of the thread over the whole storm.
    pub(crate) cpu_us: u64,
    /// The share of the time until the last first attempt in which the thread ran or waited for a
    /// core, 0 to 1.
    pub(crate) busy: f64,
    pub(crate) gone: u64,
    /// The last body of a 410 and its word: the static refusals are all alike.
    last_gone: (Bytes, Word),
}

impl Tally {
    pub(crate) fn new(users: usize) -> Self {
        Self {
            words: Words::new(),
            finals: vec![NONE; users],
            accepted: Vec::new(),
            held: Vec::new(),
            answers: Vec::new(),
            timeline: Timeline::default(),
            broken: 0,
            timed_out: 0,
            retries: 0,
            send_lag: new_histogram(),
            first_send_us: u64::MAX,
            last_send_us: 0,
            last_answer_us: 0,
            cpu_us: 0,
            busy: 0.0,
            gone: 0,
            last_gone: (Bytes::new(), NONE),
        }
    }

    /// Notes that a connection has taken a click to send it.
    pub(crate) fn taken(&mut self, click: Click, now_us: u64) {
        if click.retries > 0 {
            self.retries += 1;
            return;
        }
        let lag_us = now_us.saturating_sub(u64::from(click.at_us));
        self.send_lag.saturating_record(lag_us);
        // Second clicks come after the window, so they say nothing about its rate.
        if !click.second {
            self.first_send_us = self.first_send_us.min(now_us);
            self.last_send_us = now_us;
        }
    }

    /// Counts one answer; `latency_us` is measured from the click's intended moment.
    pub(crate) fn answered(&mut self, status: u16, latency_us: u64, now_us: u64) {
        self.last_answer_us = now_us;
        let place = self.answers.iter().position(|(code, _)| *code == status);
        let place = place.unwrap_or_else(|| {
            self.answers.push((status, new_histogram()));
            self.answers.len() - 1
        });
        self.answers[place].1.saturating_record(latency_us);
        self.timeline.count(status, now_us);
    }

    /// The word of a 410, without parsing it when it is the same body as the last one.
    pub(crate) fn gone_word(&mut self, body: &Bytes) -> Word {
        self.gone += 1;
        if self.last_gone.1 == NONE || self.last_gone.0 != *body {
            let word = self.words.index(error_word(body).unwrap_or("INVALID"));
            self.last_gone = (body.clone(), word);
        }
        self.last_gone.1
    }

    /// Notes how a click of the user at `place` ended. Of a user's two clicks an order outranks
    /// any refusal, and of two refusals the later one stands.
    pub(crate) fn ended(&mut self, place: usize, word: Word) {
        let Some(old) = self.finals.get_mut(place) else {
            return;
        };
        let has_order = |word| matches!(word, ACCEPTED | HELD);
        if *old == ACCEPTED || (*old == HELD && !has_order(word)) {
            return;
        }
        *old = word;
    }
}

/// Finds the value of `"error"` in a problem document without reading the rest.
///
/// Only words of capitals, digits and underscores count, so an `"error"` inside another text
/// cannot be taken for one without being spelled exactly like it.
fn error_word(body: &[u8]) -> Option<&str> {
    const NAME: &[u8] = b"\"error\"";
    let at = body.windows(NAME.len()).position(|window| window == NAME)?;
    let rest = body[at + NAME.len()..].trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let word = &rest[..end];
    let plain = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    if word.is_empty() || !word.iter().all(plain) {
        return None;
    }
    std::str::from_utf8(word).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{ACCEPTED, HELD, Tally, error_word};

    #[test]
    fn error_word_is_found_or_refused() {
        for (body, word) in [
            (&br#"{"error":"SOLD_OUT","mayReturn":true}"#[..], Some("SOLD_OUT")),
            (br#"{"title":"x", "error" : "ENDED"}"#, Some("ENDED")),
            (br#"{"error":"sold <b>out"}"#, None),
            (br#"{"error":"SOLD_OUT"#, None),
            (br#"{"error":42}"#, None),
            (b"<html>gone</html>", None),
            (b"", None),
        ] {
            assert_eq!(error_word(body), word, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn order_outranks_refusals_and_the_later_refusal_stands() {
        let mut tally = Tally::new(1);
        let sold_out = tally.gone_word(&Bytes::from_static(br#"{"error":"SOLD_OUT"}"#));
        let ended = tally.gone_word(&Bytes::from_static(br#"{"error":"ENDED"}"#));
        for (word, expected) in [
            (sold_out, sold_out),
            (ended, ended),
            (HELD, HELD),
            (sold_out, HELD),
            (ACCEPTED, ACCEPTED),
            (HELD, ACCEPTED),
            (ended, ACCEPTED),
        ] {
            tally.ended(0, word);
            assert_eq!(tally.finals[0], expected);
        }
        tally.ended(9, ended);
        assert_eq!(tally.gone, 2);
    }

    #[test]
    fn words_are_bounded() {
        let mut tally = Tally::new(0);
        for n in 0..1_000 {
            tally.words.index(&format!("WORD_{n}"));
        }
        let other = tally.words.index("ONE_MORE");
        assert_eq!(tally.words.text(other), "OTHER");
        let long = tally.words.index(&"A".repeat(65));
        assert_eq!(tally.words.text(long), "OTHER");
    }
}
