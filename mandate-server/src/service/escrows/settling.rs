//! What becomes of an escrow when funds are to be moved: it enters no state that moves them before the provider has
//! settled.
//!
//! An instruction is recorded first, and sent after the commit. It ends once: whatever the provider says of it later
//! changes nothing.

use mandate_core::{EscrowId, EscrowState, EventKind, Timestamp};

use super::view::{EscrowEvent, current_state};
use crate::error::{Fault, Refusal};
use crate::model::call::ScriptError;
use crate::service::moments::Moments;
use crate::service::outbox;
use crate::store::sql;
use crate::store::sql::escrows::{Entry, Escrow};
use crate::store::sql::instructions::{Action, Instruction, InstructionKey, SettlementStatus};
use crate::store::tx::Tx;

/// The longest reason of a refusal that is kept, in characters.
pub const MAX_REFUSAL_REASON: usize = 500;
/// The longest time between two attempts at an instruction, in seconds.
pub const LONGEST_WAIT_SECONDS: i64 = 60 * 60;
/// How far ahead the clock of another server may be, in seconds: it is corrected by the database's once a second, and may
/// have jumped meanwhile.
const SKEW_SECONDS: i64 = 60;

/// What a provider says of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Its outcome is not known yet.
    Pending,
    /// It was carried out.
    Settled,
    /// It will not be carried out.
    Refused {
        /// Why, in the provider's words.
        reason: Option<String>,
    },
}

/// A change of an escrow, in one transaction that holds the escrow's row, or has written it.
pub(super) struct Change<'a, 'tx> {
    pub(super) tx: &'a mut Tx<'tx>,
    pub(super) environment: i64,
    pub(super) escrow: Escrow,
    pub(super) at: Timestamp,
    pub(super) moments: &'a Moments,
}

impl Reply {
    /// The status of an instruction after it.
    #[must_use]
    pub const fn status(&self) -> SettlementStatus {
        match self {
            Self::Pending => SettlementStatus::Pending,
            Self::Settled => SettlementStatus::Settled,
            Self::Refused { .. } => SettlementStatus::Refused,
        }
    }
}

impl Change<'_, '_> {
    /// Asks for funds to be moved. `reply` is what the adapter says at once.
    pub(super) fn ask(&mut self, action: Action, note: Option<String>, reply: &Reply) -> Result<(), Fault> {
        let escrow = self.escrow.id;
        let before = sql::instructions::count(self.tx, self.environment, escrow, action)?;
        let instruction = Instruction {
            number: self.escrow.instruction.as_ref().map_or(0, |last| last.number.saturating_add(1)),
            action,
            attempt: before.saturating_add(1),
            at: self.at,
            note,
            status: SettlementStatus::Pending,
            reason: None,
        };
        sql::instructions::insert(self.tx, self.environment, escrow, &instruction)?;
        self.escrow.instruction = Some(instruction);
        self.conclude(reply)
    }

    /// Writes the checksum of what the escrow has become: the end of each change.
    pub(super) fn seal(&mut self) -> Result<(), Fault> {
        sql::escrows::seal(self.tx, self.environment, self.escrow.id)
    }

    /// Does what the provider's word on the pending instruction means for the escrow: its state, its history, its event.
    /// This is decided here and nowhere else.
    fn conclude(&mut self, reply: &Reply) -> Result<(), Fault> {
        let reason = match reply {
            Reply::Pending => return Ok(()),
            Reply::Settled => None,
            Reply::Refused { reason } => reason.clone(),
        };
        let (environment, escrow) = (self.environment, self.escrow.id);
        let instruction = self.escrow.instruction.as_mut();
        let instruction = instruction.ok_or_else(|| Fault::new("an answer to no instruction"))?;
        let key = InstructionKey { environment, escrow, number: instruction.number };
        sql::instructions::end(self.tx, &key, reply.status(), reason.as_deref())?;
        (instruction.status, instruction.reason) = (reply.status(), reason.clone());
        let (action, note, id) = (instruction.action, instruction.note.clone(), instruction.id(escrow));
        if *reply == Reply::Settled {
            return self.enter(action.leads_to(), note);
        }
        if action == Action::Lock {
            self.append(EscrowState::Failed, false, None)?;
        } else if self.dispute_waits() {
            // Its flag was raised, and its event sent, while the instruction was pending.
            self.append(EscrowState::Disputed, true, None)?;
        }
        self.report(EventKind::EscrowSettlementRefused, Some(id), reason)
    }

    /// Writes that the escrow enters `state`, with the event that reports it.
    pub(super) fn enter(&mut self, state: EscrowState, note: Option<String>) -> Result<(), Fault> {
        let disputed = self.escrow.history.last().is_some_and(|last| last.disputed);
        self.append(state, disputed || state == EscrowState::Disputed, note)?;
        match EventKind::of_escrow(state) {
            Some(kind) => self.report(kind, None, None),
            None => Ok(()),
        }
    }

    /// Raises the flag of a dispute while an instruction is pending. The state waits for the provider.
    fn dispute(&mut self, note: Option<String>) -> Result<(), Fault> {
        let state = current_state(&self.escrow)?.state;
        self.append(state, true, note)?;
        self.report(EventKind::EscrowDisputed, None, None)
    }

    /// Whether a dispute was raised while an instruction was pending: the state is one that a dispute ends.
    fn dispute_waits(&self) -> bool {
        let last = self.escrow.history.last();
        last.is_some_and(|last| last.disputed && last.state.transition(EscrowState::Disputed).is_ok())
    }

    fn append(&mut self, state: EscrowState, disputed: bool, note: Option<String>) -> Result<(), Fault> {
        let (entry, number) = (Entry { state, disputed, at: self.at, note }, self.escrow.history.len());
        sql::escrows::append(self.tx, self.environment, self.escrow.id, number, &entry)?;
        self.escrow.history.push(entry);
        Ok(())
    }

    fn report(
        &mut self,
        kind: EventKind,
        instruction: Option<String>,
        reason: Option<String>,
    ) -> Result<(), Fault> {
        let last = current_state(&self.escrow)?;
        let (escrow, state, disputed) = (self.escrow.id, last.state, last.disputed);
        let data = outbox::data(&EscrowEvent { escrow, state, disputed, instruction, reason })?;
        outbox::write(self.tx, self.moments, self.environment, kind, self.at, data).map(drop)
    }

    /// Moves the escrow on to `to`, if its state allows that and no instruction is pending.
    pub(super) fn transition(
        &mut self,
        to: EscrowState,
        note: Option<String>,
        reply: &Reply,
    ) -> Result<(), ScriptError> {
        let from = current_state(&self.escrow)?;
        let allowed = from.state.transition(to);
        let newest = self.escrow.instruction.as_ref();
        if let Some(pending) = newest.filter(|newest| newest.status == SettlementStatus::Pending) {
            if to == EscrowState::Disputed && allowed.is_ok() && !from.disputed {
                return Ok(self.dispute(note)?);
            }
            return Err(waits(self.escrow.id, from, to, pending).into());
        }
        allowed.map_err(|refused| Refusal::invalid(refused.to_string()))?;
        match Action::before(to) {
            Some(action) => self.ask(action, note, reply)?,
            None => self.enter(to, note)?,
        }
        Ok(())
    }
}

/// Why an escrow does not move on while an instruction is pending.
fn waits(escrow: EscrowId, from: &Entry, to: EscrowState, pending: &Instruction) -> Refusal {
    let can_be_disputed = !from.disputed && from.state.transition(EscrowState::Disputed).is_ok();
    let accepted =
        if can_be_disputed { "it can become disputed meanwhile" } else { "it cannot change meanwhile" };
    Refusal::invalid(format!(
        "an escrow that is {} cannot become {to} while its instruction {} is pending; {accepted}",
        from.state,
        pending.id(escrow)
    ))
}

/// The latest time that any instruction can be waiting for at `now`.
fn latest(now: Timestamp) -> Timestamp {
    now.plus_seconds(LONGEST_WAIT_SECONDS + SKEW_SECONDS)
}

/// An instruction that is due.
#[derive(Debug)]
pub struct DueInstruction {
    /// Its key.
    pub key: InstructionKey,
    /// Its escrow, or why that cannot be settled: one that is damaged keeps no other from being settled.
    pub escrow: Result<Escrow, Fault>,
    /// How often it was sent.
    pub sent: i64,
}

/// At most `limit` instructions that are due at `now`. One that is due later than any can be was put off by a clock that was
/// ahead and has been set back: it is due too.
///
/// # Errors
/// The database fails.
pub fn due(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<DueInstruction>, Fault> {
    let mut instructions = Vec::new();
    for (key, sent) in sql::instructions::due(tx, now, latest(now), limit)? {
        let escrow = match sql::escrows::find_sound(tx, key.environment, key.escrow) {
            Ok(found) => found.ok_or_else(|| Fault::corrupt("database: an instruction without an escrow")),
            Err(damaged @ Fault::Corrupt(_)) => Err(damaged),
            Err(fault) => return Err(fault),
        };
        instructions.push(DueInstruction { key, escrow, sent });
    }
    Ok(instructions)
}

/// Claims an instruction that is due at `now`, so that no other server attempts it before `until`. False if
/// another server has claimed it, or it has ended.
///
/// # Errors
/// The database fails.
pub fn claim(tx: &mut Tx<'_>, key: &InstructionKey, now: Timestamp, until: Timestamp) -> Result<bool, Fault> {
    sql::instructions::claim(tx, key, now, latest(now), until)
}

/// Gives back an instruction that was claimed until `until` and whose attempt was cut short. It is due at
/// `at`.
///
/// # Errors
/// The database fails.
pub fn give_back(
    tx: &mut Tx<'_>,
    key: &InstructionKey,
    until: Timestamp,
    at: Timestamp,
) -> Result<(), Fault> {
    sql::instructions::give_back(tx, key, until, at)
}

/// Takes the provider's word on an instruction that was sent. While it is pending, it is sent again at `next_at`. False
/// if it had ended before: then nothing changes.
///
/// # Errors
/// The database fails.
pub fn settle(
    tx: &mut Tx<'_>,
    key: &InstructionKey,
    reply: &Reply,
    next_at: Timestamp,
    moments: &Moments,
) -> Result<bool, Fault> {
    let environment = key.environment;
    let escrow = sql::escrows::lock(tx, environment, key.escrow)?;
    let escrow = escrow.ok_or_else(|| Fault::corrupt("database: an instruction without an escrow"))?;
    if !sql::instructions::sent(tx, key, next_at)? {
        return Ok(false);
    }
    let at = moments.now(tx)?;
    let mut change = Change { tx, environment, escrow, at, moments };
    change.conclude(reply)?;
    change.seal()?;
    Ok(true)
}
