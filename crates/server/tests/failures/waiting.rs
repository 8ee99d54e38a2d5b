//! Waiting for what must come, with a deadline.

use std::time::Duration;

use anyhow::Result;

/// Asks until `condition` is true; says whether it became so within `patience`.
pub(crate) async fn until_async(
    patience: Duration,
    mut condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<bool> {
    let asking = async {
        let mut pace = tokio::time::interval(Duration::from_millis(25));
        loop {
            pace.tick().await;
            if condition().await? {
                return Ok(true);
            }
        }
    };
    tokio::time::timeout(patience, asking).await.unwrap_or(Ok(false))
}

/// Lets real time pass: for faults that last, never to wait for something.
pub(crate) async fn lasting(time: Duration) {
    // The timeout is the pause: nothing ever comes.
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}
