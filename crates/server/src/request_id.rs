//! Request ids: a random start per core and a counter, so that making one costs nothing shared.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// One core's maker of request ids.
#[derive(Debug)]
pub(crate) struct RequestIds {
    core: u32,
    next: AtomicU64,
}

/// Names one request in answers and logs: 24 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestId {
    core: u32,
    number: u64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        Self { core: rand::random(), next: AtomicU64::new(rand::random()) }
    }

    pub(crate) fn next(&self) -> RequestId {
        RequestId { core: self.core, number: self.next.fetch_add(1, Ordering::Relaxed) }
    }
}

impl RequestId {
    /// The digits, without allocating.
    pub(crate) fn digits(self) -> [u8; 24] {
        let mut digits = [0; 24];
        let mut value = (u128::from(self.core) << 64) | u128::from(self.number);
        for digit in digits.iter_mut().rev() {
            *digit = b"0123456789abcdef"[(value & 15) as usize];
            value >>= 4;
        }
        digits
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}
