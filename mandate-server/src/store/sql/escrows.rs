//! Escrows and the states that they have been in.

use mandate_core::{
    AgentId, Amount, Currency, DecisionId, EnvironmentKind, EscrowId, EscrowState, Recipient, Timestamp,
    Verdict,
};

use super::decisions;
use super::instructions::{self, Instruction};
use super::keys::kind;
use crate::error::Fault;
use crate::model::records::{Direction, Slice};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* escrows.insert */
    INSERT INTO escrows (environment, escrow, contract, decision, agent, arbiter, condition, refund_after)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (environment, decision) DO NOTHING";
const APPEND: &str = "/* escrows.append */
    INSERT INTO escrow_history (environment, escrow, number, state, disputed, at, note)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const FIND_OF_DECISION: &str = "/* escrows.find_of_decision */
    SELECT escrow FROM escrows WHERE environment = $1 AND decision = $2";
const HOLD: &str = "/* escrows.hold */
    SELECT 1 FROM escrows WHERE environment = $1 AND escrow = $2 FOR NO KEY UPDATE";
const HOLD_ANYWHERE: &str = "/* escrows.hold_anywhere */
    SELECT 1 FROM escrows WHERE escrow = $1 FOR NO KEY UPDATE";

// These select a row for each state that an escrow has been in, with its newest instruction. What is not there is read as
// null, which is a fault: an escrow is not hidden by it.
const FIND: &str = "/* escrows.find */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM (SELECT * FROM escrows WHERE environment = $1 AND escrow = $2) e
    LEFT JOIN environments n ON n.environment = e.environment
    LEFT JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    LEFT JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    LEFT JOIN instructions i ON i.environment = e.environment AND i.escrow = e.escrow AND i.number = (
        SELECT MAX(m.number) FROM instructions m WHERE m.environment = e.environment AND m.escrow = e.escrow)
    ORDER BY e.escrow ASC, h.number";
const FIND_CONTRACT: &str = "/* escrows.find_contract */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM (SELECT * FROM escrows WHERE contract = $1) e
    LEFT JOIN environments n ON n.environment = e.environment
    LEFT JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    LEFT JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    LEFT JOIN instructions i ON i.environment = e.environment AND i.escrow = e.escrow AND i.number = (
        SELECT MAX(m.number) FROM instructions m WHERE m.environment = e.environment AND m.escrow = e.escrow)
    ORDER BY e.escrow ASC, h.number";
const OLDER: &str = "/* escrows.older */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM (SELECT * FROM escrows WHERE environment = $1 AND escrow < $2 ORDER BY escrow DESC LIMIT $3) e
    LEFT JOIN environments n ON n.environment = e.environment
    LEFT JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    LEFT JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    LEFT JOIN instructions i ON i.environment = e.environment AND i.escrow = e.escrow AND i.number = (
        SELECT MAX(m.number) FROM instructions m WHERE m.environment = e.environment AND m.escrow = e.escrow)
    ORDER BY e.escrow DESC, h.number";
const NEWER: &str = "/* escrows.newer */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM (SELECT * FROM escrows WHERE environment = $1 AND escrow > $2 ORDER BY escrow ASC LIMIT $3) e
    LEFT JOIN environments n ON n.environment = e.environment
    LEFT JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    LEFT JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    LEFT JOIN instructions i ON i.environment = e.environment AND i.escrow = e.escrow AND i.number = (
        SELECT MAX(m.number) FROM instructions m WHERE m.environment = e.environment AND m.escrow = e.escrow)
    ORDER BY e.escrow ASC, h.number";
const OLDER_OF_AGENT: &str = "/* escrows.older_of_agent */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM (SELECT * FROM escrows WHERE environment = $1 AND agent = $2 AND escrow < $3 ORDER BY escrow DESC LIMIT $4) e
    LEFT JOIN environments n ON n.environment = e.environment
    LEFT JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    LEFT JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    LEFT JOIN instructions i ON i.environment = e.environment AND i.escrow = e.escrow AND i.number = (
        SELECT MAX(m.number) FROM instructions m WHERE m.environment = e.environment AND m.escrow = e.escrow)
    ORDER BY e.escrow DESC, h.number";
const NEWER_OF_AGENT: &str = "/* escrows.newer_of_agent */
    SELECT e.escrow, n.kind, e.contract, e.decision, e.agent, d.amount, d.currency, d.recipient, e.arbiter,
        e.condition, e.refund_after, h.state, h.disputed, h.at, h.note,
        i.number, i.action, i.attempt, i.at, i.note, i.status, i.reason
    FROM (SELECT * FROM escrows WHERE environment = $1 AND agent = $2 AND escrow > $3 ORDER BY escrow ASC LIMIT $4) e
    LEFT JOIN environments n ON n.environment = e.environment
    LEFT JOIN decisions d ON d.environment = e.environment AND d.decision = e.decision
    LEFT JOIN escrow_history h ON h.environment = e.environment AND h.escrow = e.escrow
    LEFT JOIN instructions i ON i.environment = e.environment AND i.escrow = e.escrow AND i.number = (
        SELECT MAX(m.number) FROM instructions m WHERE m.environment = e.environment AND m.escrow = e.escrow)
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
    /// The newest instruction to move its funds. None only until the first is written.
    pub instruction: Option<Instruction>,
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
}

/// Writes an escrow, without its history and instructions. False if its decision has an escrow already.
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
    let row: [Value; 7] = [
        environment.into(),
        escrow.to_bytes().into(),
        i64::try_from(number).map_err(|_| Fault::new("an escrow's history is too long"))?.into(),
        entry.state.as_str().into(),
        i64::from(entry.disputed).into(),
        entry.at.millis().into(),
        entry.note.clone().into(),
    ];
    tx.execute_one(APPEND, &row)
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

/// One escrow, whose funds are to be moved.
///
/// # Errors
/// The checksum of its decision does not hold, or the decision does not allow the buyer a payment.
pub fn find_sound(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    let Some(escrow) = find(tx, environment, id)? else { return Ok(None) };
    let decision = decisions::find_sound(tx, environment, escrow.decision)?.map(|whole| whole.decision);
    if decision.is_some_and(|of| of.verdict == Verdict::Allow && of.request.agent == escrow.buyer) {
        return Ok(Some(escrow));
    }
    let decision = escrow.decision;
    Err(Fault::corrupt(format!(
        "database: escrows {id}: its decision {decision} allows its buyer no payment"
    )))
}

/// One escrow to be moved on, locked until the transaction ends.
///
/// # Errors
/// Those of [`find_sound`].
pub fn lock(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    tx.hold(HOLD, &[environment.into(), id.to_bytes().into()])?;
    find_sound(tx, environment, id)
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
        };
        if let Some(last) = escrows.last_mut().filter(|last| last.id == escrow.id) {
            last.history.push(entry);
        } else {
            let instruction = Some(instructions::read(&mut row)?);
            escrows.push(Escrow { history: vec![entry], instruction, ..escrow });
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
        instruction: None,
    })
}
