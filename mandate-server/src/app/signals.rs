//! The signals of the operating system.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Fault;

/// The signals to stop: SIGINT (Ctrl-C) and SIGTERM. A signal that arrives before the wait is not lost.
#[derive(Debug)]
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Begins to listen. From now on these signals do not end the process by themselves.
    ///
    /// # Errors
    /// The operating system does not deliver signals.
    pub fn listen() -> Result<Self, Fault> {
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for a signal.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for `work`. None if a signal comes first.
    pub async fn unless_received<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.received() => None,
        }
    }
}

/// The signal to read changed files again: SIGHUP. Once listened for, it no longer ends the process.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    /// Begins to listen.
    ///
    /// # Errors
    /// The operating system does not deliver signals.
    pub fn listen() -> Result<Self, Fault> {
        listen(SignalKind::hangup()).map(Self)
    }

    /// Waits for a signal.
    pub async fn received(&mut self) {
        self.0.recv().await;
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Fault> {
    signal(kind).map_err(|e| Fault::new(format!("signals cannot be received: {e}")))
}
