//! The witnesses that are asked to cosign checkpoints of the public logs.

use mandate_core::Timestamp;
use mandate_core::log::VerifierKey;

use crate::error::Fault;
use crate::store::tx::Tx;

const INSERT: &str = "/* witnesses.insert */
    INSERT INTO log_witnesses (verifier_key, url, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
const ALL: &str =
    "/* witnesses.all */ SELECT verifier_key, url, created_at FROM log_witnesses ORDER BY verifier_key";
const REMOVE: &str = "/* witnesses.remove */ DELETE FROM log_witnesses WHERE verifier_key = $1";

/// A witness.
#[derive(Debug)]
pub struct Witness {
    /// The key of its cosignatures.
    pub key: VerifierKey,
    /// Where it is asked, without `/add-checkpoint`.
    pub url: String,
    /// Since when it is asked.
    pub created_at: Timestamp,
}

/// Writes a witness. Returns false if its key or its URL is there.
pub fn insert(tx: &mut Tx<'_>, witness: &Witness) -> Result<bool, Fault> {
    let Witness { key, url, created_at } = witness;
    let row = [key.to_string().into(), url.as_str().into(), created_at.millis().into()];
    Ok(tx.execute(INSERT, &row)? == 1)
}

/// All witnesses.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<Witness>, Fault> {
    let rows = tx.query(ALL, &[])?.into_iter();
    rows.map(|mut row| {
        let key = row.text()?;
        let key = VerifierKey::parse(&key)
            .map_err(|e| Fault::corrupt(format!("database: the key `{key}` of a witness: {e}")))?;
        Ok(Witness { key, url: row.text()?, created_at: Timestamp::from_millis(row.integer()?) })
    })
    .collect()
}

/// Removes a witness. Returns false if there is none with this key.
pub fn remove(tx: &mut Tx<'_>, key: &str) -> Result<bool, Fault> {
    Ok(tx.execute(REMOVE, &[key.into()])? == 1)
}
