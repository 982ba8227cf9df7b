//! The queue's connection to the service, on a thread of its own: a slow answer holds up no key.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::Payment;
use crate::client::{Client, Paging, Walk};
use crate::exit::Failure;
use crate::fields;

/// More than these are not shown at once.
const MOST: u32 = 500;

/// A person's answer to a review.
pub(super) struct Answer {
    pub(super) payment: Payment,
    /// Denied, with this reason, which can be empty.
    pub(super) denied: Option<String>,
}

/// What the service is to be asked.
pub(super) enum Order {
    /// What waits.
    Look,
    /// Fetch this mandate, now and with each refresh, until another is selected.
    Choose(Option<String>),
    /// To take an answer.
    Resolve(Answer),
}

/// What the service said.
pub(super) enum Report {
    /// What waits, oldest first.
    Waiting(Vec<String>),
    /// The current state of the selected request's mandate.
    Mandate { id: String, mandate: String },
    /// What became of an answer.
    Message(String),
    /// It said no, or nothing.
    Failed(Failure),
}

struct Worker {
    client: Client,
    reports: Sender<Report>,
    /// The mandate of what is chosen.
    chosen: Option<String>,
}

/// Starts looking, now and whenever so much time has passed. Ends when the sender of orders is dropped.
pub(super) fn start(client: Client, refresh: Duration) -> (Sender<Order>, Receiver<Report>) {
    let (orders, to_do) = mpsc::channel();
    let (sender, reports) = mpsc::channel();
    thread::spawn(move || Worker { client, reports: sender, chosen: None }.work(&to_do, refresh));
    (orders, reports)
}

impl Worker {
    fn work(mut self, to_do: &Receiver<Order>, refresh: Duration) {
        let mut next_look = Instant::now();
        loop {
            let mut order = match to_do.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => Order::Look,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // Of many choices in a row the last one counts.
            while let Order::Choose(mandate) = &order {
                self.chosen.clone_from(mandate);
                match to_do.try_recv() {
                    Ok(next) => order = next,
                    Err(_) => break,
                }
            }
            let looks = !matches!(order, Order::Choose(_));
            if let Err(failure) = self.carry_out(&order) {
                self.report(Report::Failed(failure));
            }
            if looks {
                next_look = Instant::now().checked_add(refresh).unwrap_or(next_look);
            }
        }
    }

    /// A closed channel shows at the wait for the next order.
    fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    fn carry_out(&self, order: &Order) -> Result<(), Failure> {
        match order {
            Order::Choose(_) => return self.mandate(),
            Order::Look => {}
            Order::Resolve(answer) => {
                // The answer alone is reported here: a failed refresh shows at the next one.
                let report = self.resolve(answer).map_or_else(Report::Failed, Report::Message);
                if let Ok(waiting) = self.waiting() {
                    self.report(Report::Waiting(waiting));
                }
                self.report(report);
                return Ok(());
            }
        }
        let waiting = self.waiting()?;
        self.report(Report::Waiting(waiting));
        self.mandate()
    }

    /// Reads the mandate of what is chosen: it may have been revoked since.
    fn mandate(&self) -> Result<(), Failure> {
        if let Some(id) = &self.chosen {
            let mandate = self.client.get(&format!("/mandates/{id}"), &[])?;
            self.report(Report::Mandate { id: id.clone(), mandate });
        }
        Ok(())
    }

    fn waiting(&self) -> Result<Vec<String>, Failure> {
        let filters = vec![("review", "pending".to_owned())];
        let paging = Paging { limit: MOST, all: false };
        let mut walk = Walk::new(&self.client, "/decisions", Some("jti"), filters, &paging);
        let mut waiting = Vec::new();
        while let Some(page) = walk.page()? {
            waiting.extend(page.iter().map(|decision| decision.get().to_owned()));
        }
        waiting.reverse();
        Ok(waiting)
    }

    fn resolve(&self, answer: &Answer) -> Result<String, Failure> {
        // Each answer is a change of its own, under an idempotency key of its own.
        let client = self.client.afresh()?;
        let review = &answer.payment.review;
        let Some(reason) = &answer.denied else {
            let fresh = client.post(&format!("/reviews/{review}/approve"), None)?;
            let verdict = fields::text(&fresh, "verdict").unwrap_or_default();
            let reason =
                fields::text(&fresh, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
            return Ok(format!("approved {review}: {verdict}{reason}"));
        };
        let body = (!reason.is_empty()).then(|| serde_json::json!({ "reason": reason }).to_string());
        client.post(&format!("/reviews/{review}/deny"), body.as_deref())?;
        Ok(format!("denied {review}"))
    }
}
