//! Checks whether each answer kept under an idempotency key could be sent again.

use serde::de::IgnoredAny;

use super::{Finding, Listener};
use crate::error::Fault;
use crate::store::sql::check::{self as rows, Kept};
use crate::store::tx::Tx;

/// How many answers are held in memory at a time.
const PAGE: i64 = 512;
/// Bytes of a fingerprint, which is a SHA-256.
const FINGERPRINT: usize = 32;

pub(super) fn walk(tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<(), Fault> {
    let mut page = rows::kept(tx, (i64::MIN, i64::MIN, ""), PAGE)?;
    while let Some(last) = page.last() {
        let next = rows::kept(tx, (last.environment, last.api_key, &last.name), PAGE)?;
        for kept in page {
            if let Some((found, expected)) = wrong(&kept) {
                listener.finding(Finding::row("idempotency", kept.environment, kept.name, found, expected));
            }
        }
        page = next;
    }
    Ok(())
}

fn wrong(kept: &Kept) -> Option<(String, &'static str)> {
    let answered = matches!(kept.status, 200..=299 | 400..=499) && !matches!(kept.status, 401 | 403 | 429);
    if !answered {
        return Some((format!("status {}", kept.status), "2xx, or 4xx other than 401, 403 and 429"));
    }
    if kept.fingerprint.len() != FINGERPRINT {
        return Some((format!("a fingerprint of {} bytes", kept.fingerprint.len()), "32 bytes"));
    }
    let readable = match (kept.sealed, kept.status) {
        (0, 204) => kept.body.is_empty(),
        (0, _) => serde_json::from_slice::<IgnoredAny>(&kept.body).is_ok(),
        (1, _) => !kept.body.is_empty(),
        _ => false,
    };
    (!readable).then(|| ("a body that cannot be answered".to_owned(), "JSON, or a sealed answer"))
}
