//! Settlement: moves the funds of escrows, behind one trait.
//!
//! An instruction is recorded in the transaction that asks for it, and carried out after the commit. The escrow changes
//! when the outcome is known. It may be sent any number of times: its id is made from the escrow, the action and the
//! attempt, so that a provider recognises a repetition. No answer of the API names an adapter.

mod http;
mod local;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use mandate_core::{AgentId, Amount, Currency, EnvironmentKind, EscrowId, Recipient, Timestamp};
use serde::Serialize;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::SettlementSetting;
use crate::error::Fault;
use crate::service::escrows::{Address, Reply};
use crate::service::signing::Keyring;
use crate::store::sql::escrows::Escrow;
use crate::store::sql::instructions::Action;

pub use http::Http;
pub use local::Local;

/// Carries instructions out.
pub trait Adapter: fmt::Debug + Send + Sync + 'static {
    /// What it says of an instruction that is being recorded, before that is carried out.
    fn recorded(&self) -> Reply;

    /// Carries an instruction out, or asks for its outcome.
    fn carry_out<'a>(&'a self, instruction: &'a Instruction) -> Outcome<'a>;
}

/// The outcome of an instruction. After a fault it is unknown, and the instruction stays pending.
pub type Outcome<'a> = Pin<Box<dyn Future<Output = Result<Reply, Fault>> + Send + 'a>>;

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
    /// When it was asked for.
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

    /// What is said of an instruction from such an environment that is being recorded.
    #[must_use]
    pub fn recorded(&self, kind: EnvironmentKind) -> Reply {
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
    /// The instruction of an escrow in this place, if it is the newest.
    #[must_use]
    pub fn of(escrow: &Escrow, number: i64) -> Option<Self> {
        let newest = escrow.instruction.as_ref().filter(|newest| newest.number == number)?;
        Some(Self {
            id: newest.id(escrow.id),
            kind: escrow.kind,
            at: newest.at,
            action: newest.action,
            escrow: escrow.id,
            contract: Address(escrow.contract),
            amount: escrow.amount,
            currency: escrow.currency.clone(),
            buyer: escrow.buyer.clone(),
            seller: escrow.seller.clone(),
        })
    }
}
