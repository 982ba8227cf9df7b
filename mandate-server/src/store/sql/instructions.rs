//! Instructions to move the funds of escrows, and how each ended.

use mandate_core::{EnvironmentKind, EscrowId, EscrowState, Invalid, Timestamp};
use serde::{Serialize, Serializer};

use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* instructions.insert */
    INSERT INTO instructions (environment, escrow, number, action, attempt, at, note, status, next_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $6)";
const COUNT: &str = "/* instructions.count */
    SELECT COUNT(*) FROM instructions WHERE environment = $1 AND escrow = $2 AND action = $3";
const DUE: &str = "/* instructions.due */ SELECT environment, escrow, number, sent
    FROM instructions WHERE status = 'pending' AND next_at <= $1 ORDER BY next_at LIMIT $2";
const PUT_OFF: &str = "/* instructions.put_off */ SELECT environment, escrow, number, sent
    FROM instructions WHERE status = 'pending' AND next_at > $1 ORDER BY next_at LIMIT $2";
const SENT: &str = "/* instructions.sent */ UPDATE instructions SET sent = sent + 1, next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND status = 'pending'";
const END: &str = "/* instructions.end */ UPDATE instructions SET status = $1, reason = $2, next_at = NULL
    WHERE environment = $3 AND escrow = $4 AND number = $5 AND status = 'pending'";
const CLAIM: &str = "/* instructions.claim */ UPDATE instructions SET next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND status = 'pending'
        AND (next_at <= $5 OR next_at > $6)";
const GIVE_BACK: &str = "/* instructions.give_back */ UPDATE instructions SET next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND status = 'pending' AND next_at = $5";
const SEND_NOW: &str = "/* instructions.send_now */ UPDATE instructions SET next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND status = 'pending'";
const UNSETTLED: &str = "/* instructions.unsettled */
    SELECT i.environment, o.name, e.kind, i.escrow, i.sent,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM instructions i JOIN environments e ON e.environment = i.environment
    JOIN organizations o ON o.organization = e.organization
    WHERE i.status <> 'settled' AND NOT EXISTS (SELECT 1 FROM instructions n
        WHERE n.environment = i.environment AND n.escrow = i.escrow AND n.number > i.number)
    ORDER BY i.at, i.escrow";

/// The direction in which funds move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// From the buyer into the escrow.
    Lock,
    /// From the escrow to the seller.
    Release,
    /// From the escrow back to the buyer.
    Refund,
}

/// How an instruction to move funds ended, if it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettlementStatus {
    /// It is recorded, and its outcome is not known yet.
    Pending,
    /// It was carried out.
    Settled,
    /// It will not be carried out.
    Refused,
}

/// An instruction to move an escrow's funds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its place among the escrow's instructions, from 0 on.
    pub number: i64,
    /// What it moves.
    pub action: Action,
    /// How often the action has been asked for, this time included.
    pub attempt: i64,
    /// When it was asked for.
    pub at: Timestamp,
    /// The note for the state that it leads to.
    pub note: Option<String>,
    /// How it ended.
    pub status: SettlementStatus,
    /// Why it was refused, in the provider's words.
    pub reason: Option<String>,
}

/// The key of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionKey {
    /// The tenant.
    pub environment: i64,
    /// The escrow.
    pub escrow: EscrowId,
    /// Its place among the escrow's instructions.
    pub number: i64,
}

impl Action {
    /// The word in instructions and bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Release => "release",
            Self::Refund => "refund",
        }
    }

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text {
            "lock" => Ok(Self::Lock),
            "release" => Ok(Self::Release),
            "refund" => Ok(Self::Refund),
            _ => Err(Invalid::new("action", "must be lock, release or refund")),
        }
    }

    /// The action that must have settled before an escrow enters `state`. None if no funds move.
    #[must_use]
    pub const fn before(state: EscrowState) -> Option<Self> {
        match state {
            EscrowState::Funded => Some(Self::Lock),
            EscrowState::Released => Some(Self::Release),
            EscrowState::Refunded => Some(Self::Refund),
            EscrowState::Opening | EscrowState::Delivered | EscrowState::Disputed | EscrowState::Failed => {
                None
            }
        }
    }

    /// The state that an escrow enters when the action has settled.
    #[must_use]
    pub const fn leads_to(self) -> EscrowState {
        match self {
            Self::Lock => EscrowState::Funded,
            Self::Release => EscrowState::Released,
            Self::Refund => EscrowState::Refunded,
        }
    }
}

impl SettlementStatus {
    /// The word in bodies and in the answers of providers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Settled => "settled",
            Self::Refused => "refused",
        }
    }

    /// Reads the word.
    ///
    /// # Errors
    /// The text is none of the three.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match text {
            "pending" => Ok(Self::Pending),
            "settled" => Ok(Self::Settled),
            "refused" => Ok(Self::Refused),
            _ => Err(Invalid::new("status", "must be pending, settled or refused")),
        }
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for SettlementStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Instruction {
    /// Its id, the same however often it is sent.
    #[must_use]
    pub fn id(&self, escrow: EscrowId) -> String {
        format!("{escrow}.{}.{}", self.action.as_str(), self.attempt)
    }
}

/// Writes an instruction, pending and due at once.
pub fn insert(
    tx: &mut Tx<'_>,
    environment: i64,
    escrow: EscrowId,
    instruction: &Instruction,
) -> Result<(), Fault> {
    let row: [Value; 7] = [
        environment.into(),
        escrow.to_bytes().into(),
        instruction.number.into(),
        instruction.action.as_str().into(),
        instruction.attempt.into(),
        instruction.at.millis().into(),
        instruction.note.clone().into(),
    ];
    tx.execute_one(INSERT, &row)
}

/// How often an action of an escrow has been asked for.
pub fn count(tx: &mut Tx<'_>, environment: i64, escrow: EscrowId, action: Action) -> Result<i64, Fault> {
    let of: [Value; 3] = [environment.into(), escrow.to_bytes().into(), action.as_str().into()];
    tx.one_row(COUNT, &of)?.integer()
}

/// At most `limit` instructions that are to be sent by `now`, or only after `latest`, each with how often it was sent.
pub fn due(
    tx: &mut Tx<'_>,
    now: Timestamp,
    latest: Timestamp,
    limit: i64,
) -> Result<Vec<(InstructionKey, i64)>, Fault> {
    let mut rows = tx.query(DUE, &[now.millis().into(), limit.into()])?;
    rows.extend(tx.query(PUT_OFF, &[latest.millis().into(), limit.into()])?);
    let rows = rows.into_iter().take(usize::try_from(limit).unwrap_or_default());
    rows.map(|mut row| {
        let environment = row.integer()?;
        let escrow = EscrowId::from_bytes(row.bytes()?);
        let number = row.integer()?;
        Ok((InstructionKey { environment, escrow, number }, row.integer()?))
    })
    .collect()
}

/// Counts that a pending instruction was sent, and puts it off until `next_at`. False if it has ended.
pub fn sent(tx: &mut Tx<'_>, key: &InstructionKey, next_at: Timestamp) -> Result<bool, Fault> {
    let [environment, escrow, number] = key.values();
    Ok(tx.execute(SENT, &[next_at.millis().into(), environment, escrow, number])? == 1)
}

/// Ends a pending instruction.
pub fn end(
    tx: &mut Tx<'_>,
    key: &InstructionKey,
    status: SettlementStatus,
    reason: Option<&str>,
) -> Result<(), Fault> {
    let [environment, escrow, number] = key.values();
    tx.execute_one(END, &[status.as_str().into(), reason.into(), environment, escrow, number])
}

/// Takes a pending instruction that is to be sent by `now`, or only after `latest`. At `until` it is due again,
/// even if this server dies. False if another server has taken it, or if it has ended.
pub fn claim(
    tx: &mut Tx<'_>,
    key: &InstructionKey,
    now: Timestamp,
    latest: Timestamp,
    until: Timestamp,
) -> Result<bool, Fault> {
    let [environment, escrow, number] = key.values();
    let (now, latest) = (now.millis().into(), latest.millis().into());
    let row: [Value; 6] = [until.millis().into(), environment, escrow, number, now, latest];
    Ok(tx.execute(CLAIM, &row)? == 1)
}

/// Gives back a pending instruction that was taken until `until`. It is due at `at`, unless another server has taken it
/// since.
pub fn give_back(
    tx: &mut Tx<'_>,
    key: &InstructionKey,
    until: Timestamp,
    at: Timestamp,
) -> Result<(), Fault> {
    let [environment, escrow, number] = key.values();
    let row: [Value; 5] = [at.millis().into(), environment, escrow, number, until.millis().into()];
    tx.execute(GIVE_BACK, &row).map(|_| ())
}

/// Makes a pending instruction due at `at`.
pub fn send_now(tx: &mut Tx<'_>, key: &InstructionKey, at: Timestamp) -> Result<(), Fault> {
    let [environment, escrow, number] = key.values();
    tx.execute_one(SEND_NOW, &[at.millis().into(), environment, escrow, number])
}

/// Reads an instruction from the next seven columns of a row.
pub(super) fn read(row: &mut Row) -> Result<Instruction, Fault> {
    Ok(Instruction {
        number: row.integer()?,
        action: Action::parse(&row.text()?)?,
        attempt: row.integer()?,
        at: Timestamp::from_millis(row.integer()?),
        note: row.maybe_text()?,
        status: SettlementStatus::parse(&row.text()?)?,
        reason: row.maybe_text()?,
    })
}

impl InstructionKey {
    fn values(&self) -> [Value; 3] {
        [self.environment.into(), self.escrow.to_bytes().into(), self.number.into()]
    }
}

/// An escrow's newest instruction that has not settled, as operators see it.
#[derive(Debug)]
pub struct Unsettled {
    /// The tenant.
    pub environment: i64,
    /// The name of its organization.
    pub organization: String,
    /// The kind of the environment.
    pub kind: EnvironmentKind,
    /// The escrow.
    pub escrow: EscrowId,
    /// How often the instruction was sent.
    pub sent: i64,
    /// The instruction.
    pub instruction: Instruction,
}

/// The newest instruction of each escrow, of all tenants, where it is pending or was refused, oldest first. Reads all
/// instructions: for operators only.
pub fn unsettled(tx: &mut Tx<'_>) -> Result<Vec<Unsettled>, Fault> {
    let rows = tx.query(UNSETTLED, &[])?.into_iter();
    rows.map(|mut row| {
        Ok(Unsettled {
            environment: row.integer()?,
            organization: row.text()?,
            kind: kind(&row.text()?)?,
            escrow: EscrowId::from_bytes(row.bytes()?),
            sent: row.integer()?,
            instruction: read(&mut row)?,
        })
    })
    .collect()
}
