//! How often operators' commands have written to a SQLite database: by this the server tells them from other programs.

use crate::error::Fault;
use crate::store::tx::Tx;

const COUNT: &str = "/* operated.count */ SELECT revision FROM revisions WHERE name = 'operator'";
const ADD: &str = "/* operated.add */
    UPDATE revisions SET revision = revision + 1 WHERE name = 'operator'";

/// How often they have.
pub fn count(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    let row = tx.row(COUNT, &[])?;
    row.ok_or_else(|| Fault::corrupt("database: the revision of operators is lost"))?.integer()
}

/// Counts one more.
pub fn add(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.execute_one(ADD, &[])
}
