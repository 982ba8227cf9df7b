//! The newest ids that are stored, which new ones are to be greater than.

use crate::error::Fault;
use crate::store::tx::Tx;

/// The newest id of each kind beside decisions. SQLite alone has a greatest one of bytes.
const OTHERS: &str = "/* newest.others */
    SELECT MAX((SELECT MAX(v.event) FROM events v WHERE v.environment = e.environment)),
        MAX((SELECT MAX(m.mandate) FROM mandates m WHERE m.environment = e.environment)),
        MAX((SELECT MAX(r.review) FROM reviews r WHERE r.environment = e.environment)),
        MAX((SELECT MAX(a.position) FROM agents a WHERE a.environment = e.environment)),
        MAX((SELECT MAX(w.webhook) FROM webhooks w WHERE w.environment = e.environment)),
        MAX((SELECT MAX(s.escrow) FROM escrows s WHERE s.environment = e.environment)),
        MAX((SELECT MAX(x.export) FROM exports x WHERE x.environment = e.environment))
    FROM environments e";

/// The newest id of all environments that is not a decision's.
pub fn others(tx: &mut Tx<'_>) -> Result<Option<[u8; 16]>, Fault> {
    let Some(mut row) = tx.row(OTHERS, &[])? else { return Ok(None) };
    let kinds = (0..7).map(|_| row.maybe_bytes()).collect::<Result<Vec<_>, _>>()?;
    Ok(kinds.into_iter().flatten().max())
}
