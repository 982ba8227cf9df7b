//! Answers on their way from a thread of the store to those who wait for them.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Fault;
use crate::model::call::Answer;

/// Who waits for an answer.
pub(super) type Waiter = oneshot::Sender<Result<Answer, Fault>>;
/// Who waits, and for what.
pub(super) type Told = Vec<(Waiter, Result<Answer, Fault>)>;

/// The way back to the runtime that requests are served by; none where there is none.
#[derive(Clone)]
pub(super) struct WayBack(Option<Handle>);

impl WayBack {
    /// The way back to the runtime that this runs within.
    pub(super) fn here() -> Self {
        Self(Handle::try_current().ok())
    }

    /// Gives each waiter its answer, from within the runtime: a task that is woken there costs nothing like one that is woken
    /// from a foreign thread. A caller that waits when that runtime has ended hears that its answer was dropped.
    pub(super) fn answer(&self, told: Told) {
        let answer = move || told.into_iter().for_each(|(waiter, answer)| _ = waiter.send(answer));
        match &self.0 {
            Some(runtime) => {
                runtime.spawn(async move { answer() });
            }
            None => answer(),
        }
    }
}
