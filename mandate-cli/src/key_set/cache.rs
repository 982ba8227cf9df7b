//! Fetched key sets, cached for as long as their issuer says.
//!
//! If the cache cannot be written, the key set is fetched each time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mandate_core::Timestamp;
use mandate_core::json::Object;
use mandate_core::jwks::MAX_KEY_SET_BYTES;

use super::Fetched;
use crate::directory;
use crate::exit::{Exit, Failure};
use crate::input::Source;

/// The longest time that a key set is cached, whatever its issuer says: a withdrawn key is gone within five minutes.
const MAX_KEPT_SECONDS: i64 = 5 * 60;
/// The longest file: a key set in base64, and its metadata.
const MAX_FILE_BYTES: usize = MAX_KEY_SET_BYTES * 2;

/// A cached key set.
pub(super) struct CachedKeySet {
    pub(super) document: Vec<u8>,
    pub(super) fetched_at: Timestamp,
    pub(super) max_age_seconds: i64,
}

/// What was fetched from `address` and is still fresh at `now`.
pub(super) fn find(address: &str, now: Timestamp) -> Result<Option<CachedKeySet>, Failure> {
    let Some(folder) = directory::cache()? else { return Ok(None) };
    let file = Source::File(folder.join("jwks").join(directory::file_name(address)));
    let Ok(text) = file.read("the cache", MAX_FILE_BYTES, Exit::Io) else { return Ok(None) };
    Ok(read(&text, address).filter(|kept| {
        (0..kept.max_age_seconds.saturating_mul(1000)).contains(&now.millis_since(kept.fetched_at))
    }))
}

/// Reads a cache file. None if it has another form, or is for another address.
fn read(text: &str, address: &str) -> Option<CachedKeySet> {
    let mut file = Object::parse(text.as_bytes()).ok()?;
    if file.take("address")?.string().ok()? != address {
        return None;
    }
    Some(CachedKeySet {
        document: STANDARD.decode(file.take("document")?.string().ok()?.as_bytes()).ok()?,
        fetched_at: Timestamp::from_millis(file.take("fetched_at")?.integer().ok()?),
        max_age_seconds: file.take("max_age_seconds")?.integer().ok()?.min(MAX_KEPT_SECONDS),
    })
}

/// Caches what was fetched from `address` at `now`, if that is allowed.
pub(super) fn keep(address: &str, now: Timestamp, fetched: &Fetched) -> Result<(), Failure> {
    let Some(folder) = directory::cache()?.filter(|_| fetched.max_age_seconds > 0) else { return Ok(()) };
    let file = serde_json::json!({
        "address": address,
        "fetched_at": now.millis(),
        "max_age_seconds": fetched.max_age_seconds,
        "document": STANDARD.encode(&fetched.document),
    });
    let path = folder.join("jwks").join(directory::file_name(address));
    let _ = directory::write(&path, file.to_string().as_bytes());
    Ok(())
}

/// For how many seconds `Cache-Control` (RFC 9111, section 5.2.2) lets an answer be cached.
pub(crate) fn max_age_seconds(cache_control: &str) -> i64 {
    let directives = || cache_control.split(',').map(str::trim);
    let is = |name: &str| directives().any(|directive| directive.eq_ignore_ascii_case(name));
    if is("no-store") || is("no-cache") {
        return 0;
    }
    let of_age = |directive: &str| {
        let (name, value) = directive.split_once('=')?;
        let seconds: i64 = value.trim_matches('"').parse().ok()?;
        name.eq_ignore_ascii_case("max-age").then_some(seconds.clamp(0, MAX_KEPT_SECONDS))
    };
    directives().find_map(of_age).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_of_its_age_is_not_kept() {
        for (text, seconds) in [
            ("public, max-age=300", 300),
            ("Max-Age=\"5\"", 5),
            ("max-age=99999999", MAX_KEPT_SECONDS),
            ("max-age=-1", 0),
            ("max-age=300, no-store", 0),
            ("no-cache, max-age=300", 0),
            ("public", 0),
            ("s-maxage=300", 0),
            ("max-age=x", 0),
        ] {
            assert_eq!(max_age_seconds(text), seconds, "{text}");
        }
    }
}
