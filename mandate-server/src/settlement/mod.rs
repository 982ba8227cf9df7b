//! Settlement: moves the funds of escrows, behind one trait.
//!
//! An instruction is recorded in the transaction of the state that moves the funds. It is carried out after the
//! commit, and its outcome is recorded. It may be sent any number of times: its id is made from the escrow and the
//! state, so that a provider recognises a repetition. No answer of the API names an adapter.

mod http;
mod local;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use mandate_core::{AgentId, Amount, Currency, EnvironmentKind, EscrowId, EscrowState, Recipient, Timestamp};
use serde::Serialize;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::SettlementSetting;
use crate::error::Fault;
use crate::service::escrows::{Address, moves_funds};
use crate::service::signing::Keyring;
use crate::store::sql::escrows::{Escrow, SettlementStatus};

pub use http::Http;
pub use local::Local;

/// Carries instructions out.
pub trait Adapter: fmt::Debug + Send + Sync + 'static {
    /// The state of an instruction that has just been recorded.
    fn recorded(&self) -> SettlementStatus;

    /// Carries an instruction out, or asks for its outcome.
    fn carry_out<'a>(&'a self, instruction: &'a Instruction) -> Outcome<'a>;
}

/// The outcome of an instruction. After a fault it is unknown, and the instruction stays pending.
pub type Outcome<'a> = Pin<Box<dyn Future<Output = Result<SettlementStatus, Fault>> + Send + 'a>>;

/// The adapter in use, and the signal that wakes its worker.
#[derive(Debug)]
pub struct Settlement {
    adapter: Box<dyn Adapter>,
    wake: Notify,
}

/// Funds to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// The instruction's id, the same at each attempt.
    #[serde(skip)]
    pub id: String,
    /// The kind of the environment that it comes from.
    #[serde(skip)]
    pub kind: EnvironmentKind,
    /// When the escrow entered the state that moves the funds.
    #[serde(skip)]
    pub at: Timestamp,
    action: Action,
    escrow: EscrowId,
    contract: Address,
    amount: Amount,
    currency: Currency,
    buyer: AgentId,
    seller: Recipient,
}

/// The direction in which funds move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// From the buyer into the escrow.
    Lock,
    /// From the escrow to the seller.
    Release,
    /// From the escrow back to the buyer.
    Refund,
}

impl Settlement {
    /// The adapter that the operator has chosen.
    ///
    /// # Errors
    /// Its client cannot be set up.
    pub fn new(setting: &SettlementSetting, keyring: Keyring, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        Ok(Self::with(match setting {
            SettlementSetting::Local => Box::new(Local),
            SettlementSetting::Http(url) => Box::new(Http::new(url, keyring, clock)?),
        }))
    }

    /// Another adapter.
    #[must_use]
    pub fn with(adapter: Box<dyn Adapter>) -> Self {
        Self { adapter, wake: Notify::new() }
    }

    /// The adapter for environments of this kind. No instruction of a sandbox leaves the server.
    #[must_use]
    pub fn adapter(&self, kind: EnvironmentKind) -> &dyn Adapter {
        match kind {
            EnvironmentKind::Sandbox => &Local,
            EnvironmentKind::Production => &*self.adapter,
        }
    }

    /// The state of an instruction from such an environment that has just been recorded.
    #[must_use]
    pub fn recorded(&self, kind: EnvironmentKind) -> SettlementStatus {
        self.adapter(kind).recorded()
    }

    /// Wakes the worker: an instruction may have been recorded.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for the signal to stop.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl Instruction {
    /// The instruction for an escrow that enters its `number`th state, if that state moves funds.
    #[must_use]
    pub fn of(escrow: &Escrow, number: usize) -> Option<Self> {
        let entry = escrow.history.get(number).filter(|entry| moves_funds(entry.state))?;
        Some(Self {
            id: format!("{}.{}", escrow.id, entry.state),
            kind: escrow.kind,
            at: entry.at,
            action: match entry.state {
                EscrowState::Released => Action::Release,
                EscrowState::Refunded => Action::Refund,
                _ => Action::Lock,
            },
            escrow: escrow.id,
            contract: Address(escrow.contract),
            amount: escrow.amount,
            currency: escrow.currency.clone(),
            buyer: escrow.buyer.clone(),
            seller: escrow.seller.clone(),
        })
    }
}
