//! Cursors: signed positions in a list, so that clients can page through a list without state on the server.
//!
//! A cursor is `cur_` and base64url of: the time of issue (8 bytes, milliseconds, big-endian), the name of
//! the list, a zero byte, the position, and an HMAC-SHA256 (RFC 2104, 32 bytes). The MAC also covers the
//! filters, and the class and identity of the caller: a cursor opens only for the query it was issued for,
//! and for 24 hours.
//!
//! ```
//! use mandate_core::Timestamp;
//! use mandate_core::api_key::KeyClass;
//! use mandate_core::cursor::{CursorKey, Scope};
//! let key = CursorKey::new([7; 32]);
//! let scope =
//!     Scope { list: "decisions", filters: "verdict=allow", class: KeyClass::Agent, caller: "agt_buyer" };
//! let now = Timestamp::from_seconds(1_772_362_800);
//! let cursor = key.issue(&scope, "dec_01kjm6n2z80000000000000001", now);
//! assert_eq!(key.open(&cursor, &scope, now)?, "dec_01kjm6n2z80000000000000001");
//!
//! let other = Scope { filters: "verdict=review", ..scope };
//! let refused = key.open(&cursor, &other, now).unwrap_err();
//! assert_eq!(refused.to_string(), "cursor expired or malformed");
//! # Ok::<(), mandate_core::cursor::CursorRefused>(())
//! ```

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::api_key::KeyClass;
use crate::base64url;
use crate::time::Timestamp;

/// How long a cursor is valid, in seconds: 24 hours.
pub const CURSOR_LIFETIME_SECONDS: i64 = 24 * 60 * 60;

/// How far ahead of the reading server's clock the issuing server's may be, in seconds, if servers share a
/// key.
pub const CURSOR_SKEW_SECONDS: i64 = 60;

/// The longest cursor that is read, in bytes.
pub const MAX_CURSOR_BYTES: usize = 1024;

/// The prefix of every cursor.
const PREFIX: &str = "cur_";

/// Names the purpose of the MAC, so that the key cannot be made to sign anything else.
const DOMAIN: &[u8] = b"mandate cursor 1";

/// The block size of SHA-256 in bytes: HMAC pads a shorter key to it with zeros (RFC 2104, section 2).
const BLOCK_BYTES: usize = 64;

/// Separates the list's name from the position.
const SEPARATOR: u8 = 0;

/// The key that signs cursors. It is wiped from memory when dropped, and `Debug` never shows it.
///
/// ```
/// use mandate_core::cursor::CursorKey;
/// // In production: 32 bytes from the operating system's random generator.
/// let key = CursorKey::new([7; 32]);
/// assert_eq!(format!("{key:?}"), "CursorKey(…)");
/// ```
#[derive(Clone)]
pub struct CursorKey(Zeroizing<[u8; BLOCK_BYTES]>);

/// The query that a cursor belongs to. All of it must be the same when the cursor is opened.
///
/// ```
/// use mandate_core::{Timestamp, api_key::KeyClass, cursor::{CursorKey, Scope}};
/// let (key, now) = (CursorKey::new([7; 32]), Timestamp::from_seconds(1_772_362_800));
/// let scope = Scope { list: "reviews", filters: "", class: KeyClass::Agent, caller: "agt_buyer" };
/// let cursor = key.issue(&scope, "rev_1", now);
/// assert!(key.open(&cursor, &Scope { caller: "agt_other", ..scope }, now).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The name of the list, without a zero byte.
    pub list: &'a str,
    /// The filters, in one spelling for each set of filters.
    pub filters: &'a str,
    /// The class of the caller's key.
    pub class: KeyClass,
    /// The environment or agent behind the key, in any spelling that differs between callers.
    pub caller: &'a str,
}

/// The only error of a cursor that does not open. It does not say why.
///
/// ```
/// use mandate_core::{Timestamp, api_key::KeyClass, cursor::{CursorKey, CursorRefused, Scope}};
/// let scope = Scope { list: "reviews", filters: "", class: KeyClass::Agent, caller: "agt_buyer" };
/// let opened = CursorKey::new([7; 32]).open("cur_AAAA", &scope, Timestamp::from_seconds(0));
/// assert_eq!(opened, Err(CursorRefused));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cursor expired or malformed")]
pub struct CursorRefused;

impl CursorKey {
    /// A key of 32 bytes, which must be secret and random.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        let key = Zeroizing::new(key);
        let mut block = Zeroizing::new([0; BLOCK_BYTES]);
        block.iter_mut().zip(key.iter()).for_each(|(to, from)| *to = *from);
        Self(block)
    }

    /// The cursor for the page after `position`, which is usually the last id of a page.
    ///
    /// A position so long that the cursor exceeds [`MAX_CURSOR_BYTES`] never opens. Ids are much shorter.
    ///
    /// ```
    /// use mandate_core::{Timestamp, api_key::KeyClass, cursor::{CursorKey, Scope}};
    /// let scope = Scope { list: "decisions", filters: "", class: KeyClass::Agent, caller: "agt_buyer" };
    /// let last_of_the_page = "dec_01kjm6n2z80000000000000001";
    /// let cursor = CursorKey::new([7; 32]).issue(&scope, last_of_the_page, Timestamp::from_seconds(1_772_362_800));
    /// assert!(cursor.starts_with("cur_"));
    /// ```
    #[must_use]
    pub fn issue(&self, scope: &Scope<'_>, position: &str, now: Timestamp) -> String {
        let issued = now.millis().to_be_bytes();
        let mut payload = [&issued, scope.list.as_bytes(), &[SEPARATOR], position.as_bytes()].concat();
        let mac = self.mac(scope, &payload).finalize().into_bytes();
        payload.extend_from_slice(&mac);
        let mut cursor = PREFIX.to_owned();
        base64url::encode_onto(&mut cursor, &payload);
        cursor
    }

    /// The position in `cursor`.
    ///
    /// ```
    /// use mandate_core::{Timestamp, api_key::KeyClass, cursor::{CURSOR_LIFETIME_SECONDS, CursorKey, Scope}};
    /// let scope = Scope { list: "decisions", filters: "", class: KeyClass::Agent, caller: "agt_buyer" };
    /// let (key, issued) = (CursorKey::new([7; 32]), Timestamp::from_seconds(1_772_362_800));
    /// let cursor = key.issue(&scope, "dec_1", issued);
    /// let last = issued.plus_seconds(CURSOR_LIFETIME_SECONDS);
    /// assert_eq!(key.open(&cursor, &scope, last).as_deref(), Ok("dec_1"));
    /// assert!(key.open(&cursor, &scope, last.plus_seconds(1)).is_err());
    /// ```
    ///
    /// # Errors
    /// The cursor was not issued under this key for this scope, was issued more than [`CURSOR_LIFETIME_SECONDS`] ago,
    /// or more than [`CURSOR_SKEW_SECONDS`] ahead of `now`.
    pub fn open(&self, cursor: &str, scope: &Scope<'_>, now: Timestamp) -> Result<String, CursorRefused> {
        self.position(cursor, scope, now).ok_or(CursorRefused)
    }

    fn position(&self, cursor: &str, scope: &Scope<'_>, now: Timestamp) -> Option<String> {
        if cursor.len() > MAX_CURSOR_BYTES {
            return None;
        }
        let bytes = base64url::decode(cursor.strip_prefix(PREFIX)?).ok()?;
        let (payload, mac) = bytes.split_last_chunk::<32>()?;
        // Compares in constant time.
        self.mac(scope, payload).verify_slice(mac).ok()?;
        let (issued, rest) = payload.split_first_chunk()?;
        let age_millis = now.millis().checked_sub(i64::from_be_bytes(*issued))?;
        let fresh =
            (CURSOR_SKEW_SECONDS.saturating_mul(-1000))..=(CURSOR_LIFETIME_SECONDS.saturating_mul(1000));
        if !fresh.contains(&age_millis) {
            return None;
        }
        let position = rest.strip_prefix(scope.list.as_bytes())?.strip_prefix(&[SEPARATOR])?;
        String::from_utf8(position.to_vec()).ok()
    }

    /// The length precedes each part, so that no two scopes have the same input.
    fn mac(&self, scope: &Scope<'_>, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as KeyInit>::new((&*self.0).into());
        let class = scope.class.as_str();
        let texts = [scope.list, scope.filters, class, scope.caller];
        for part in [DOMAIN].into_iter().chain(texts.map(str::as_bytes)).chain([payload]) {
            let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
            mac.update(&length.to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CursorKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCOPE: Scope<'static> =
        Scope { list: "decisions", filters: "verdict=allow", class: KeyClass::Organization, caller: "env_1" };

    fn key() -> CursorKey {
        CursorKey::new([7; 32])
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + seconds)
    }

    #[test]
    fn opens_for_24_hours() {
        let cursor = key().issue(&SCOPE, "dec_1", at(0));
        let millis = |m: i64| Timestamp::from_millis(at(0).millis() + m);
        for (now, opens) in [
            (millis(0), true),
            (millis(86_400_000), true),
            (millis(86_400_001), false),
            (millis(-60_000), true),
            (millis(-60_001), false),
            (Timestamp::from_millis(0), false),
            (Timestamp::from_millis(i64::MAX), false),
        ] {
            assert_eq!(key().open(&cursor, &SCOPE, now).is_ok(), opens, "{now}");
        }
    }

    #[test]
    fn opens_in_its_own_walk_only() {
        let cursor = key().issue(&SCOPE, "dec_1", at(0));
        assert_eq!(key().open(&cursor, &SCOPE, at(0)).unwrap(), "dec_1");
        for other in [
            Scope { list: "mandates", ..SCOPE },
            Scope { list: "decision", ..SCOPE },
            Scope { filters: "", ..SCOPE },
            Scope { filters: "verdict=review", ..SCOPE },
            Scope { class: KeyClass::Agent, ..SCOPE },
            Scope { caller: "env_2", ..SCOPE },
            Scope { filters: "verdict=allowo", caller: "env_1", ..SCOPE },
            // The same bytes, split differently.
            Scope { list: "decisionsv", filters: "erdict=allow", ..SCOPE },
        ] {
            assert_eq!(key().open(&cursor, &other, at(0)), Err(CursorRefused), "{other:?}");
        }
        assert_eq!(CursorKey::new([8; 32]).open(&cursor, &SCOPE, at(0)), Err(CursorRefused));
    }

    /// Joined without their lengths, the parts of both scopes are the same bytes.
    #[test]
    fn parts_are_not_moved_from_one_to_the_next() {
        let class = KeyClass::Agent;
        let long = format!("{class}_1", class = class.as_str());
        let scope = Scope { filters: "verdict=allow", class, caller: &long, ..SCOPE };
        let moved = format!("{}{}", scope.filters, class.as_str());
        let other = Scope { filters: &moved, class, caller: "_1", ..SCOPE };
        let joined = |scope: &Scope<'_>| [scope.filters, scope.class.as_str(), scope.caller].concat();
        assert_eq!(joined(&scope), joined(&other));
        let cursor = key().issue(&scope, "dec_1", at(0));
        assert_eq!(key().open(&cursor, &scope, at(0)).as_deref(), Ok("dec_1"));
        assert_eq!(key().open(&cursor, &other, at(0)), Err(CursorRefused));
    }

    #[test]
    fn no_other_spelling_opens() {
        let cursor = key().issue(&SCOPE, "dec_12", at(0));
        let body = cursor.strip_prefix("cur_").unwrap();
        for text in [
            String::new(),
            "cur_".to_owned(),
            body.to_owned(),
            format!("CUR_{body}"),
            format!("{cursor}="),
            format!("{cursor} "),
            format!(" {cursor}"),
            format!("{cursor}\n"),
            format!("{cursor}A"),
            format!("cur_{cursor}"),
            "cur_".to_owned() + &"A".repeat(5000),
            "cur_\u{fffd}".to_owned(),
        ] {
            assert_eq!(key().open(&text, &SCOPE, at(0)), Err(CursorRefused), "{text:?}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "CursorKey(…)");
        assert_eq!(CursorRefused.to_string(), "cursor expired or malformed");
    }

    /// Every character of the text is replaced by every other character that a URL can hold, removed, or
    /// doubled.
    #[test]
    fn every_change_of_a_character_is_refused() {
        for position in ["", "d", "de", "dec_01kjm6n2z80000000000000001"] {
            let cursor = key().issue(&SCOPE, position, at(0));
            for place in 0..cursor.len() {
                for other in 0x20..0x7f_u8 {
                    let mut changed = cursor.clone().into_bytes();
                    if changed[place] == other {
                        continue;
                    }
                    changed[place] = other;
                    let changed = String::from_utf8(changed).unwrap();
                    assert_eq!(key().open(&changed, &SCOPE, at(0)), Err(CursorRefused), "{changed}");
                }
                let (before, after) = cursor.split_at(place);
                assert_eq!(key().open(before, &SCOPE, at(0)), Err(CursorRefused));
                assert_eq!(
                    key().open(&format!("{before}{}", &after[1..]), &SCOPE, at(0)),
                    Err(CursorRefused)
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_position_comes_back(position in "\\PC{0,100}", filters in "\\PC{0,40}", caller in "\\PC{0,40}") {
            let scope = Scope { filters: &filters, caller: &caller, ..SCOPE };
            let cursor = key().issue(&scope, &position, at(0));
            prop_assert_eq!(key().open(&cursor, &scope, at(0)), Ok(position));
        }

        #[test]
        fn anything_else_is_refused(text in "(cur_)?[\\PC\\n]{0,120}", bytes: Vec<u8>) {
            prop_assert_eq!(key().open(&text, &SCOPE, at(0)), Err(CursorRefused));
            let invented = format!("cur_{}", base64url::encode(&bytes));
            prop_assert_eq!(key().open(&invented, &SCOPE, at(0)), Err(CursorRefused));
        }
    }
}
