//! Signs the decisions of a batch on several threads: to sign costs more than all else that is done for a decision.
//!
//! Decisions are made one after the other, since each rests on the one before. Their signatures rest on nothing, so that
//! a batch is signed in shares. Its order stays.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, available_parallelism};

use mandate_core::Timestamp;

use super::super::sql::uncounted::Counted;
use super::super::{Decider, Signed, UnsignedOutcome};
use super::jobs::PendingAuthorization;
use crate::error::Fault;

/// Threads that help to sign, at most: four hands sign faster than one thread can write.
const MAX_HELPERS: usize = 3;
/// The fewest signatures that are worth waking a helper for.
const MIN_SHARE: usize = 4;

/// An authorization that was decided on, before its decision is signed.
pub(super) struct Unsigned {
    pub(super) asked: PendingAuthorization,
    /// When it was decided on.
    pub(super) at: Timestamp,
    pub(super) outcome: UnsignedOutcome,
    /// The rows of its agent, if they are to be written with it.
    pub(super) rows: Option<Counted>,
}

/// The same, signed.
pub(super) struct Ready {
    pub(super) asked: PendingAuthorization,
    pub(super) signed: Result<Signed, Fault>,
    pub(super) rows: Option<Counted>,
}

/// Signs with threads of its own beside the caller's.
pub(super) struct Signers {
    decider: Arc<dyn Decider>,
    helpers: Vec<Helper>,
}

struct Helper {
    shares: Sender<Vec<Unsigned>>,
    signed: Receiver<Vec<Ready>>,
    thread: JoinHandle<()>,
}

impl Signers {
    /// Starts a helper for each processor but one.
    pub(super) fn start(decider: &Arc<dyn Decider>) -> Result<Self, Fault> {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_helpers((processors - 1).min(MAX_HELPERS), decider)
    }

    fn with_helpers(count: usize, decider: &Arc<dyn Decider>) -> Result<Self, Fault> {
        let helpers: Result<_, _> =
            (0..count).map(|number| Helper::start(number, Arc::clone(decider))).collect();
        let helpers = helpers.map_err(|e| Fault::new(format!("cannot start a thread that signs: {e}")))?;
        Ok(Self { decider: Arc::clone(decider), helpers })
    }

    /// Signs a batch, in order: the last share here, the others beside. None when a helper has died, and what it held
    /// with it.
    pub(super) fn sign(&self, mut batch: Vec<Unsigned>) -> Option<Vec<Ready>> {
        let hands = (batch.len() / MIN_SHARE).clamp(1, self.helpers.len() + 1);
        let share = batch.len().div_ceil(hands);
        let mut ready = Vec::with_capacity(batch.len());
        let mut at_work = Vec::with_capacity(hands);
        for helper in self.helpers.iter().take(hands - 1) {
            let others = batch.split_off(share.min(batch.len()));
            if let Err(mut back) = helper.shares.send(std::mem::replace(&mut batch, others)) {
                back.0.append(&mut batch);
                batch = back.0;
                break;
            }
            at_work.push(helper);
        }
        let last: Vec<_> = batch.into_iter().map(|one| sign(&*self.decider, one)).collect();
        let mut whole = true;
        for helper in at_work {
            if let Ok(share) = helper.signed.recv() {
                ready.extend(share);
            } else {
                tracing::error!("a thread that signs has ended, and its share is lost; restart the server");
                whole = false;
            }
        }
        ready.extend(last);
        whole.then_some(ready)
    }

    /// Lets the helpers end.
    pub(super) fn end(self) {
        for Helper { shares, thread, .. } in self.helpers {
            drop(shares);
            let _ = thread.join();
        }
    }
}

impl Helper {
    fn start(number: usize, decider: Arc<dyn Decider>) -> std::io::Result<Self> {
        let (shares, given) = channel::<Vec<Unsigned>>();
        let (done, signed_here) = channel();
        let serve = move || {
            decider.warm_up();
            for share in given {
                let share = share.into_iter().map(|one| sign(&*decider, one)).collect();
                if done.send(share).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("signer-{number}")).spawn(serve)?;
        Ok(Self { shares, signed: signed_here, thread })
    }
}

/// Signs one. A panic is a fault, which has logged itself.
fn sign(decider: &dyn Decider, unsigned: Unsigned) -> Ready {
    let Unsigned { asked, at, outcome, rows } = unsigned;
    let sign = || decider.sign(&asked.authorization, outcome, at);
    let panicked = |_| Err(Fault::new("signing has panicked; see the line before this one"));
    let signed = catch_unwind(AssertUnwindSafe(sign)).unwrap_or_else(panicked);
    Ready { asked, signed, rows }
}

#[cfg(test)]
mod tests {
    use mandate_core::{EnvironmentKind, PolicyVersion, RequestId};
    use tokio::sync::oneshot;

    use super::super::super::{Authorization, Found};
    use super::*;
    use crate::error::Refusal;
    use crate::model::call::{Answer, Call, Caller, Environment};

    /// The authorizations with which signing ends in a fault, and in a panic.
    const FAULTY: u8 = 9;
    const PANICS: u8 = 17;

    /// Signs by telling who asked.
    struct Names;

    impl Decider for Names {
        fn now(&self) -> Timestamp {
            Timestamp::from_seconds(0)
        }

        fn decide_unsigned(
            &self,
            _: &Authorization,
            _: Timestamp,
            _: &Found<'_>,
        ) -> Result<UnsignedOutcome, Fault> {
            Err(Fault::new("nothing is decided here"))
        }

        fn sign(&self, at: &Authorization, _: UnsignedOutcome, _: Timestamp) -> Result<Signed, Fault> {
            match at.call.request_id.to_bytes()[0] {
                FAULTY => Err(Fault::new("the key cannot sign")),
                PANICS => panic!("the key is no key"),
                number => Ok(Signed::answered(answer(number))),
            }
        }
    }

    fn answer(number: u8) -> Answer {
        Answer { status: 201, body: vec![number], secret: false, replayed: false, decided: None }
    }

    fn unsigned(number: u8) -> Unsigned {
        let policy_version = PolicyVersion::parse("pol_1").unwrap();
        let environment = Environment { id: 1, kind: EnvironmentKind::Sandbox, policy_version };
        let caller = Arc::new(Caller { key: 1, environment, agent: None, rate: 1, expires_at: None });
        let (at, request_id) = (Timestamp::from_seconds(0), RequestId::from_bytes([number; 16]));
        let call = Call { caller, request_id, at, idempotency: None };
        let authorization = Authorization::new(call, Err(Refusal::invalid("nothing is read of it")));
        let outcome = UnsignedOutcome::Answered(Box::new(Signed::answered(answer(0))));
        Unsigned {
            asked: PendingAuthorization { authorization, waiter: oneshot::channel().0 },
            at,
            outcome,
            rows: None,
        }
    }

    fn numbers(ready: &[Ready]) -> Vec<Option<u8>> {
        ready.iter().map(|ready| ready.signed.as_ref().ok().map(|signed| signed.answer.body[0])).collect()
    }

    #[test]
    fn each_is_signed_once_and_stays_in_its_place_and_a_failure_harms_no_other() {
        let decider: Arc<dyn Decider> = Arc::new(Names);
        for helpers in 0..=MAX_HELPERS {
            let signers = Signers::with_helpers(helpers, &decider).unwrap();
            for length in 0..=40 {
                let ready = signers.sign((0..length).map(unsigned).collect()).unwrap();
                let wanted: Vec<_> =
                    (0..length).map(|n| Some(n).filter(|n| ![FAULTY, PANICS].contains(n))).collect();
                assert_eq!(numbers(&ready), wanted, "{helpers} helpers, {length} to sign");
            }
            signers.end();
        }
    }

    #[test]
    fn a_batch_of_which_a_dead_helper_held_a_share_is_lost_as_a_whole() {
        let decider: Arc<dyn Decider> = Arc::new(Names);
        let mut signers = Signers::with_helpers(1, &decider).unwrap();
        let (shares, given) = channel::<Vec<Unsigned>>();
        let (done, signed) = channel();
        // It takes what it is given, and dies of it.
        let thread = std::thread::spawn(move || drop((given.recv(), done)));
        signers.helpers = vec![Helper { shares, signed, thread }];
        assert!(signers.sign((0..8).map(unsigned).collect()).is_none());
        // From then on it is given nothing.
        let ready = signers.sign((0..8).map(unsigned).collect()).unwrap();
        assert_eq!(numbers(&ready), (0..8).map(Some).collect::<Vec<_>>());
        signers.end();
    }
}
