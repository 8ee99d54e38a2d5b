//! A history as lines of JSON: evidence that outlives a failed scenario.
//!
//! Each call is two lines, its beginning and its end, in the order of time: what a reader of the file
//! wants to see is what overlapped.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Call, Ending, History, Wish};

/// Why a history cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnreadableHistory {
    /// The file itself.
    #[error("the history cannot be read")]
    Io(#[from] io::Error),
    /// A line that is no event of a history.
    #[error("line {line} of the history is not an event: {source}")]
    Line {
        /// Counted from one.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An end without a beginning.
    #[error("line {line} of the history ends call {call}, which did not begin")]
    Orphan {
        /// Counted from one.
        line: usize,
        /// The call.
        call: usize,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
enum Line {
    #[serde(rename_all = "camelCase")]
    Invoke { call: usize, at_us: u64, user: String, gateway: usize, wish: Wish },
    #[serde(rename_all = "camelCase")]
    End { call: usize, at_us: u64, with: Ending },
}

impl Line {
    /// When it happened; of two events at one moment the beginning comes first.
    fn order(&self) -> (u64, bool, usize) {
        match self {
            Line::Invoke { call, at_us, .. } => (*at_us, false, *call),
            Line::End { call, at_us, .. } => (*at_us, true, *call),
        }
    }
}

/// Writes `history`, one event per line.
///
/// # Errors
/// What `out` reports.
pub fn write_lines(history: &History, mut out: impl Write) -> io::Result<()> {
    let mut lines = Vec::with_capacity(2 * history.calls.len());
    for (call, it) in history.calls.iter().enumerate() {
        let (user, wish) = (it.user.clone(), it.wish.clone());
        lines.push(Line::Invoke { call, at_us: it.invoked_us, user, gateway: it.gateway, wish });
        if let Some((at_us, ending)) = &it.end {
            lines.push(Line::End { call, at_us: *at_us, with: ending.clone() });
        }
    }
    lines.sort_by_key(Line::order);
    for line in lines {
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Reads what [`write_lines`] wrote.
///
/// # Errors
/// [`UnreadableHistory`].
pub fn read_lines(from: impl BufRead) -> Result<History, UnreadableHistory> {
    let mut history = History::default();
    let mut places: HashMap<usize, usize> = HashMap::new();
    for (index, text) in from.lines().enumerate() {
        let line = index + 1;
        let event =
            serde_json::from_str(&text?).map_err(|source| UnreadableHistory::Line { line, source })?;
        match event {
            Line::Invoke { call, at_us, user, gateway, wish } => {
                places.insert(call, history.calls.len());
                history.calls.push(Call { user, wish, gateway, invoked_us: at_us, end: None });
            }
            Line::End { call, at_us, with } => {
                let place = *places.get(&call).ok_or(UnreadableHistory::Orphan { line, call })?;
                history.calls[place].end = Some((at_us, with));
            }
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Recorder};
    use super::*;
    use crate::{ItemId, OrderId, SaleId};

    fn history() -> History {
        let recorder = Recorder::default();
        let order = OrderId(uuid::Uuid::from_u128(7));
        let wish = Wish::Purchase { sale: SaleId(1), item: ItemId(2), units: 1, key: Some("k".to_owned()) };
        let first = recorder.begin("alice", 0, wish.clone());
        let second = recorder.begin("bob", 1, wish);
        let third = recorder.begin("alice", 0, Wish::Cancel { order });
        let _never_ended = recorder.begin("eve", 0, Wish::Look { order });
        recorder.end(third, Ending::NotSent);
        recorder.end(second, Ending::Unknown);
        let answer = Answer { status: 202, order: Some(order), replayed: true, ..Answer::default() };
        recorder.end(first, Ending::Answered(answer));
        recorder.history()
    }

    #[test]
    fn a_history_reads_back_as_it_was_written() {
        let history = history();
        let mut lines = Vec::new();
        write_lines(&history, &mut lines).unwrap();
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), 7);
        assert_eq!(read_lines(lines.as_slice()).unwrap(), history);
    }

    #[test]
    fn what_is_no_history_is_named_by_its_line() {
        let mut lines = Vec::new();
        write_lines(&history(), &mut lines).unwrap();
        lines.extend(b"{}\n");
        let error = read_lines(lines.as_slice()).unwrap_err().to_string();
        assert!(error.contains("line 8"), "{error}");
        let error = read_lines(&br#"{"event":"end","call":3,"atUs":1,"with":{"ending":"unknown"}}"#[..]);
        assert!(matches!(error, Err(UnreadableHistory::Orphan { line: 1, call: 3 })), "{error:?}");
    }
}
