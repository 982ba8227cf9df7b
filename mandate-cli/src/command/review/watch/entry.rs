//! What a person types into the queue: the reason of a denial, a search, a filter.

use ratatui::crossterm::event::KeyCode;

use super::worker::Answer;
use super::{Asking, NOTHING_DONE, Payment, Queue, Step};
use crate::fields;

/// The longest reason that the service accepts, in characters; no other text is longer.
const MAX_CHARS: usize = 500;
/// What a search and a filter look at.
const SEARCHED: [&str; 6] = [
    "request.amount",
    "request.currency",
    "request.agent",
    "request.recipient",
    "request.category",
    "review.id",
];

/// What a text is typed for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// To deny this payment.
    Reason(Payment),
    /// To select the next request that contains it.
    Search,
    /// To show only the requests that contain it.
    Filter,
}

impl Queue {
    /// The waiting requests that the filter lets through, oldest first.
    pub(super) fn shown(&self) -> Vec<&String> {
        self.waiting.iter().filter(|decision| contains(decision, &self.filter)).collect()
    }

    /// A key while a text is typed.
    pub(super) fn edit(&mut self, entry: Entry, mut text: String, key: KeyCode) -> Step {
        match key {
            KeyCode::Enter => return self.entered(entry, text),
            KeyCode::Esc => return self.left(&entry),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(c) if text.chars().count() < MAX_CHARS => text.push(c),
            _ => {}
        }
        self.asking = Asking::Text(entry, text);
        Step::GoOn
    }

    fn entered(&mut self, entry: Entry, text: String) -> Step {
        match entry {
            Entry::Reason(payment) if self.is_gone(&payment) => self.give_up(),
            Entry::Reason(payment) => self.answer(Answer { payment, denied: Some(text) }),
            Entry::Search => {
                self.search = text;
                self.ask(Asking::Nothing);
                self.find_next()
            }
            Entry::Filter => {
                self.filter = text;
                self.message.clear();
                self.ask(Asking::Nothing);
                // What is not shown is not selected.
                if self.chosen.is_some() && self.position().is_none() { self.unchoose() } else { Step::GoOn }
            }
        }
    }

    /// Leaves a text without its effect.
    fn left(&mut self, entry: &Entry) -> Step {
        match entry {
            Entry::Reason(_) => NOTHING_DONE.clone_into(&mut self.message),
            Entry::Search | Entry::Filter => {}
        }
        self.ask(Asking::Nothing)
    }

    /// Selects the next request that contains what was searched for.
    pub(super) fn find_next(&mut self) -> Step {
        let (shown, from) = (self.shown(), self.position().map_or(0, |at| at.saturating_add(1)));
        let count = shown.len();
        let next = (from..from.saturating_add(count))
            .filter_map(|at| at.checked_rem(count))
            .find(|at| shown.get(*at).is_some_and(|decision| contains(decision, &self.search)));
        match next {
            Some(at) if !self.search.is_empty() => self.choose(at),
            _ => {
                self.message = format!("nothing contains `{}`", self.search);
                Step::GoOn
            }
        }
    }

    /// Pasted text becomes part of what is typed, or is ignored.
    pub(super) fn paste(&mut self, pasted: &str) -> Step {
        if let Asking::Text(_, text) = &mut self.asking {
            let room = MAX_CHARS.saturating_sub(text.chars().count());
            text.extend(pasted.chars().map(|c| if c.is_control() { ' ' } else { c }).take(room));
        }
        Step::GoOn
    }
}

/// Whether a request contains a text, whatever its case.
fn contains(decision: &str, text: &str) -> bool {
    let text = text.to_lowercase();
    let holds =
        |path: &&str| fields::text(decision, path).is_some_and(|value| value.to_lowercase().contains(&text));
    text.is_empty() || SEARCHED.iter().any(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_by_what_is_shown_of_it() {
        let decision = r#"{"request":{"amount":300,"currency":"USD","agent":"agt_buyer","recipient":"vendor:Acme",
            "category":"software"},"review":{"id":"rev_01hf7yat000000000000000007"},"verdict_token":"xyz"}"#;
        for text in ["", "300", "usd", "BUYER", "acme", "soft", "0007"] {
            assert!(contains(decision, text), "{text}");
        }
        for text in ["301", "xyz", "vendor:b"] {
            assert!(!contains(decision, text), "{text}");
        }
    }
}
