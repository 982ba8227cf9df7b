//! One thread that does one thing again and again: how often a second, and what processor time it takes each time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Failure;

/// After how many the clock is looked at: seldom enough for what takes nanoseconds.
const AT_A_TIME: u32 = 1_000;

/// What was done in a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    /// Processor time of each.
    pub(crate) cpu_microseconds: f64,
}

impl Pace {
    pub(crate) fn of(count: f64, seconds: f64, cpu_seconds: f64) -> Self {
        Self { per_second: count / seconds, cpu_microseconds: cpu_seconds * 1e6 / count }
    }

    /// Runs it for so many seconds in this thread, and a little beforehand, to warm up. What it gives is computed and thrown away.
    pub(crate) fn keep<T>(
        seconds: u64,
        mut run: impl FnMut() -> Result<T, Failure>,
    ) -> Result<Self, Failure> {
        let mut some = || (0..AT_A_TIME).try_for_each(|_| black_box(run()).map(drop));
        some()?;
        let (start, used, mut count) = (Instant::now(), thread_time()?, 0.0);
        while start.elapsed() < Duration::from_secs(seconds) {
            some()?;
            count += f64::from(AT_A_TIME);
        }
        let (took, used) = (start.elapsed().as_secs_f64(), thread_time()? - used);
        Ok(Self::of(count, took, used))
    }
}

/// The processor time of this thread so far, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a time, to be rounded")]
fn thread_time() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
    Ok(nanoseconds.ok_or("/proc has no time of this thread")? as f64 / 1e9)
}
