//! `mandate review watch`: a full-screen queue of pending reviews, with one-key answers.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod details;
mod entry;
mod fitted;
mod screen;
mod terminal;
mod worker;

use std::io::{self, IsTerminal as _, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use mandate_core::AgentId;
use mandate_core::api_key::KeyClass;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::entry::Entry;
use self::worker::{Answer, Order, Report};
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::service::Service;

/// How long to wait for a key before the screen is drawn again.
const FRAME: Duration = Duration::from_millis(50);
/// How long a selection or a question must be on the screen, without a key, before a key can answer it. An
/// earlier key was pressed before the person could read it.
const SETTLE: Duration = Duration::from_millis(300);
const ASKING: &str = "asking the service ...";
const NOTHING_DONE: &str = "nothing was done";
const GONE: &str = "the selected review is gone: it was resolved elsewhere, or has expired";

/// Approve or deny pending reviews on one screen, each beside the mandate of its agent
///
/// Beside a request are the mandate that governs its agent now, under which an approval decides, what is left of the
/// month after it, and what its agent paid lately, to the same recipient first. Only the arrow keys and a search change
/// the selection. After the selected review is resolved, here or elsewhere, nothing is selected.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate review watch
  mandate review watch --profile live --refresh 30

Keys: up/down or k/j select, a approves, d denies and asks for a reason, / searches, n finds the next, f filters, \
r refreshes, ? explains all, q quits.
In a live environment, y confirms each answer. A key that follows a change on the screen too soon is ignored.")]
pub(crate) struct Watch {
    /// The time between two refreshes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    refresh: u64,
    #[command(flatten)]
    service: Service,
}

/// A waiting request, as it was shown when it was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Payment {
    review: String,
    agent: AgentId,
    decision: String,
}

/// What the screen shows.
struct Queue {
    live: bool,
    address: String,
    /// The environment's mode, once it was read.
    mode: String,
    /// Waiting decisions, oldest first, as the service lists them.
    waiting: Vec<String>,
    chosen: Option<Payment>,
    /// The position of the selected one, or its last position.
    place: usize,
    /// The mandate that governs the agent of the selected request now, once it was read.
    mandate: Option<String>,
    /// The month of its agent, once it was read.
    usage: Option<String>,
    /// What its agent paid among its last decisions, newest first, once it was read.
    paid: Option<Vec<String>>,
    /// What a request must contain to be shown.
    filter: String,
    /// What was searched for.
    search: String,
    asking: Asking,
    /// Since when selection and question are on the screen without an early key. None until they are drawn.
    settling_since: Option<Instant>,
    message: String,
    /// Why the service was last asked in vain. Empty once it answers again.
    trouble: String,
    looked: bool,
    /// How high the parts of the screen were the last time.
    heights: screen::Heights,
}

/// What the person is asked.
enum Asking {
    /// To select.
    Nothing,
    /// For a text: the reason of a denial, or what to look for.
    Text(Entry, String),
    /// For a confirmation.
    Confirmation(Answer),
    /// Nothing: all keys are explained.
    Help,
}

/// The effect of a key.
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
        let asked_to_end = terminal::on_signal()?;
        terminal::end_without_it(Arc::clone(&asked_to_end));
        let (mut terminal, _restored) = terminal::take().map_err(|e| broken(&e))?;
        let ended = queue.watch(&mut terminal, &orders, &reports, &asked_to_end);
        if stdin().is_terminal() {
            return ended;
        }
        // If the terminal is gone, errors are ignored. ratatui's destructor would write to it and panic.
        std::mem::forget(terminal);
        Ok(Exit::Interrupted)
    }
}

impl Payment {
    fn of(decision: &str) -> Option<Self> {
        let agent = AgentId::parse(&fields::text(decision, "request.agent")?).ok()?;
        Some(Self { review: review_of(decision)?, agent, decision: decision.to_owned() })
    }
}

impl Queue {
    fn new(live: bool, address: String) -> Self {
        Self {
            live,
            address,
            mode: String::new(),
            waiting: Vec::new(),
            chosen: None,
            place: 0,
            mandate: None,
            usage: None,
            paid: None,
            filter: String::new(),
            search: String::new(),
            asking: Asking::Nothing,
            settling_since: None,
            message: String::new(),
            trouble: String::new(),
            looked: false,
            heights: [0; 3],
        }
    }

    fn watch(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        orders: &Sender<Order>,
        reports: &Receiver<Report>,
        asked_to_end: &AtomicBool,
    ) -> Result<Exit, Failure> {
        loop {
            loop {
                match reports.try_recv() {
                    Ok(report) => {
                        if let Step::Give(order) = self.handle(report)? {
                            orders.send(order).map_err(|_| gone())?;
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err(gone()),
                }
            }
            if asked_to_end.load(Ordering::Acquire) {
                return Ok(Exit::Interrupted);
            }
            terminal.draw(|frame| screen::draw(self, frame)).map_err(|e| broken(&e))?;
            self.settling_since.get_or_insert_with(Instant::now);
            if !event::poll(FRAME).map_err(|e| broken(&e))? {
                continue;
            }
            let step = match event::read().map_err(|e| broken(&e))? {
                Event::Key(key) if key.kind != KeyEventKind::Release => self.press(key),
                Event::Paste(text) => self.paste(&text),
                _ => Step::GoOn,
            };
            match step {
                Step::GoOn => {}
                Step::Give(order) => orders.send(order).map_err(|_| gone())?,
                Step::End(exit) => return Ok(exit),
            }
        }
    }

    /// Handles a report of the service. A refused key ends the watch.
    fn handle(&mut self, report: Report) -> Result<Step, Failure> {
        match report {
            Report::Waiting(waiting) => {
                let is_first = !self.looked;
                (self.place, self.waiting, self.looked) =
                    (self.position().unwrap_or(self.place), waiting, true);
                self.trouble.clear();
                self.answered();
                if is_first {
                    return Ok(self.choose(0));
                }
                if self.chosen.as_ref().is_some_and(|chosen| self.is_gone(chosen)) {
                    let step = self.unchoose();
                    GONE.clone_into(&mut self.message);
                    return Ok(step);
                }
            }
            Report::Governing { agent, mandate } => {
                if self.chosen.as_ref().is_some_and(|chosen| chosen.agent == agent) {
                    self.mandate = Some(mandate);
                }
            }
            Report::Mode(mode) => self.mode = mode,
            Report::Agent { agent, usage, paid } => {
                if self.chosen.as_ref().is_some_and(|chosen| chosen.agent == agent) {
                    self.usage = Some(usage);
                    self.paid = paid.or(self.paid.take());
                }
            }
            Report::Message(message) => self.message = message,
            Report::Failed(failure)
                if !self.looked && matches!(failure.exit, Exit::Unauthorized | Exit::Forbidden) =>
            {
                return Err(failure);
            }
            Report::Failed(failure) => {
                self.trouble = format!("failed: {}", failure.message());
                self.answered();
            }
        }
        Ok(Step::GoOn)
    }

    /// The service is asked no more.
    fn answered(&mut self) {
        if self.message == ASKING {
            self.message.clear();
        }
    }

    /// The position of the selected review among those that are shown.
    fn position(&self) -> Option<usize> {
        let chosen = &self.chosen.as_ref()?.review;
        self.shown().iter().position(|decision| review_of(decision).as_ref() == Some(chosen))
    }

    /// Whether a review is known to wait no more.
    fn is_gone(&self, payment: &Payment) -> bool {
        self.waiting.iter().all(|decision| review_of(decision).as_ref() != Some(&payment.review))
    }

    /// Whether selection and question have been shown long enough to be answered.
    fn is_settled(&self) -> bool {
        self.settling_since.is_some_and(|since| since.elapsed() >= SETTLE)
    }

    /// Asks something else from now on.
    fn ask(&mut self, asking: Asking) -> Step {
        (self.asking, self.settling_since) = (asking, None);
        Step::GoOn
    }

    fn choose(&mut self, at: usize) -> Step {
        let Some(payment) = self.shown().get(at).and_then(|decision| Payment::of(decision)) else {
            return Step::GoOn;
        };
        if self.chosen.as_ref().is_some_and(|chosen| chosen.review == payment.review) {
            return Step::GoOn;
        }
        let agent = payment.agent.clone();
        (self.chosen, self.place, self.settling_since) = (Some(payment), at, None);
        (self.mandate, self.usage, self.paid) = (None, None, None);
        self.message.clear();
        Step::Give(Order::Choose(Some(agent)))
    }

    /// Clears the selection. A person must select again.
    fn unchoose(&mut self) -> Step {
        self.place = self.position().unwrap_or(self.place);
        (self.chosen, self.mandate) = (None, None);
        Step::Give(Order::Choose(None))
    }

    fn press(&mut self, key: KeyEvent) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::End(Exit::Interrupted);
        }
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            if let (KeyCode::Char('u'), Asking::Text(_, text)) = (key.code, &mut self.asking) {
                text.clear();
            }
            return Step::GoOn;
        }
        match std::mem::replace(&mut self.asking, Asking::Nothing) {
            Asking::Nothing => self.command(key.code),
            Asking::Text(entry, text) => self.edit(entry, text, key.code),
            Asking::Confirmation(answer) => self.confirm(answer, key.code),
            Asking::Help => self.ask(Asking::Nothing),
        }
    }

    fn command(&mut self, key: KeyCode) -> Step {
        match (key, &self.chosen) {
            (KeyCode::Char('q'), _) => Step::End(Exit::Success),
            (KeyCode::Char('r'), _) => {
                ASKING.clone_into(&mut self.message);
                Step::Give(Order::Look)
            }
            // Another review now has the position of the selected one.
            (KeyCode::Up | KeyCode::Down, None) => {
                self.choose(self.place.min(self.shown().len().saturating_sub(1)))
            }
            (KeyCode::Up | KeyCode::Char('k'), Some(_)) => self.choose(self.place.saturating_sub(1)),
            (KeyCode::Down | KeyCode::Char('j'), Some(_)) => self.choose(self.place.saturating_add(1)),
            (KeyCode::Char('a'), Some(chosen)) => {
                let answer = Answer { payment: chosen.clone(), denied: None };
                if self.is_settled() { self.answer(answer) } else { self.too_early() }
            }
            (KeyCode::Char('d'), Some(chosen)) => {
                let asking = Asking::Text(Entry::Reason(chosen.clone()), String::new());
                self.ask(asking)
            }
            (KeyCode::Char('/'), _) => self.ask(Asking::Text(Entry::Search, String::new())),
            (KeyCode::Char('f'), _) => {
                let filter = self.filter.clone();
                self.ask(Asking::Text(Entry::Filter, filter))
            }
            (KeyCode::Char('n'), _) => self.find_next(),
            (KeyCode::Char('?'), _) => self.ask(Asking::Help),
            _ => Step::GoOn,
        }
    }

    /// An early key does nothing, nor do the keys that come with it.
    fn too_early(&mut self) -> Step {
        self.settling_since = Some(Instant::now());
        Step::GoOn
    }

    fn confirm(&mut self, answer: Answer, key: KeyCode) -> Step {
        let is_gone = self.is_gone(&answer.payment);
        match key {
            KeyCode::Esc => return self.give_up(),
            KeyCode::Enter if is_gone => return self.give_up(),
            _ if is_gone => {}
            _ if !self.is_settled() => {
                self.too_early();
            }
            KeyCode::Char('y') => return self.give(answer),
            _ => return self.give_up(),
        }
        self.asking = Asking::Confirmation(answer);
        Step::GoOn
    }

    fn give_up(&mut self) -> Step {
        NOTHING_DONE.clone_into(&mut self.message);
        self.ask(Asking::Nothing)
    }

    /// Approves, or denies with a reason, which can be empty. Asks for confirmation in a live environment.
    fn answer(&mut self, answer: Answer) -> Step {
        if self.live {
            return self.ask(Asking::Confirmation(answer));
        }
        self.give(answer)
    }

    fn give(&mut self, answer: Answer) -> Step {
        self.unchoose();
        ASKING.clone_into(&mut self.message);
        Step::Give(Order::Resolve(answer))
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("the terminal cannot be used: {error}"))
}

/// The thread that talks to the service has ended, which it never does by itself.
fn gone() -> Failure {
    Failure::new(Exit::Io, "the connection has ended")
        .next("run the command again; the answers so far are kept")
}

fn review_of(decision: &str) -> Option<String> {
    fields::text(decision, "review.id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_shown_until_the_service_answers_again() {
        let mut queue = Queue::new(false, String::new());
        let lost = || Report::Failed(Failure::new(Exit::Io, "it cannot be reached"));
        queue.handle(Report::Waiting(Vec::new())).unwrap();
        ASKING.clone_into(&mut queue.message);
        queue.handle(lost()).unwrap();
        assert_eq!((queue.message.as_str(), queue.trouble.as_str()), ("", "failed: it cannot be reached"));
        queue.handle(Report::Message("denied rev_1".to_owned())).unwrap();
        queue.handle(Report::Waiting(Vec::new())).unwrap();
        assert_eq!((queue.message.as_str(), queue.trouble.as_str()), ("denied rev_1", ""));
    }
}
