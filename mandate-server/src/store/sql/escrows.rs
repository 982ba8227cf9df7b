//! Escrows and the states that they have been in.

use mandate_core::{
    AgentId, Amount, Currency, DecisionId, EnvironmentKind, EscrowId, EscrowState, Invalid, Recipient,
    Timestamp,
};
use serde::{Serialize, Serializer};

use super::keys::kind;
use crate::error::Fault;
use crate::model::records::{Direction, Slice};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* escrows.insert */
    INSERT INTO escrows (environment, escrow, contract, decision, agent, arbiter, condition, refund_after)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (environment, decision) DO NOTHING";
const APPEND: &str = "/* escrows.append */
    INSERT INTO escrow_history (environment, escrow, number, state, disputed, at, note, settlement, next_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const DUE: &str = "/* escrows.due */ SELECT h.environment, h.escrow, h.number, h.attempts
    FROM escrow_history h WHERE h.settlement = 'pending' AND h.next_at <= $1
    AND NOT EXISTS (SELECT 1 FROM escrow_history b
    WHERE b.environment = h.environment AND b.escrow = h.escrow AND b.number < h.number
        AND b.settlement = 'pending')
    ORDER BY h.next_at LIMIT $2";
const PUT_OFF: &str = "/* escrows.put_off */ SELECT h.environment, h.escrow, h.number, h.attempts
    FROM escrow_history h WHERE h.settlement = 'pending' AND h.next_at > $1
    AND NOT EXISTS (SELECT 1 FROM escrow_history b
    WHERE b.environment = h.environment AND b.escrow = h.escrow AND b.number < h.number
        AND b.settlement = 'pending')
    ORDER BY h.next_at LIMIT $2";
const SETTLE: &str = "/* escrows.settle */
    UPDATE escrow_history SET settlement = $1, attempts = attempts + 1, next_at = $2
    WHERE environment = $3 AND escrow = $4 AND number = $5 AND settlement = 'pending'";
const CLAIM: &str = "/* escrows.claim */ UPDATE escrow_history SET next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND settlement = 'pending'
        AND (next_at <= $5 OR next_at > $6)";
const GIVE_BACK: &str = "/* escrows.give_back */ UPDATE escrow_history SET next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND settlement = 'pending' AND next_at = $5";
const REFUSED: &str = "/* escrows.refused */
    SELECT h.environment, o.name, e.kind, h.escrow, h.number, h.state, h.at, h.attempts
    FROM escrow_history h JOIN environments e ON e.environment = h.environment
    JOIN organizations o ON o.organization = e.organization
    WHERE h.settlement = 'refused' ORDER BY h.at, h.escrow, h.number";
const SEND_AGAIN: &str = "/* escrows.send_again */
    UPDATE escrow_history SET settlement = 'pending', next_at = $1
    WHERE environment = $2 AND escrow = $3 AND number = $4 AND settlement = 'refused'";
const FIND_OF_DECISION: &str = "/* escrows.find_of_decision */
    SELECT escrow FROM escrows WHERE environment = $1 AND decision = $2";
const HOLD: &str = "/* escrows.hold */
    SELECT 1 FROM escrows WHERE environment = $1 AND escrow = $2 FOR NO KEY UPDATE";
const HOLD_ANYWHERE: &str = "/* escrows.hold_anywhere */
    SELECT 1 FROM escrows WHERE escrow = $1 FOR NO KEY UPDATE";

const FIND: &str = "/* escrows.find */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note, h.settlement
    FROM (SELECT * FROM escrows WHERE environment = $1 AND escrow = $2) e
    JOIN environments n ON n.environment = e.environment
    JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    ORDER BY e.escrow ASC, h.number";
const FIND_CONTRACT: &str = "/* escrows.find_contract */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note, h.settlement
    FROM (SELECT * FROM escrows WHERE contract = $1) e
    JOIN environments n ON n.environment = e.environment
    JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    ORDER BY e.escrow ASC, h.number";
const OLDER: &str = "/* escrows.older */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note, h.settlement
    FROM (SELECT * FROM escrows WHERE environment = $1 AND escrow < $2 ORDER BY escrow DESC LIMIT $3) e
    JOIN environments n ON n.environment = e.environment
    JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    ORDER BY e.escrow DESC, h.number";
const NEWER: &str = "/* escrows.newer */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note, h.settlement
    FROM (SELECT * FROM escrows WHERE environment = $1 AND escrow > $2 ORDER BY escrow ASC LIMIT $3) e
    JOIN environments n ON n.environment = e.environment
    JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    ORDER BY e.escrow ASC, h.number";
const OLDER_OF_AGENT: &str = "/* escrows.older_of_agent */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note, h.settlement
    FROM (SELECT * FROM escrows WHERE environment = $1 AND agent = $2 AND escrow < $3 ORDER BY escrow DESC LIMIT $4) e
    JOIN environments n ON n.environment = e.environment
    JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    ORDER BY e.escrow DESC, h.number";
const NEWER_OF_AGENT: &str = "/* escrows.newer_of_agent */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note, h.settlement
    FROM (SELECT * FROM escrows WHERE environment = $1 AND agent = $2 AND escrow > $3 ORDER BY escrow ASC LIMIT $4) e
    JOIN environments n ON n.environment = e.environment
    JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    ORDER BY e.escrow ASC, h.number";

/// An escrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escrow {
    /// Its id.
    pub id: EscrowId,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// The address under which it is read without a key.
    pub contract: [u8; 32],
    /// The decision that it was made from.
    pub decision: DecisionId,
    /// The agent that pays.
    pub buyer: AgentId,
    /// The amount.
    pub amount: Amount,
    /// The currency.
    pub currency: Currency,
    /// The recipient.
    pub seller: Recipient,
    /// The arbiter of a dispute.
    pub arbiter: Option<String>,
    /// The condition of the release.
    pub condition: String,
    /// From when on the buyer may have the funds back.
    pub refund_after: Timestamp,
    /// The states that it has been in, oldest first.
    pub history: Vec<Entry>,
}

/// A state that an escrow has been in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The state.
    pub state: EscrowState,
    /// Whether the escrow had been disputed by then.
    pub disputed: bool,
    /// Since when.
    pub at: Timestamp,
    /// The note.
    pub note: Option<String>,
    /// The outcome of the instruction, if the state moves funds.
    pub settlement: Option<SettlementStatus>,
}

/// The outcome of an instruction to move funds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettlementStatus {
    /// It is recorded, and its outcome is not known yet.
    Pending,
    /// It was carried out.
    Settled,
    /// It will not be carried out.
    Refused,
}

impl SettlementStatus {
    /// The word, as bodies carry it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
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

impl Serialize for SettlementStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The key of a state of an escrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryKey {
    /// The tenant.
    pub environment: i64,
    /// The escrow.
    pub escrow: EscrowId,
    /// The place in its history, from 0 on.
    pub number: usize,
}

/// Writes an escrow, without its history. False if its decision has an escrow already.
pub fn insert(tx: &mut Tx<'_>, environment: i64, escrow: &Escrow) -> Result<bool, Fault> {
    let row: [Value; 8] = [
        environment.into(),
        escrow.id.to_bytes().into(),
        escrow.contract.into(),
        escrow.decision.to_bytes().into(),
        escrow.buyer.as_str().into(),
        escrow.arbiter.clone().into(),
        escrow.condition.clone().into(),
        escrow.refund_after.millis().into(),
    ];
    Ok(tx.execute(INSERT, &row)? == 1)
}

/// Writes the next state of an escrow that has been in `number` states.
pub fn append(
    tx: &mut Tx<'_>,
    environment: i64,
    escrow: EscrowId,
    number: usize,
    entry: &Entry,
) -> Result<(), Fault> {
    let pending = entry.settlement == Some(SettlementStatus::Pending);
    let row: [Value; 9] = [
        environment.into(),
        escrow.to_bytes().into(),
        place(number)?.into(),
        entry.state.as_str().into(),
        i64::from(entry.disputed).into(),
        entry.at.millis().into(),
        entry.note.clone().into(),
        entry.settlement.map(SettlementStatus::as_str).into(),
        pending.then_some(entry.at.millis()).into(),
    ];
    tx.execute_one(APPEND, &row)
}

/// At most `limit` instructions that are to be sent by `now`, or only after `latest`, each with its number of
/// attempts. An instruction waits for the earlier ones of its escrow.
pub fn due(
    tx: &mut Tx<'_>,
    now: Timestamp,
    latest: Timestamp,
    limit: i64,
) -> Result<Vec<(EntryKey, i64)>, Fault> {
    let mut rows = tx.query(DUE, &[now.millis().into(), limit.into()])?;
    rows.extend(tx.query(PUT_OFF, &[latest.millis().into(), limit.into()])?);
    let rows = rows.into_iter().take(usize::try_from(limit).unwrap_or_default());
    rows.map(|mut row| {
        let environment = row.integer()?;
        let escrow = EscrowId::from_bytes(row.bytes()?);
        let number =
            usize::try_from(row.integer()?).map_err(|_| Fault::new("database: escrow_history.number"))?;
        Ok((EntryKey { environment, escrow, number }, row.integer()?))
    })
    .collect()
}

/// Writes the outcome of an attempt at a pending instruction, and the time of the next attempt. An instruction that has
/// ended stays as it is.
pub fn settle(
    tx: &mut Tx<'_>,
    key: &EntryKey,
    status: SettlementStatus,
    next_at: Option<Timestamp>,
) -> Result<(), Fault> {
    let row: [Value; 5] = [
        status.as_str().into(),
        next_at.map(Timestamp::millis).into(),
        key.environment.into(),
        key.escrow.to_bytes().into(),
        place(key.number)?.into(),
    ];
    tx.execute(SETTLE, &row).map(|_| ())
}

/// Gives back a pending instruction that was taken until `until`. It is due at `at`, unless another server has taken it
/// since.
pub fn give_back(tx: &mut Tx<'_>, key: &EntryKey, until: Timestamp, at: Timestamp) -> Result<(), Fault> {
    let row: [Value; 5] = [
        at.millis().into(),
        key.environment.into(),
        key.escrow.to_bytes().into(),
        place(key.number)?.into(),
        until.millis().into(),
    ];
    tx.execute(GIVE_BACK, &row).map(|_| ())
}

/// Takes a pending instruction that is to be sent by `now`, or only after `latest`. At `until` it is due again,
/// even if this server dies. False if another server has taken it, or if it has ended.
pub fn claim(
    tx: &mut Tx<'_>,
    key: &EntryKey,
    now: Timestamp,
    latest: Timestamp,
    until: Timestamp,
) -> Result<bool, Fault> {
    let row: [Value; 6] = [
        until.millis().into(),
        key.environment.into(),
        key.escrow.to_bytes().into(),
        place(key.number)?.into(),
        now.millis().into(),
        latest.millis().into(),
    ];
    Ok(tx.execute(CLAIM, &row)? == 1)
}

fn place(number: usize) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Fault::new("an escrow's history is too long"))
}

/// The escrow that was made from a decision.
pub fn of_decision(
    tx: &mut Tx<'_>,
    environment: i64,
    decision: DecisionId,
) -> Result<Option<EscrowId>, Fault> {
    let row = tx.row(FIND_OF_DECISION, &[environment.into(), decision.to_bytes().into()])?;
    row.map(|mut row| Ok(EscrowId::from_bytes(row.bytes()?))).transpose()
}

/// One escrow.
pub fn find(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    Ok(from_rows(tx.query(FIND, &[environment.into(), id.to_bytes().into()])?)?.pop())
}

/// One escrow, locked until the transaction ends.
pub fn lock(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    tx.hold(HOLD, &[environment.into(), id.to_bytes().into()])?;
    find(tx, environment, id)
}

/// Locks an escrow of any tenant until the transaction ends: for operators only.
pub fn hold(tx: &mut Tx<'_>, id: EscrowId) -> Result<(), Fault> {
    tx.hold(HOLD_ANYWHERE, &[id.to_bytes().into()])
}

/// The escrow at an address, of any tenant.
pub fn at_address(tx: &mut Tx<'_>, contract: [u8; 32]) -> Result<Option<Escrow>, Fault> {
    Ok(from_rows(tx.query(FIND_CONTRACT, &[contract.into()])?)?.pop())
}

/// A slice of the escrows of an environment, or of one agent.
pub fn page(
    tx: &mut Tx<'_>,
    environment: i64,
    agent: Option<&AgentId>,
    slice: &Slice,
) -> Result<Vec<Escrow>, Fault> {
    let (all, of_agent) = match slice.direction {
        Direction::Older => (OLDER, OLDER_OF_AGENT),
        Direction::Newer => (NEWER, NEWER_OF_AGENT),
    };
    let (from, limit) = (slice.from.into(), slice.limit.into());
    from_rows(match agent {
        None => tx.query(all, &[environment.into(), from, limit])?,
        Some(agent) => tx.query(of_agent, &[environment.into(), agent.as_str().into(), from, limit])?,
    })
}

/// Makes escrows from rows. The rows of one escrow are together, in the order of its states.
fn from_rows(rows: Vec<Row>) -> Result<Vec<Escrow>, Fault> {
    let mut escrows: Vec<Escrow> = Vec::new();
    for mut row in rows {
        let escrow = read(&mut row)?;
        let entry = Entry {
            state: EscrowState::parse(&row.text()?)?,
            disputed: row.integer()? != 0,
            at: Timestamp::from_millis(row.integer()?),
            note: row.maybe_text()?,
            settlement: row.maybe_text()?.map(|status| SettlementStatus::parse(&status)).transpose()?,
        };
        match escrows.last_mut().filter(|last| last.id == escrow.id) {
            Some(last) => last.history.push(entry),
            None => escrows.push(Escrow { history: vec![entry], ..escrow }),
        }
    }
    Ok(escrows)
}

fn read(row: &mut Row) -> Result<Escrow, Fault> {
    Ok(Escrow {
        id: EscrowId::from_bytes(row.bytes()?),
        kind: kind(&row.text()?)?,
        contract: row.bytes()?,
        decision: DecisionId::from_bytes(row.bytes()?),
        buyer: AgentId::parse(&row.text()?)?,
        amount: Amount::parse(&row.text()?)?,
        currency: Currency::parse(&row.text()?)?,
        seller: Recipient::parse(&row.text()?)?,
        arbiter: row.maybe_text()?,
        condition: row.text()?,
        refund_after: Timestamp::from_millis(row.integer()?),
        history: Vec::new(),
    })
}

/// An instruction that the provider has refused.
#[derive(Debug)]
pub struct RefusedEntry {
    /// The tenant.
    pub environment: i64,
    /// The name of its organization.
    pub organization: String,
    /// The kind of the environment.
    pub kind: EnvironmentKind,
    /// The escrow.
    pub escrow: EscrowId,
    /// The state's place in its history.
    pub number: i64,
    /// The state that moves the funds.
    pub state: EscrowState,
    /// When the escrow entered that state.
    pub at: Timestamp,
    /// How often the instruction was sent.
    pub attempts: i64,
}

/// The refused instructions of all tenants, oldest first. Reads the whole history: for operators only.
pub fn refused(tx: &mut Tx<'_>) -> Result<Vec<RefusedEntry>, Fault> {
    let rows = tx.query(REFUSED, &[])?.into_iter();
    rows.map(|mut row| {
        Ok(RefusedEntry {
            environment: row.integer()?,
            organization: row.text()?,
            kind: kind(&row.text()?)?,
            escrow: EscrowId::from_bytes(row.bytes()?),
            number: row.integer()?,
            state: EscrowState::parse(&row.text()?)?,
            at: Timestamp::from_millis(row.integer()?),
            attempts: row.integer()?,
        })
    })
    .collect()
}

/// Makes a refused instruction pending again, due at `at`.
pub fn send_again(tx: &mut Tx<'_>, entry: &RefusedEntry, at: Timestamp) -> Result<(), Fault> {
    let escrow = entry.escrow.to_bytes().into();
    tx.execute_one(SEND_AGAIN, &[at.millis().into(), entry.environment.into(), escrow, entry.number.into()])
}
