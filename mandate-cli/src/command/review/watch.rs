//! `mandate review watch`: a full-screen queue of what waits for a person, with one-key answers.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod screen;
mod worker;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use mandate_core::api_key::KeyClass;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::worker::{Answer, Order, Report};
use crate::args::Global;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::service::Service;

/// How long a key is waited for before the screen is drawn again.
const FRAME: Duration = Duration::from_millis(50);
/// How often it is looked whether the terminal is still there, and how long the loop then has to end by itself.
const WATCHDOG: Duration = Duration::from_secs(1);
/// The longest reason that the service keeps, in characters.
const MAX_REASON: usize = 500;

/// Answer what waits for a person on one screen: each request with its mandate; a approves, d denies
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate review watch
  mandate review watch --profile live --refresh 30

Keys: up and down or k and j choose, a approves, d denies and asks why, r looks again, q ends.
In a live environment each answer is confirmed with y.")]
pub(crate) struct Watch {
    /// How long to wait between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    refresh: u64,
    #[command(flatten)]
    service: Service,
}

/// What the screen shows.
struct Queue {
    live: bool,
    address: String,
    /// Decisions that wait, oldest first, as the service tells of them.
    waiting: Vec<String>,
    /// The mandates concerned, by id.
    mandates: BTreeMap<String, String>,
    /// The review that is chosen.
    chosen: Option<String>,
    asking: Asking,
    message: String,
    looked: bool,
}

/// What is being asked of the person.
enum Asking {
    /// For a choice.
    Nothing,
    /// Why it is denied.
    Reason(String),
    /// Whether the answer is meant.
    Confirmation(Answer),
}

/// What a key leads to.
enum Step {
    GoOn,
    Give(Order),
    End(Exit),
}

impl Watch {
    pub(super) fn run(&self, global: &Global) -> Result<Exit, Failure> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Err(Failure::new(Exit::Usage, "the queue needs a terminal")
                .next("elsewhere, use mandate review list, approve and deny"));
        }
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let access = client.access();
        let mut queue = Queue::new(access.is_live(), access.base.to_string());
        let (orders, reports) = worker::start(client, Duration::from_secs(self.refresh));
        let asked_to_end = on_signal()?;
        end_without_a_terminal(Arc::clone(&asked_to_end));
        let mut terminal = ratatui::try_init()
            .map_err(|e| Failure::new(Exit::Io, format!("the terminal cannot be used: {e}")))?;
        let _restored = Restored;
        let ended = queue.watch(&mut terminal, &orders, &reports, &asked_to_end);
        if !stdin().is_terminal() {
            // Its end would write to the terminal that is gone, and panic.
            std::mem::forget(terminal);
            return Ok(Exit::Interrupted);
        }
        ended
    }
}

/// Gives the terminal back as it was, however the queue ends: ratatui's own hook does so before a panic is told of.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // A terminal that is gone cannot be told, and there is nobody to tell.
        let _ = ratatui::try_restore();
    }
}

/// Has a signal that asks the process to end, as SIGTERM, end the loop, so that the terminal is given back. Ctrl-C is a key here.
fn on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    ctrlc::set_handler(move || flag.store(true, Ordering::Release))
        .map_err(|e| Failure::new(Exit::Io, format!("signals cannot be listened for: {e}")))?;
    Ok(asked)
}

/// Ends the process where its loop cannot: crossterm goes on reading from a terminal that is gone, and never comes back.
fn end_without_a_terminal(asked_to_end: Arc<AtomicBool>) {
    thread::spawn(move || {
        while stdin().is_terminal() && !asked_to_end.load(Ordering::Acquire) {
            thread::sleep(WATCHDOG);
        }
        thread::sleep(WATCHDOG);
        let _ = ratatui::try_restore();
        std::process::exit(i32::from(Exit::Interrupted as u8));
    });
}

impl Queue {
    fn new(live: bool, address: String) -> Self {
        Self {
            live,
            address,
            waiting: Vec::new(),
            mandates: BTreeMap::new(),
            chosen: None,
            asking: Asking::Nothing,
            message: String::new(),
            looked: false,
        }
    }

    fn watch(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        orders: &Sender<Order>,
        reports: &Receiver<Report>,
        asked_to_end: &AtomicBool,
    ) -> Result<Exit, Failure> {
        let broken = |e: std::io::Error| Failure::new(Exit::Io, format!("the terminal cannot be used: {e}"));
        loop {
            loop {
                match reports.try_recv() {
                    Ok(report) => self.hear(report)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err(gone()),
                }
            }
            if asked_to_end.load(Ordering::Acquire) {
                return Ok(Exit::Interrupted);
            }
            terminal.draw(|frame| screen::draw(self, frame)).map_err(broken)?;
            if !event::poll(FRAME).map_err(broken)? {
                continue;
            }
            let Event::Key(key) = event::read().map_err(broken)? else { continue };
            match if key.kind == KeyEventKind::Release { Step::GoOn } else { self.press(key) } {
                Step::GoOn => {}
                Step::Give(order) => {
                    "asking the service ...".clone_into(&mut self.message);
                    orders.send(order).map_err(|_| gone())?;
                }
                Step::End(exit) => return Ok(exit),
            }
        }
    }

    /// Takes in what the service said. A key that it does not take ends the watch.
    fn hear(&mut self, report: Report) -> Result<(), Failure> {
        match report {
            Report::Waiting { waiting, mandates, told } => {
                let at = self.position();
                (self.waiting, self.mandates, self.looked) = (waiting, mandates, true);
                if self.position().is_none() {
                    let last = self.waiting.len().saturating_sub(1);
                    let near = self.waiting.get(at.unwrap_or_default().min(last));
                    self.chosen = near.and_then(|decision| review_of(decision));
                    // What was asked was about the one that is gone.
                    self.asking = Asking::Nothing;
                }
                if let Some(told) = told {
                    self.message = told;
                }
            }
            Report::Failed(failure)
                if !self.looked && matches!(failure.exit, Exit::Unauthorized | Exit::Forbidden) =>
            {
                return Err(failure);
            }
            Report::Failed(failure) => self.message = format!("failed: {}", failure.message()),
        }
        Ok(())
    }

    /// Where the chosen review stands.
    fn position(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.waiting.iter().position(|decision| review_of(decision).as_ref() == Some(chosen))
    }

    fn choose(&mut self, at: usize) {
        if let Some(decision) = self.waiting.get(at) {
            self.chosen = review_of(decision);
        }
    }

    fn press(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::End(Exit::Interrupted);
        }
        match std::mem::replace(&mut self.asking, Asking::Nothing) {
            Asking::Nothing => self.command(key.code),
            Asking::Reason(reason) => self.edit(reason, key.code),
            Asking::Confirmation(answer) if key.code == KeyCode::Char('y') => {
                Step::Give(Order::Resolve(answer))
            }
            Asking::Confirmation(_) => {
                "nothing was done".clone_into(&mut self.message);
                Step::GoOn
            }
        }
    }

    fn command(&mut self, key: KeyCode) -> Step {
        let at = self.position().unwrap_or_default();
        match key {
            KeyCode::Char('q') => return Step::End(Exit::Success),
            KeyCode::Char('r') => return Step::Give(Order::Look),
            KeyCode::Up | KeyCode::Char('k') => self.choose(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(at.saturating_add(1)),
            KeyCode::Char('a') => return self.answer(None),
            KeyCode::Char('d') if self.chosen.is_some() => self.asking = Asking::Reason(String::new()),
            _ => {}
        }
        Step::GoOn
    }

    fn edit(&mut self, mut reason: String, key: KeyCode) -> Step {
        match key {
            KeyCode::Enter => return self.answer(Some(reason)),
            KeyCode::Esc => return Step::GoOn,
            KeyCode::Backspace => {
                reason.pop();
            }
            KeyCode::Char(c) if reason.chars().count() < MAX_REASON => reason.push(c),
            _ => {}
        }
        self.asking = Asking::Reason(reason);
        Step::GoOn
    }

    /// Approves, or denies with a reason, which can be empty.
    fn answer(&mut self, denied: Option<String>) -> Step {
        let Some(review) = self.chosen.clone() else { return Step::GoOn };
        let answer = Answer { review, denied };
        if self.live {
            self.asking = Asking::Confirmation(answer);
            return Step::GoOn;
        }
        Step::Give(Order::Resolve(answer))
    }
}

/// The thread that talks to the service has ended, which it never does of its own.
fn gone() -> Failure {
    Failure::new(Exit::Io, "the connection has ended")
        .next("run the command again; what was answered is kept")
}

fn review_of(decision: &str) -> Option<String> {
    fields::text(decision, "review.id")
}
