//! The public logs: their trees, what waits to be appended, and where a token's entry is.

use mandate_core::log::{Frontier, Hash, TILE_WIDTH};
use mandate_core::{EnvironmentKind, Timestamp};

use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Row, Tx, Value};

const HOLD: &str = "/* public_log.hold */ SELECT 1 FROM logs WHERE log = $1 FOR UPDATE";
const OF_KIND: &str = "/* public_log.of_kind */
    SELECT log, kind, origin, verifier_key, sealed, created_at, size, frontier, indexed, key_entries, signed,
        checkpoint, witnessed, stopped
    FROM logs WHERE kind = $1 ORDER BY log DESC";
const INSERT: &str = "/* public_log.insert */
    INSERT INTO logs (kind, origin, verifier_key, sealed, created_at, frontier) VALUES ($1, $2, $3, $4, $5, $6)";
const GROW: &str = "/* public_log.grow */
    UPDATE logs SET size = $1, frontier = $2, indexed = $3, key_entries = $4 WHERE log = $5";
const PUT_CHECKPOINTS: &str = "/* public_log.put_checkpoints */
    UPDATE logs SET signed = $1, checkpoint = $2, witnessed = $3 WHERE log = $4";
const STOP: &str = "/* public_log.stop */ UPDATE logs SET stopped = $1 WHERE log = $2";
const STOP_ALL: &str =
    "/* public_log.stop_all */ UPDATE logs SET stopped = $1 WHERE stopped IS NULL AND size > 0";
const SEAL: &str = "/* public_log.seal */ UPDATE logs SET sealed = $1 WHERE log = $2";

const SECRET: &str = "/* public_log.secret */ SELECT sealed FROM log_secret WHERE one = 1";
const LACKS_SECRET: &str = "/* public_log.lacks_secret */
    SELECT 1 FROM logs WHERE NOT EXISTS (SELECT 1 FROM log_secret WHERE one = 1) LIMIT 1";
const INSERT_SECRET: &str =
    "/* public_log.insert_secret */ INSERT INTO log_secret (one, sealed) VALUES (1, $1)";
const SEAL_SECRET: &str = "/* public_log.seal_secret */ UPDATE log_secret SET sealed = $1 WHERE one = 1";

const ADD: &str = "/* public_log.add */ INSERT INTO log_pending (kind, at, entries) VALUES ($1, $2, $3)";
const PENDING: &str = "/* public_log.pending */
    SELECT pending, at, entries FROM log_pending WHERE kind = $1 ORDER BY pending LIMIT $2";
const TAKE: &str = "/* public_log.take */ DELETE FROM log_pending WHERE pending = $1";
const OLDEST: &str = "/* public_log.oldest */ SELECT MIN(at) FROM log_pending";

const TILE: &str =
    "/* public_log.tile */ SELECT content FROM log_tiles WHERE log = $1 AND level = $2 AND tile = $3";
const PUT_TILE: &str = "/* public_log.put_tile */
    INSERT INTO log_tiles (log, level, tile, content) VALUES ($1, $2, $3, $4)
    ON CONFLICT (log, level, tile) DO UPDATE SET content = excluded.content";
const REMOVE_TILE: &str =
    "/* public_log.remove_tile */ DELETE FROM log_tiles WHERE log = $1 AND level = $2 AND tile = $3";

const PLACES: &str =
    "/* public_log.places */ SELECT run, places FROM log_index WHERE log = $1 AND first = $2";
const PUT_PLACES: &str = "/* public_log.put_places */
    INSERT INTO log_index (log, first, run, places) VALUES ($1, $2, $3, $4)
    ON CONFLICT (log, first, run) DO UPDATE SET places = excluded.places";
const CUT_PLACES: &str = "/* public_log.cut_places */ DELETE FROM log_index WHERE log = $1 AND run >= $2";

/// A public log.
#[derive(Debug, Clone)]
pub struct PublicLog {
    /// Its number.
    pub id: i64,
    /// Whose decisions are in it: those of sandboxes, or of production environments.
    pub kind: EnvironmentKind,
    /// Its name, in its checkpoints.
    pub origin: String,
    /// The key that verifies them, as it is published.
    pub verifier_key: String,
    /// The private part, encrypted.
    pub sealed: Vec<u8>,
    /// When it began.
    pub created_at: Timestamp,
    /// The right edge of its tree.
    pub tree: Frontier,
    /// How many of its entries are found by the index.
    pub indexed: u64,
    /// Where the entries of signing keys are: for each a line with its number and the key's id.
    pub key_entries: String,
    /// A checkpoint that was signed, and that witnesses may have cosigned: it is not published yet.
    pub signed: Option<String>,
    /// The newest published checkpoint.
    pub checkpoint: Option<String>,
    /// The newest one that had its quorum of witnesses.
    pub witnessed: Option<String>,
    /// Why nothing is appended.
    pub stopped: Option<String>,
}

/// What one transaction left to be appended.
#[derive(Debug)]
pub struct Pending {
    /// Its number.
    pub id: i64,
    /// When its first entry was made.
    pub at: Timestamp,
    /// The entries, each with its length before it.
    pub entries: Vec<u8>,
}

/// A tile by its place: of hashes at a level from 0 to 7, or of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TilePlace {
    /// The level; -1 for entries.
    pub level: i64,
    /// The number in its level, from 0.
    pub tile: i64,
}

/// The level of the bundles of entries.
pub const ENTRIES: i64 = -1;

/// Locks a log until the transaction ends.
pub fn hold(tx: &mut Tx<'_>, log: i64) -> Result<(), Fault> {
    tx.hold(HOLD, &[log.into()])
}

/// The logs of a kind, the newest first: that one grows.
pub fn of_kind(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<Vec<PublicLog>, Fault> {
    tx.query(OF_KIND, &[kind.as_str().into()])?.into_iter().map(read).collect()
}

/// The log of a kind that grows.
pub fn newest(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<PublicLog, Fault> {
    let newest = of_kind(tx, kind)?.into_iter().next();
    newest.ok_or_else(|| Fault::corrupt(format!("database: there is no public log of the kind {kind}")))
}

/// Writes a log without entries.
pub fn insert(
    tx: &mut Tx<'_>,
    kind: EnvironmentKind,
    (origin, verifier_key): (&str, &str),
    sealed: Vec<u8>,
    at: Timestamp,
) -> Result<(), Fault> {
    let row = [
        kind.as_str().into(),
        origin.into(),
        verifier_key.into(),
        sealed.into(),
        at.millis().into(),
        Vec::new().into(),
    ];
    tx.execute_one(INSERT, &row)
}

/// Writes that a log has grown.
pub fn grow(tx: &mut Tx<'_>, log: &PublicLog) -> Result<(), Fault> {
    let edge: Vec<u8> = log.tree.hashes().iter().flat_map(Hash::as_bytes).copied().collect();
    let (size, indexed) = (number(log.tree.size())?, number(log.indexed)?);
    let keys = log.key_entries.as_str().into();
    tx.execute_one(GROW, &[size.into(), edge.into(), indexed.into(), keys, log.id.into()])
}

/// Writes which checkpoints of a log are signed and published.
pub fn put_checkpoints(tx: &mut Tx<'_>, log: &PublicLog) -> Result<(), Fault> {
    let checkpoints = [&log.signed, &log.checkpoint, &log.witnessed];
    let [signed, checkpoint, witnessed] = checkpoints.map(|text| text.as_deref().into());
    tx.execute_one(PUT_CHECKPOINTS, &[signed, checkpoint, witnessed, log.id.into()])
}

/// Writes why nothing is appended to a log any more; or that it goes on.
pub fn stop(tx: &mut Tx<'_>, log: i64, reason: Option<&str>) -> Result<(), Fault> {
    tx.execute_one(STOP, &[reason.into(), log.into()])
}

/// Stops every log that has entries and is not stopped.
pub fn stop_all(tx: &mut Tx<'_>, reason: &str) -> Result<(), Fault> {
    tx.execute(STOP_ALL, &[reason.into()]).map(drop)
}

/// Writes the private part of a log's key, encrypted under another master key.
pub fn seal(tx: &mut Tx<'_>, log: i64, sealed: Vec<u8>) -> Result<(), Fault> {
    tx.execute_one(SEAL, &[sealed.into(), log.into()])
}

/// The secret of which those of the environments are made, encrypted.
pub fn secret(tx: &mut Tx<'_>) -> Result<Option<Vec<u8>>, Fault> {
    tx.row(SECRET, &[])?.map(|mut row| row.blob()).transpose()
}

/// Whether there is a log, and no secret.
pub fn lacks_secret(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    Ok(tx.row(LACKS_SECRET, &[])?.is_some())
}

/// Writes this secret: the first, or the same one under another master key.
pub fn put_secret(tx: &mut Tx<'_>, sealed: Vec<u8>, is_first: bool) -> Result<(), Fault> {
    tx.execute_one(if is_first { INSERT_SECRET } else { SEAL_SECRET }, &[sealed.into()])
}

/// Has entries appended, once the transaction has been committed.
pub fn add(tx: &mut Tx<'_>, kind: EnvironmentKind, at: Timestamp, entries: Vec<u8>) -> Result<(), Fault> {
    tx.execute_one(ADD, &[kind.as_str().into(), at.millis().into(), entries.into()])
}

/// What waits to be appended to the logs of a kind, at most `limit` transactions of it.
pub fn pending(tx: &mut Tx<'_>, kind: EnvironmentKind, limit: i64) -> Result<Vec<Pending>, Fault> {
    let rows = tx.query(PENDING, &[kind.as_str().into(), limit.into()])?.into_iter();
    rows.map(|mut row| {
        Ok(Pending { id: row.integer()?, at: Timestamp::from_millis(row.integer()?), entries: row.blob()? })
    })
    .collect()
}

/// Removes what is appended in this transaction.
pub fn take(tx: &mut Tx<'_>, pending: &Pending) -> Result<(), Fault> {
    tx.execute_one(TAKE, &[pending.id.into()])
}

/// When the oldest decision was made whose entry waits to be appended.
pub fn oldest(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    Ok(tx.one_row(OLDEST, &[])?.maybe_integer()?.map(Timestamp::from_millis))
}

/// What a tile holds.
pub fn tile(tx: &mut Tx<'_>, log: i64, place: TilePlace) -> Result<Option<Vec<u8>>, Fault> {
    let key = [log.into(), place.level.into(), place.tile.into()];
    tx.row(TILE, &key)?.map(|mut row| row.blob()).transpose()
}

/// Writes a tile.
pub fn put_tile(tx: &mut Tx<'_>, log: i64, place: TilePlace, content: Vec<u8>) -> Result<(), Fault> {
    tx.execute_one(PUT_TILE, &[log.into(), place.level.into(), place.tile.into(), content.into()])
}

/// Removes a tile.
pub fn remove_tile(tx: &mut Tx<'_>, log: i64, place: TilePlace) -> Result<(), Fault> {
    tx.execute_one(REMOVE_TILE, &[log.into(), place.level.into(), place.tile.into()])
}

/// Removes a run of the index and those behind it.
pub fn cut_places(tx: &mut Tx<'_>, log: i64, run: u64) -> Result<(), Fault> {
    tx.execute(CUT_PLACES, &[log.into(), number(run)?.into()]).map(drop)
}

/// For each run of the index, the places of the hashes that begin with `first`.
pub fn places(tx: &mut Tx<'_>, log: i64, first: u8) -> Result<Vec<(u64, Vec<u8>)>, Fault> {
    let rows = tx.query(PLACES, &[log.into(), i64::from(first).into()])?.into_iter();
    rows.map(|mut row| Ok((unsigned(row.integer()?)?, row.blob()?))).collect()
}

/// Writes the places of a run's hashes that begin with `first`.
pub fn put_places(tx: &mut Tx<'_>, log: i64, first: u8, run: u64, places: Vec<u8>) -> Result<(), Fault> {
    let row: [Value; 4] = [log.into(), i64::from(first).into(), number(run)?.into(), places.into()];
    tx.execute_one(PUT_PLACES, &row)
}

/// The number of the tile that has an entry, or a node at the tile's level.
pub fn tile_of(index: u64) -> Result<i64, Fault> {
    number(index / u64::from(TILE_WIDTH))
}

fn read(mut row: Row) -> Result<PublicLog, Fault> {
    let (id, of, origin) = (row.integer()?, kind(&row.text()?)?, row.text()?);
    let (verifier_key, sealed) = (row.text()?, row.blob()?);
    let (created_at, size, edge) = (Timestamp::from_millis(row.integer()?), row.integer()?, row.blob()?);
    let (hashes, rest) = edge.as_chunks();
    let tree = Frontier::new(unsigned(size)?, hashes.iter().copied().map(Hash::new).collect());
    let tree = tree.filter(|_| rest.is_empty());
    Ok(PublicLog {
        id,
        kind: of,
        tree: tree
            .ok_or_else(|| Fault::corrupt(format!("database: the tree of the log {origin} is damaged")))?,
        origin,
        verifier_key,
        sealed,
        created_at,
        indexed: unsigned(row.integer()?)?,
        key_entries: row.text()?,
        signed: row.maybe_text()?,
        checkpoint: row.maybe_text()?,
        witnessed: row.maybe_text()?,
        stopped: row.maybe_text()?,
    })
}

fn number(value: u64) -> Result<i64, Fault> {
    i64::try_from(value).map_err(|_| Fault::new("a public log has no more room"))
}

fn unsigned(value: i64) -> Result<u64, Fault> {
    u64::try_from(value).map_err(|_| Fault::corrupt("database: a public log has a negative number"))
}
