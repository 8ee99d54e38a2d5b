//! One frame of the embedded log.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | payload length |
//! | 4 | CRC32C of everything else in the frame |
//! | 8 | offset of this record |
//! | 8 | the durable end when this frame was written: every smaller offset had been fsynced |
//! | 8 | when it was written, milliseconds since the epoch |
//! | n | payload |
//!
//! All numbers are little-endian.

use crate::clock::Timestamp;
use crate::queue::message::MESSAGE_MAX;

/// Bytes before the payload.
pub(super) const HEADER: usize = 32;

/// One record with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) offset: u64,
    pub(super) durable_end: u64,
    pub(super) appended_at: Timestamp,
    pub(super) payload: &'a [u8],
}

impl Frame<'_> {
    /// Appends this frame's bytes to `out`.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let length = u32::try_from(self.payload.len()).expect("a message is at most MESSAGE_MAX bytes");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.durable_end.to_le_bytes());
        out.extend_from_slice(&self.appended_at.as_ms().to_le_bytes());
        out.extend_from_slice(self.payload);
        let crc = checksum(&out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Bytes of the whole frame.
    pub(super) fn size(&self) -> usize {
        HEADER + self.payload.len()
    }
}

/// The frame at the start of `bytes`, if a whole and sound one is there.
pub(super) fn read(bytes: &[u8]) -> Option<Frame<'_>> {
    let header = bytes.get(..HEADER)?;
    let length = u32_at(header, 0) as usize;
    if length > MESSAGE_MAX {
        return None;
    }
    let frame = bytes.get(..HEADER + length)?;
    if u32_at(header, 4) != checksum(frame) {
        return None;
    }
    Some(Frame {
        offset: u64_at(header, 8),
        durable_end: u64_at(header, 16),
        appended_at: Timestamp::from_ms(i64::from_le_bytes(u64_at(header, 24).to_le_bytes())),
        payload: &frame[HEADER..],
    })
}

/// Whether a sound frame stands anywhere in `bytes` that says `offset` was durable before it.
pub(super) fn any_calls_durable(bytes: &[u8], offset: u64) -> bool {
    (0..(bytes.len() + 1).saturating_sub(HEADER)).any(|start| {
        // The two cheap tests first: the checksum is needed at almost no place.
        let rest = &bytes[start..];
        u64_at(rest, 8) > offset
            && u64_at(rest, 16) > offset
            && u64_at(rest, 16) <= u64_at(rest, 8)
            && read(rest).is_some()
    })
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..4]), &frame[8..])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut array = [0; 4];
    array.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(array)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(offset: u64, durable_end: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Frame { offset, durable_end, appended_at: Timestamp::from_ms(-5), payload }.write_to(&mut out);
        out
    }

    proptest! {
        #[test]
        fn a_frame_reads_back_as_it_was_written(offset: u64, durable_end: u64, payload: Vec<u8>, tail: Vec<u8>) {
            let mut bytes = bytes_of(offset, durable_end, &payload);
            bytes.extend(tail);
            let frame = read(&bytes).unwrap();
            prop_assert_eq!((frame.offset, frame.durable_end, frame.payload), (offset, durable_end, &payload[..]));
        }

        #[test]
        fn a_changed_or_cut_frame_is_not_read(payload: Vec<u8>, at: prop::sample::Index, bit in 0..8_u8) {
            let good = bytes_of(3, 1, &payload);
            let cut = at.index(good.len());
            prop_assert_eq!(read(&good[..cut]), None);
            let mut bad = good.clone();
            bad[cut] ^= 1 << bit;
            prop_assert_eq!(read(&bad), None);
        }

        #[test]
        fn any_bytes_have_an_answer(bytes: Vec<u8>, offset: u64) {
            let _ = read(&bytes);
            let _ = any_calls_durable(&bytes, offset);
        }
    }

    #[test]
    fn a_later_frame_tells_whether_an_earlier_one_was_durable() {
        let mut bytes = vec![0xAA; 77];
        bytes.extend(bytes_of(5, 4, b"later"));
        assert!(any_calls_durable(&bytes, 3));
        assert!(!any_calls_durable(&bytes, 4));
    }
}
