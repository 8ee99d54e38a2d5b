//! Looks again and again at the files of the listeners' certificates, and shows new connections a new
//! pair. What was good stays until something better comes.
//!
//! One step reads each pair once, off the runtime's threads. It goes by what is in the files, not by
//! their times: a renewal may swap symbolic links, and a copy may keep an old time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::clock::{Clock, Timestamp};
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::workers::{Step, Worker};

use super::{Pair, Shown};

/// Time between two looks: a few small files, so that nobody needs to tell the server of a renewal.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// So many looks in a row must find the files unusable before it is told: a renewal writes them one after
/// the other, and is no fault.
const LOOKS_UNTIL_TOLD: u32 = 2;

/// What one look at a listener's files brings to the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing that was not said before.
    None,
    /// A new pair is shown.
    Taken(Timestamp),
    /// The files cannot be used, and why.
    Unusable(String),
    /// They can be used again, and are what is shown.
    Mended,
}

/// One listener's files, as the looks found them.
pub(super) struct Looked {
    pub(super) shown: Arc<Shown>,
    /// Looks in a row that found the files unusable.
    bad: u32,
    /// Why, as it was told last.
    told: Option<String>,
}

impl Looked {
    pub(super) fn at(shown: &Arc<Shown>) -> Self {
        Self { shown: Arc::clone(shown), bad: 0, told: None }
    }

    /// Goes by what a look found.
    pub(super) fn judge(&mut self, found: anyhow::Result<Pair>, now: Timestamp) -> News {
        let is_new = |pair: &Pair| !pair.is_same_as(&self.shown.pair());
        let found = match found {
            Ok(pair) if is_new(&pair) && pair.own_end() <= now => {
                Err(format!("it is over since {}: renew it", crate::views::time(pair.own_end())))
            }
            Ok(pair) => Ok(pair),
            Err(error) => Err(format!("{error:#}")),
        };
        self.shown.unusable.store(found.is_err(), Ordering::Relaxed);
        match found {
            Ok(pair) => {
                let was_told = self.told.take().is_some();
                self.bad = 0;
                if is_new(&pair) {
                    let ends = pair.ends();
                    self.shown.pair.store(Arc::new(pair));
                    return News::Taken(ends);
                }
                if was_told { News::Mended } else { News::None }
            }
            Err(why) => {
                self.bad = self.bad.saturating_add(1);
                if self.bad < LOOKS_UNTIL_TOLD || self.told.as_ref() == Some(&why) {
                    return News::None;
                }
                self.told = Some(why.clone());
                News::Unusable(why)
            }
        }
    }
}

/// Takes new certificates while the listeners serve.
pub(crate) struct Renewer {
    looked: Vec<Looked>,
    clock: Arc<dyn Clock>,
}

impl Renewer {
    /// For what these listeners show; `None` where no listener has TLS.
    pub(crate) fn of(shown: &[Arc<Shown>], clock: &Arc<dyn Clock>) -> Option<Self> {
        let looked: Vec<_> = shown.iter().map(Looked::at).collect();
        (!looked.is_empty()).then(|| Self { looked, clock: Arc::clone(clock) })
    }
}

#[async_trait]
impl Worker for Renewer {
    fn name(&self) -> &'static str {
        "renewer"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let mut taken = 0;
        for looked in &mut self.looked {
            let files = looked.shown.files.clone();
            let found = tokio::task::spawn_blocking(move || files.read()).await;
            let news = looked.judge(found.unwrap_or_else(|error| Err(error.into())), self.clock.now());
            let listener = looked.shown.listener;
            match news {
                News::None => {}
                News::Taken(ends) => {
                    taken += 1;
                    let ends = crate::views::time(ends);
                    tracing::info!(
                        listener,
                        certificate.ends = ends,
                        "new connections are shown a new certificate"
                    );
                }
                News::Unusable(why) => {
                    let section = looked.shown.files.section;
                    tracing::error!(
                        listener,
                        why,
                        "the certificate in {section} cannot be used and the last good one is still shown: mend the \
                         files, which are looked at again without a restart"
                    );
                }
                News::Mended => tracing::info!(listener, "the certificate's files can be used again"),
            }
        }
        Ok(Step::of(taken))
    }
}
