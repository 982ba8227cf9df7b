//! The terminal of the queue: takes the whole screen, and restores it.

use std::io::{self, IsTerminal as _, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;

use crate::exit::{Exit, Failure};

/// How often it is checked whether the terminal is still there; and how long the loop then has to end by
/// itself.
const WATCHDOG: Duration = Duration::from_secs(1);

/// Takes the whole screen. Pasted text then arrives as such, not as keys.
pub(super) fn take() -> io::Result<(DefaultTerminal, Restored)> {
    let taken = (ratatui::try_init()?, Restored);
    execute!(stdout(), EnableBracketedPaste)?;
    Ok(taken)
}

/// Restores the terminal, however the queue ends. ratatui's own hook restores it before a panic is printed.
pub(super) struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // If the terminal is gone, the failure cannot be shown. ratatui::restore would try, and panic.
    let _ = execute!(stdout(), DisableBracketedPaste);
    let _ = ratatui::try_restore();
}

/// Lets a signal such as SIGTERM end the loop, so that the terminal is restored. Ctrl-C is a key here.
pub(super) fn on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    ctrlc::set_handler(move || flag.store(true, Ordering::Release))
        .map_err(|e| Failure::new(Exit::Io, format!("signals cannot be handled: {e}")))?;
    Ok(asked)
}

/// Ends the process when its loop cannot: crossterm keeps reading from a terminal that is gone, and never
/// returns.
pub(super) fn end_without_it(asked_to_end: Arc<AtomicBool>) {
    thread::spawn(move || {
        while stdin().is_terminal() && !asked_to_end.load(Ordering::Acquire) {
            thread::sleep(WATCHDOG);
        }
        thread::sleep(WATCHDOG);
        restore();
        std::process::exit(i32::from(Exit::Interrupted as u8));
    });
}
