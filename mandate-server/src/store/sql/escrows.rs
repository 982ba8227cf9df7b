//! Escrows and the states that they have been in.

use mandate_core::{
    AgentId, Amount, Currency, DecisionId, EnvironmentKind, EscrowId, EscrowState, Recipient, Timestamp,
    Verdict,
};

use super::checksums::{DamagedRow, ESCROWS};
use super::decisions;
use super::instructions::{self, Instruction};
use super::keys::kind;
use crate::error::Fault;
use crate::model::records::{DecisionRecord, Direction, Slice};
use crate::store::tx::{Backend, Row, Tx, Value};

/// By how much an escrow's id may be older than its decision, in seconds: a clock may be a little behind its mark.
const SKEW_SECONDS: i64 = 60;
/// How many escrows are checked at a time.
const PAGE: i64 = 1_024;

const INSERT: &str = "/* escrows.insert */
    INSERT INTO escrows (environment, escrow, contract, decision, agent, arbiter, condition, refund_after)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (environment, decision) DO NOTHING";
const APPEND: &str = "/* escrows.append */
    INSERT INTO escrow_history (environment, escrow, number, state, disputed, at, note)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const FIND_OF_DECISION: &str = "/* escrows.find_of_decision */
    SELECT escrow FROM escrows WHERE environment = $1 AND decision = $2";
const SINCE: &str = "/* escrows.since */
    SELECT escrow FROM escrows WHERE environment = $1 AND agent = $2 AND escrow >= $3";
const CHECKSUM: &str = "/* escrows.checksum */
    SELECT checksum FROM escrows WHERE environment = $1 AND escrow = $2";
const SEAL: &str = "/* escrows.seal */
    UPDATE escrows SET checksum = $1 WHERE environment = $2 AND escrow = $3";
const ALL: &str = "/* escrows.all */ SELECT environment, escrow FROM escrows
    WHERE (environment, escrow) > ($1, $2) ORDER BY environment, escrow LIMIT $3";
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

impl Escrow {
    /// Its row. Its amount, currency and seller are its decision's.
    fn row(&self, environment: i64) -> [Value; 8] {
        [
            environment.into(),
            self.id.to_bytes().into(),
            self.contract.into(),
            self.decision.to_bytes().into(),
            self.buyer.as_str().into(),
            self.arbiter.clone().into(),
            self.condition.clone().into(),
            self.refund_after.millis().into(),
        ]
    }

    /// The checksum of its row, its states and its newest instruction.
    fn checksum(&self, environment: i64) -> Value {
        let mut values = self.row(environment).to_vec();
        for Entry { state, disputed, at, note } in &self.history {
            let disputed = i64::from(*disputed).into();
            values.extend([state.as_str().into(), disputed, at.millis().into(), note.clone().into()]);
        }
        if let Some(newest) = &self.instruction {
            let Instruction { number, action, attempt, at, note, status, reason } = newest;
            values.extend([*number, *attempt, at.millis()].map(Value::from));
            values.extend([action.as_str().into(), note.clone().into()]);
            values.extend([status.as_str().into(), reason.clone().into()]);
        }
        ESCROWS.checksum(&values)
    }
}

/// Writes an escrow, without its history and instructions. False if its decision has an escrow already.
pub fn insert(tx: &mut Tx<'_>, environment: i64, escrow: &Escrow) -> Result<bool, Fault> {
    Ok(tx.execute(INSERT, &escrow.row(environment))? == 1)
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

/// The escrow that was made from a decision, as the index by decision finds it.
pub fn of_decision(tx: &mut Tx<'_>, decision: &DecisionRecord) -> Result<Option<EscrowId>, Fault> {
    let row = tx.row(FIND_OF_DECISION, &[decision.environment.into(), decision.id.to_bytes().into()])?;
    row.map(|mut row| Ok(EscrowId::from_bytes(row.bytes()?))).transpose()
}

/// Looks on SQLite whether the index by decision hides an escrow of a decision: reads all that its agent has opened since.
///
/// # Errors
/// One of them is damaged, or is the decision's.
pub fn none_is_hidden(tx: &mut Tx<'_>, decision: &DecisionRecord) -> Result<(), Fault> {
    let environment = decision.environment;
    if tx.backend() == Backend::Sqlite {
        let since = EscrowId::new(decision.decided_at.plus_seconds(-SKEW_SECONDS), 0).to_bytes();
        let agent = decision.request.agent.as_str();
        for mut row in tx.query(SINCE, &[environment.into(), agent.into(), since.into()])? {
            let id = EscrowId::from_bytes(row.bytes()?);
            if whole(tx, environment, id)?.is_none_or(|escrow| escrow.decision == decision.id) {
                return Err(damaged(environment, id, "it is not found"));
            }
        }
    }
    Ok(())
}

/// One escrow.
pub fn find(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    Ok(from_rows(tx.query(FIND, &[environment.into(), id.to_bytes().into()])?)?.pop())
}

/// One escrow, whose checksum must hold on SQLite.
fn whole(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    let Some(escrow) = find(tx, environment, id)? else { return Ok(None) };
    if tx.backend() == Backend::Sqlite {
        let checksum = tx.one_row(CHECKSUM, &[environment.into(), id.to_bytes().into()])?;
        if checksum.rest() != [escrow.checksum(environment)] {
            return Err(damaged(environment, id, "its checksum is not that of its values"));
        }
    }
    Ok(Some(escrow))
}

/// Writes the checksum of an escrow that was changed in this transaction, on SQLite.
pub fn seal(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<(), Fault> {
    if tx.backend() != Backend::Sqlite {
        return Ok(());
    }
    let escrow = find(tx, environment, id)?.ok_or_else(|| damaged(environment, id, "it is not there"))?;
    tx.execute_one(SEAL, &[escrow.checksum(environment), environment.into(), id.to_bytes().into()])
}

fn damaged(environment: i64, id: EscrowId, what: &str) -> Fault {
    ESCROWS.damaged(&[environment.into(), id.to_bytes().into()], what)
}

/// Calls `found` for each escrow that is damaged, on SQLite.
pub fn broken(tx: &mut Tx<'_>, found: &mut dyn FnMut(DamagedRow)) -> Result<(), Fault> {
    if tx.backend() != Backend::Sqlite {
        return Ok(());
    }
    let mut last: (i64, Vec<u8>) = (i64::MIN, Vec::new());
    loop {
        let rows = tx.query(ALL, &[last.0.into(), last.1.into(), PAGE.into()])?;
        if rows.is_empty() {
            return Ok(());
        }
        last = (0, Vec::new());
        for mut row in rows {
            let (environment, id) = (row.integer()?, EscrowId::from_bytes(row.bytes()?));
            last = (environment, id.to_bytes().to_vec());
            match whole(tx, environment, id) {
                Ok(Some(_)) => {}
                Ok(None) | Err(Fault::Corrupt(_)) => {
                    found(DamagedRow { environment: Some(environment), id: id.to_string() });
                }
                Err(fault) => return Err(fault),
            }
        }
    }
}

/// One escrow, whose funds are to be moved.
///
/// # Errors
/// Its checksum or that of its decision does not hold, or the decision does not allow the buyer a payment.
pub fn find_sound(tx: &mut Tx<'_>, environment: i64, id: EscrowId) -> Result<Option<Escrow>, Fault> {
    let Some(escrow) = whole(tx, environment, id)? else { return Ok(None) };
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
