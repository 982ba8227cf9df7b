//! The queue's connection to the service, on a thread of its own: a slow answer holds up no key.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::client::{Client, Paging, Walk};
use crate::exit::Failure;
use crate::fields;

/// More than these are not shown at once.
const MOST: u32 = 500;

/// A person's answer to a review.
pub(super) struct Answer {
    pub(super) review: String,
    /// Denied, with this reason, which can be empty.
    pub(super) denied: Option<String>,
}

/// What the service is to be asked.
pub(super) enum Order {
    /// What waits.
    Look,
    /// To take an answer.
    Resolve(Answer),
}

/// What the service said.
pub(super) enum Report {
    /// What waits, oldest first, with its mandates; and what became of an answer.
    Waiting { waiting: Vec<String>, mandates: BTreeMap<String, String>, told: Option<String> },
    /// It said no, or nothing.
    Failed(Failure),
}

/// Starts looking, now and whenever so much time has passed. Ends when nobody gives orders any more.
pub(super) fn start(client: Client, refresh: Duration) -> (Sender<Order>, Receiver<Report>) {
    let (orders, to_do) = mpsc::channel();
    let (tell, reports) = mpsc::channel();
    thread::spawn(move || {
        let mut mandates = BTreeMap::new();
        let mut order = Order::Look;
        loop {
            let report = carry_out(&client, &order, &mut mandates).unwrap_or_else(Report::Failed);
            if tell.send(report).is_err() {
                return;
            }
            order = match to_do.recv_timeout(refresh) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => Order::Look,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    });
    (orders, reports)
}

fn carry_out(
    client: &Client,
    order: &Order,
    mandates: &mut BTreeMap<String, String>,
) -> Result<Report, Failure> {
    let told = match order {
        Order::Look => None,
        Order::Resolve(answer) => Some(resolve(client, answer)?),
    };
    let waiting = look(client)?;
    for id in waiting.iter().filter_map(|decision| fields::text(decision, "mandate")) {
        if !mandates.contains_key(&id) {
            let mandate = client.get(&format!("/mandates/{id}"), &[])?;
            mandates.insert(id, mandate);
        }
    }
    Ok(Report::Waiting { waiting, mandates: mandates.clone(), told })
}

fn look(client: &Client) -> Result<Vec<String>, Failure> {
    let filters = vec![("review", "pending".to_owned())];
    let mut walk = Walk::new(client, "/decisions", Some("jti"), filters, &Paging { limit: MOST, all: false });
    let mut waiting = Vec::new();
    while let Some(page) = walk.page()? {
        waiting.extend(page.iter().map(|decision| decision.get().to_owned()));
    }
    waiting.reverse();
    Ok(waiting)
}

fn resolve(client: &Client, answer: &Answer) -> Result<String, Failure> {
    // Each answer is a change of its own, under an idempotency key of its own.
    let client = client.afresh()?;
    let review = &answer.review;
    let Some(reason) = &answer.denied else {
        let fresh = client.post(&format!("/reviews/{review}/approve"), None)?;
        let verdict = fields::text(&fresh, "verdict").unwrap_or_default();
        let reason = fields::text(&fresh, "reason").map(|reason| format!(": {reason}")).unwrap_or_default();
        return Ok(format!("approved {review}: {verdict}{reason}"));
    };
    let body = (!reason.is_empty()).then(|| serde_json::json!({ "reason": reason }).to_string());
    client.post(&format!("/reviews/{review}/deny"), body.as_deref())?;
    Ok(format!("denied {review}"))
}
