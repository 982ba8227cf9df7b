//! Waits for what is to happen. A wait that comes to its deadline is a failed test.

use std::time::{Duration, Instant};

/// How long anything that a test waits for may take.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Asks until there is an answer, for `deadline` at most. `what` is waited for.
#[track_caller]
pub fn until<T>(deadline: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < deadline, "not within {deadline:?}: {what}");
        std::thread::yield_now();
    }
}

/// The same for what is asked asynchronously.
pub async fn until_async<T>(deadline: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(began.elapsed() < deadline, "not within {deadline:?}: {what}");
        tokio::task::yield_now().await;
    }
}
