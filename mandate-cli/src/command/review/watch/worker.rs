//! The queue's connection to the service, on its own thread: a slow answer blocks no key.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use mandate_core::{AgentId, Verdict};
use serde_json::value::RawValue;

use super::Payment;
use crate::client::{Client, Paging, Walk};
use crate::exit::Failure;
use crate::{fields, governed};

/// The most reviews that are shown.
pub(super) const MOST: u32 = 500;

/// How many of an agent's last decisions are looked at.
pub(super) const LATELY: u32 = 200;

/// A person's answer to a review.
pub(super) struct Answer {
    pub(super) payment: Payment,
    /// The reason of a denial, which can be empty. None: approved.
    pub(super) denied: Option<String>,
}

impl Answer {
    /// What is said of an answer that the service did not take, or of which it is not known.
    fn failed(&self, failure: &Failure) -> String {
        let verb = if self.denied.is_some() { "denying" } else { "approving" };
        format!("{verb} {} failed: {}", self.payment.review, failure.message())
    }
}

/// What to ask the service.
pub(super) enum Order {
    /// To list the waiting reviews.
    Look,
    /// Read what governs this agent and its month, now and with each refresh, until another is selected.
    Choose(Option<AgentId>),
    /// To resolve a review.
    Resolve(Answer),
}

/// What the service answered.
pub(super) enum Report {
    /// The waiting decisions, oldest first.
    Waiting(Vec<String>),
    /// The mandate that governs an agent now.
    Governing { agent: AgentId, mandate: String },
    /// The environment's mode.
    Mode(String),
    /// The month of an agent, and, after a selection, what it paid lately.
    Agent { agent: AgentId, usage: String, paid: Option<Vec<String>> },
    /// The result of an answer.
    Message(String),
    /// The service refused, or did not answer.
    Failed(Failure),
}

struct Worker {
    client: Client,
    reports: Sender<Report>,
    /// The agent of the selected request.
    chosen: Option<AgentId>,
}

/// Starts the thread, which refreshes at once and after each interval. It ends when the sender of orders is
/// dropped.
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
            // Of several selections in a row the last one counts.
            while let Order::Choose(agent) = &order {
                self.chosen.clone_from(agent);
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

    /// If the channel is closed, the wait for the next order ends the thread.
    fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    fn carry_out(&self, order: &Order) -> Result<(), Failure> {
        match order {
            Order::Choose(_) => return self.about(true),
            Order::Look => {}
            Order::Resolve(answer) => {
                // Only the answer is reported here. A failed refresh shows at the next one.
                let message = self.resolve(answer).unwrap_or_else(|failure| answer.failed(&failure));
                if let Ok(waiting) = self.waiting() {
                    self.report(Report::Waiting(waiting));
                }
                self.report(Report::Message(message));
                return Ok(());
            }
        }
        let waiting = self.waiting()?;
        self.report(Report::Waiting(waiting));
        let mode = fields::text(&self.client.get("/enforcement", &[])?, "mode");
        self.report(Report::Mode(mode.unwrap_or_default()));
        self.about(false)
    }

    /// Reads the mandate that governs the agent of the selected request now, under which an approval decides, and the
    /// agent's month; after a selection also what the agent paid lately.
    fn about(&self, is_new: bool) -> Result<(), Failure> {
        let Some(agent) = &self.chosen else { return Ok(()) };
        if let Some(governing) = governed::one(&self.client, agent)? {
            self.report(Report::Governing { agent: agent.clone(), mandate: governing.shown });
        }
        let usage = self.client.get("/usage", &[("agent", agent.to_string())])?;
        let paid = is_new.then(|| self.paid(agent)).transpose()?;
        self.report(Report::Agent { agent: agent.clone(), usage, paid });
        Ok(())
    }

    /// What an agent paid among its last decisions, newest first.
    fn paid(&self, agent: &AgentId) -> Result<Vec<String>, Failure> {
        let filters = vec![("agent", agent.to_string())];
        let paging = Paging { limit: LATELY, all: false };
        let mut walk = Walk::new(&self.client, "/decisions", Some("jti"), filters, &paging);
        let mut paid = Vec::new();
        while let Some(page) = walk.page()? {
            let is_allowed =
                |decision: &RawValue| fields::text(decision.get(), "verdict").as_deref() == Some("allow");
            let allowed = page.iter().filter(|decision| is_allowed(decision));
            paid.extend(allowed.map(|decision| decision.get().to_owned()));
        }
        Ok(paid)
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
        // Each answer is a separate change, with its own idempotency key.
        let client = self.client.afresh()?;
        let review = &answer.payment.review;
        let Some(reason) = &answer.denied else {
            let fresh = client.post(&format!("/reviews/{review}/approve"), None)?;
            let verdict = fields::text(&fresh, "verdict").unwrap_or_default();
            let reason =
                fields::text(&fresh, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
            // What governs now can deny what a person has approved.
            let denied = if verdict == Verdict::Allow.as_str() { "" } else { " but denied" };
            return Ok(format!("approved{denied} {review}: {verdict}{reason}"));
        };
        let body = (!reason.is_empty()).then(|| serde_json::json!({ "reason": reason }).to_string());
        client.post(&format!("/reviews/{review}/deny"), body.as_deref())?;
        Ok(format!("denied {review}"))
    }
}
