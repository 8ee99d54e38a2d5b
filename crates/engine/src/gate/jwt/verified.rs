//! Tokens that were verified, so that a signature by a private key is checked once. A table of a fixed
//! size: whoever shows many tokens drives out others' entries, and costs no memory.

use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::Span;
use crate::member::Known;

/// How many tokens are remembered; about 100 bytes each.
const SLOTS: usize = 1 << 16;

/// The tokens. Only who has a good token gets one in.
pub(super) struct Verified(Box<[Mutex<Option<Entry>>]>);

struct Entry {
    token: Name,
    /// The set of keys that it was verified with: what an older one said counts no more.
    generation: u64,
    known: Known,
    span: Span,
}

/// A token's hash, which nobody can choose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name([u8; 32]);

impl Name {
    pub(super) fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl Default for Verified {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl Verified {
    fn slot(&self, name: Name) -> &Mutex<Option<Entry>> {
        &self.0[usize::from(u16::from_le_bytes([name.0[0], name.0[1]])) % SLOTS]
    }

    /// What the token tells and when it counts, if it was verified with this generation of keys.
    pub(super) fn get(&self, name: Name, generation: u64) -> Option<(Known, Span)> {
        let slot = self.slot(name).lock().unwrap_or_else(PoisonError::into_inner);
        let entry = slot.as_ref().filter(|entry| entry.token == name && entry.generation == generation)?;
        Some((entry.known.clone(), entry.span))
    }

    pub(super) fn put(&self, name: Name, generation: u64, known: Known, span: Span) {
        let entry = Entry { token: name, generation, known, span };
        *self.slot(name).lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }
}
