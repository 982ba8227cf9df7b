//! What the operating system tells a server to do.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Fault;

/// The sign to stop: Ctrl-C, or SIGTERM. A signal that arrives before it is waited for is not lost.
#[derive(Debug)]
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Begins to listen for the sign, which from now on does not end the process by itself.
    ///
    /// # Errors
    /// The operating system does not deliver signals.
    pub fn listen() -> Result<Self, Fault> {
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the sign.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The sign to look at what may have changed: SIGHUP, which then no longer ends the process.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    /// Begins to listen for the sign.
    ///
    /// # Errors
    /// The operating system does not deliver signals.
    pub fn listen() -> Result<Self, Fault> {
        listen(SignalKind::hangup()).map(Self)
    }

    /// Waits for the sign.
    pub async fn received(&mut self) {
        self.0.recv().await;
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Fault> {
    signal(kind).map_err(|e| Fault::new(format!("signals cannot be received: {e}")))
}
