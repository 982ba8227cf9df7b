//! One delivery attempt: the event is signed with the current key and posted, and the answer decides what
//! follows.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use mandate_core::{EventClaims, Timestamp, jwt};
use tracing::{debug, error, warn};

use super::super::backoff;
use super::super::dial::{Dialer, NoAnswer};
use super::fair_queues::Ending;
use crate::clock::{Clock, Entropy};
use crate::error::Fault;
use crate::metrics::{Attempted, Metrics};
use crate::model::records::{
    AttemptRecord, DeliveryState, DueRecord, LeaseRecord, NoticeRecord, TriedRecord,
};
use crate::service::notices;
use crate::service::signing::Keyring;
use crate::traces::{Span, Traces};

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The result to store.
    pub(super) tried: TriedRecord,
    pub(super) ending: Ending,
}

/// What attempts need.
#[derive(Clone)]
pub(super) struct AttemptContext {
    pub(super) keyring: Keyring,
    pub(super) dialer: Arc<Dialer>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) entropy: Arc<dyn Entropy>,
    pub(super) metrics: Metrics,
    pub(super) traces: Traces,
    /// Where the console is.
    pub(super) console: Option<Arc<str>>,
}

impl AttemptContext {
    /// Makes the attempt that is due, unless its time is over. A delivery that could never be tried is tried
    /// once, late.
    pub(super) async fn attempt(self, lease: Arc<LeaseRecord>, due: DueRecord) -> Ended {
        let at = self.clock.now();
        if due.attempts > 0 && backoff::is_over(due.since, at) {
            let tried = outcome(&lease, &due, None, (DeliveryState::Failed, at), None);
            return Ended { tried, ending: Ending::AtOnce };
        }
        let (began, span) = (Instant::now(), self.traces.attempt());
        let posting = AssertUnwindSafe(self.post(&lease, &due)).catch_unwind().await;
        let answer = posting.unwrap_or_else(|_| {
            error!(event = %due.event.id, "an attempt panicked; see the line before this one");
            Err(NoAnswer::Here)
        });
        let ending = Ending::of(&answer, began.elapsed());
        let now = self.clock.now();
        // To a clock that was ahead the attempts have not begun yet: they would never end, and repeat as fast
        // as possible.
        let begins_anew = (due.since > now).then_some(at.min(now));
        let since = begins_anew.unwrap_or(due.since);
        let next = match answer {
            Ok(200..=299) => (DeliveryState::Delivered, now),
            _ => match backoff::next_attempt(since, now, self.random()) {
                Some(next) => (DeliveryState::Pending, next),
                None => (DeliveryState::Failed, now),
            },
        };
        let (status, error) = match answer {
            Ok(status) => (Some(status.into()), None),
            Err(no_answer) => (None, Some(no_answer.to_string())),
        };
        self.metrics.attempted(counted(next.0), began.elapsed());
        if let Some(span) = span {
            end(span, &due, status, next.0);
        }
        let attempt = Some(AttemptRecord { at, status, error });
        Ended { tried: outcome(&lease, &due, attempt, next, begins_anew), ending }
    }

    async fn post(&self, lease: &LeaseRecord, due: &DueRecord) -> Result<u16, NoAnswer> {
        if let Some(notice) = &lease.notice {
            return self.notify(lease.environment, notice, due).await;
        }
        let token = self.token(lease, due).map_err(|fault| {
            error!(event = %due.event.id, kind = fault.kind(), reason = %fault, "an event could not be signed");
            NoAnswer::Here
        })?;
        self.dialer.post(lease.environment, &lease.url, token).await
    }

    /// Sends a message to people.
    async fn notify(
        &self,
        environment: i64,
        notice: &NoticeRecord,
        due: &DueRecord,
    ) -> Result<u16, NoAnswer> {
        let made = || -> Result<_, Fault> {
            let url = notices::open(notice, self.keyring.master())?;
            Ok((url, notices::message(notice, &due.event, self.console.as_deref(), self.clock.now())?))
        };
        let (url, message) = made().map_err(|fault| {
            error!(event = %due.event.id, kind = fault.kind(), reason = %fault, "a notice could not be made");
            NoAnswer::Here
        })?;
        self.dialer.notify(environment, &url, message).await
    }

    fn token(&self, lease: &LeaseRecord, due: &DueRecord) -> Result<String, Fault> {
        let event = &due.event;
        let claims = EventClaims {
            iss: self.keyring.issuer().to_owned(),
            jti: event.id,
            iat: event.at.seconds(),
            kind: event.kind.as_str().to_owned(),
            data: &event.data,
        };
        let signing = self.keyring.signing(lease.kind, self.clock.now())?;
        jwt::sign(&*signing.signer, &claims.to_json()?).map_err(|e| Fault::new(e.to_string()))
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.entropy.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }
}

/// Completes an attempt's span. The URL is left out: it can hold a secret.
fn end(mut span: Span, due: &DueRecord, status: Option<i64>, state: DeliveryState) {
    span.set("mandate.event", due.event.id.to_string());
    span.set("mandate.event.type", due.event.kind.as_str());
    span.set("mandate.delivery.attempt", due.attempts.saturating_add(1));
    span.set("mandate.delivery.state", state.as_str());
    if let Some(status) = status {
        span.set("http.response.status_code", status);
    }
    if state != DeliveryState::Delivered {
        span.fail();
    }
}

/// How an attempt is counted.
fn counted(state: DeliveryState) -> Attempted {
    match state {
        DeliveryState::Delivered => Attempted::Delivered,
        DeliveryState::Pending => Attempted::Retried,
        DeliveryState::Failed | DeliveryState::Ended => Attempted::Failed,
    }
}

/// Logs the result of a delivery and returns what to store.
fn outcome(
    lease: &LeaseRecord,
    due: &DueRecord,
    attempt: Option<AttemptRecord>,
    (state, due_at): (DeliveryState, Timestamp),
    begins_anew: Option<Timestamp>,
) -> TriedRecord {
    let (event, webhook) = (due.event.id, lease.webhook);
    if state == DeliveryState::Failed {
        warn!(%event, %webhook, "a delivery has failed: the receiver has not acknowledged it for 24 hours");
    } else {
        debug!(%event, %webhook, ?attempt, state = state.as_str(), "an attempt was made");
    }
    TriedRecord { environment: lease.environment, event, webhook, attempt, state, due_at, begins_anew }
}
