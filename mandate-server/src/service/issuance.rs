//! API keys for the operator: issued, listed, rotated, revoked, given a rate. No secret is ever read back.

use std::fmt;

use mandate_core::api_key::{ApiKey, KeyClass, holds_key};
use mandate_core::{AgentId, AgentName, EnvironmentKind, Invalid, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::json;
use zeroize::Zeroizing;

use super::audit::{self, AuditEntry, Operator};
use super::organizations;
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::text::is_bidirectional_control;
use crate::store::sql;
use crate::store::sql::keys::{IssuedKey, NewKey};
use crate::store::tx::Tx;

/// The prefix of a key's id.
const PREFIX: &str = "key_";
/// How many bytes of the hash the id has.
const ID_BYTES: usize = 6;
/// The highest rate that can be set, in requests a minute.
pub const MAX_RATE: u32 = 1_000_000;
/// How long a key's name may be, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The operator's id for a key: `key_` and the first 12 hexadecimal digits of the key's SHA-256. So a person
/// who finds a key can tell which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId([u8; ID_BYTES]);

impl KeyId {
    /// The id of the key with this hash.
    #[must_use]
    pub fn of(hash: &[u8; 32]) -> Self {
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(hash).for_each(|(to, from)| *to = *from);
        Self(id)
    }

    /// Reads an id.
    ///
    /// # Errors
    /// The text has another form. The message does not repeat it: it may be the key itself.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("key", "must be `key_` and 12 hexadecimal digits, as `key list` shows");
        let digits = text.strip_prefix(PREFIX).ok_or_else(bad)?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != ID_BYTES || !rest.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut id = [0; ID_BYTES];
        for (byte, pair) in id.iter_mut().zip(pairs) {
            let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(Self(id))
    }

    /// A hash that begins with the id, filled up with `rest`.
    fn filled(self, rest: u8) -> [u8; 32] {
        let mut hash = [rest; 32];
        hash.iter_mut().zip(self.0).for_each(|(to, from)| *to = from);
        hash
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The owner of keys: an organization in one of its environments, or one agent there.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The name of the organization.
    pub organization: AgentName,
    /// Which of its environments.
    pub kind: EnvironmentKind,
    /// The agent; none for the organization itself.
    pub agent: Option<AgentName>,
}

/// A selection of keys.
#[derive(Debug, Clone)]
pub enum Selection {
    /// One key.
    Key(KeyId),
    /// All keys of an owner that are in force.
    Owner(Owner),
}

/// Whether a key is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// It is valid.
    InForce,
    /// It has expired.
    Expired,
    /// It was revoked.
    Revoked,
}

impl KeyStatus {
    /// The status of `key` at `now`.
    #[must_use]
    pub fn of(key: &IssuedKey, now: Timestamp) -> Self {
        match (key.revoked_at, key.expires_at) {
            (Some(_), _) => Self::Revoked,
            (None, Some(end)) if end <= now => Self::Expired,
            _ => Self::InForce,
        }
    }

    /// The status in words.
    #[must_use]
    pub fn as_words(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// The command to issue a key.
#[derive(Debug)]
pub struct Issue {
    /// The owner of the new key.
    pub owner: Owner,
    /// 32 random bytes, drawn before.
    pub random: Zeroizing<[u8; 32]>,
    /// The operator's name for it.
    pub name: Option<String>,
    /// Requests in any 60 seconds.
    pub rate: u32,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// The command to rotate a key.
#[derive(Debug)]
pub struct Rotate {
    /// The key. An owner must have exactly one in force.
    pub selection: Selection,
    /// 32 random bytes, drawn before.
    pub random: Zeroizing<[u8; 32]>,
    /// How long the old key stays in force, in seconds.
    pub overlap_seconds: i64,
    /// When the new key expires.
    pub expires_at: Option<Timestamp>,
}

/// A key that was just issued: the secret and the row.
#[derive(Debug)]
pub struct Issued {
    /// The key itself, to be shown once.
    pub secret: ApiKey,
    /// The stored row.
    pub key: IssuedKey,
}

/// Reads an operator's name for a key.
///
/// # Errors
/// It is empty, too long, or has characters that change how a line is shown; or it has an API key, which would be kept.
/// No message repeats it.
pub fn name(text: &str) -> Result<String, Invalid> {
    if holds_key(text) {
        return Err(Invalid::new("label", "must not hold an API key"));
    }
    let is_shown = |c: char| !c.is_control() && !is_bidirectional_control(c);
    if (1..=MAX_NAME_CHARS).contains(&text.chars().count()) && text.chars().all(is_shown) {
        return Ok(text.to_owned());
    }
    let accepted = "none of them a control character, or one that changes the order of the text";
    Err(Invalid::new("label", format!("must be 1 to {MAX_NAME_CHARS} characters, {accepted}")))
}

/// All keys of an organization, or of all organizations, oldest first, including those not in force.
///
/// # Errors
/// There is no such organization.
pub fn list(tx: &mut Tx<'_>, organization: Option<&AgentName>) -> Result<Vec<IssuedKey>, ScriptError> {
    let Some(name) = organization else { return Ok(sql::keys::all(tx)?) };
    let organization = sql::environments::find_organization(tx, name.as_str())?;
    let organization = organization.ok_or_else(|| organizations::unknown(name))?;
    let mut keys = Vec::new();
    for kind in EnvironmentKind::ALL {
        let environment = sql::environments::find(tx, organization, kind)?;
        keys.extend(sql::keys::of_environment(tx, environment)?);
    }
    keys.sort_unstable_by_key(|key| key.id);
    Ok(keys)
}

/// The selected keys that are in force at `now`, oldest first: at least one.
///
/// # Errors
/// There is no such owner, no such key, or none in force.
pub fn select(tx: &mut Tx<'_>, selection: &Selection, now: Timestamp) -> Result<Vec<IssuedKey>, ScriptError> {
    sql::keys::hold(tx)?;
    match selection {
        Selection::Key(id) => Ok(vec![find(tx, *id, now)?]),
        Selection::Owner(owner) => {
            let (environment, agent) = resolve(tx, owner)?;
            let mut keys = sql::keys::of_environment(tx, environment)?;
            keys.retain(|key| key.agent == agent);
            keys.retain(|key| KeyStatus::of(key, now) == KeyStatus::InForce);
            if keys.is_empty() {
                return Err(not_found("no key of that owner is in force; `key issue` makes one").into());
            }
            Ok(keys)
        }
    }
}

/// Issues a key.
///
/// # Errors
/// There is no such owner, or the expiry is in the past.
pub fn issue(tx: &mut Tx<'_>, command: &Issue, by: &Operator) -> Result<Issued, ScriptError> {
    let (environment, agent) = resolve(tx, &command.owner)?;
    let class = if agent.is_some() { KeyClass::Agent } else { KeyClass::Organization };
    let secret = ApiKey::from_random(class, command.owner.kind, &command.random);
    let key = NewKey {
        hash: secret.hash(),
        environment,
        agent: agent.as_ref(),
        name: command.name.as_deref(),
        rate: command.rate,
        at: by.at,
        expires_at: command.expires_at,
    };
    let key = insert(tx, &key)?;
    let details = json!({ "rate": key.rate, "label": key.name, "expires_at": key.expires_at });
    record(tx, by, "key.issue", &key, details)?;
    Ok(Issued { secret, key })
}

/// Issues a key that replaces another, which expires after the overlap.
///
/// # Errors
/// There is no such key in force, or there are several.
pub fn rotate(tx: &mut Tx<'_>, command: &Rotate, by: &Operator) -> Result<(Issued, IssuedKey), ScriptError> {
    let mut keys = select(tx, &command.selection, by.at)?;
    let (Some(mut old), None) = (keys.pop(), keys.first()) else {
        let message =
            "that owner has several keys in force; name the one to rotate with --key, as `key list` shows it";
        return Err(Refusal::invalid(message).into());
    };
    let class = if old.agent.is_some() { KeyClass::Agent } else { KeyClass::Organization };
    let secret = ApiKey::from_random(class, old.kind, &command.random);
    let key = NewKey {
        hash: secret.hash(),
        environment: old.environment,
        agent: old.agent.as_ref(),
        name: old.name.as_deref(),
        rate: old.rate,
        at: by.at,
        expires_at: command.expires_at,
    };
    let key = insert(tx, &key)?;
    if command.overlap_seconds > 0 {
        let end = by.at.plus_seconds(command.overlap_seconds);
        old.expires_at = Some(old.expires_at.map_or(end, |before| before.min(end)));
    } else {
        old.revoked_at = Some(by.at);
    }
    sql::keys::update(tx, &old)?;
    let details =
        json!({ "replaces": KeyId::of(&old.hash), "old_key_until": old.expires_at.or(old.revoked_at) });
    record(tx, by, "key.rotate", &key, details)?;
    Ok((Issued { secret, key }, old))
}

/// Revokes keys: every server refuses them within a second.
///
/// # Errors
/// None of them is in force.
pub fn revoke(tx: &mut Tx<'_>, selection: &Selection, by: &Operator) -> Result<Vec<IssuedKey>, ScriptError> {
    let mut keys = select(tx, selection, by.at)?;
    for key in &mut keys {
        key.revoked_at = Some(by.at);
        sql::keys::update(tx, key)?;
        record(tx, by, "key.revoke", key, json!({}))?;
    }
    Ok(keys)
}

/// Sets the rate of keys: every server enforces it within a second.
///
/// # Errors
/// None of them is in force.
pub fn set_rate(
    tx: &mut Tx<'_>,
    selection: &Selection,
    rate: u32,
    by: &Operator,
) -> Result<Vec<IssuedKey>, ScriptError> {
    let mut keys = select(tx, selection, by.at)?;
    for key in &mut keys {
        let before = std::mem::replace(&mut key.rate, rate);
        sql::keys::update(tx, key)?;
        record(tx, by, "rate.set", key, json!({ "rate": rate, "before": before }))?;
    }
    Ok(keys)
}

fn find(tx: &mut Tx<'_>, id: KeyId, now: Timestamp) -> Result<IssuedKey, ScriptError> {
    let mut found = sql::keys::with_hash(tx, id.filled(0), id.filled(u8::MAX))?;
    let (key, None) = (found.pop(), found.first()) else {
        return Err(Refusal::invalid(format!("{id} names two keys; name their owner instead")).into());
    };
    let key = key.ok_or_else(|| not_found(format!("there is no key {id}; `key list` shows the keys")))?;
    match KeyStatus::of(&key, now) {
        KeyStatus::InForce => Ok(key),
        status => Err(Refusal::invalid(format!("{id} is {}", status.as_words())).into()),
    }
}

/// The environment and agent of an owner.
fn resolve(tx: &mut Tx<'_>, owner: &Owner) -> Result<(i64, Option<AgentId>), ScriptError> {
    let organization = sql::environments::find_organization(tx, owner.organization.as_str())?;
    let organization = organization.ok_or_else(|| organizations::unknown(&owner.organization))?;
    let environment = sql::environments::find(tx, organization, owner.kind)?;
    let Some(name) = &owner.agent else { return Ok((environment, None)) };
    let agent = AgentId::of(name);
    if sql::agents::find(tx, environment, &agent)?.is_none() {
        let message = format!("{} has no agent `{name}` in {}", owner.organization, owner.kind);
        return Err(not_found(message).into());
    }
    Ok((environment, Some(agent)))
}

fn insert(tx: &mut Tx<'_>, key: &NewKey<'_>) -> Result<IssuedKey, ScriptError> {
    if key.expires_at.is_some_and(|end| end <= key.at) {
        return Err(Refusal::invalid("a key must not be at its end when it is issued").into());
    }
    sql::keys::issue(tx, key)?;
    let written = sql::keys::with_hash(tx, key.hash, key.hash)?.pop();
    Ok(written.ok_or_else(|| Fault::new("database: a key just written is not there"))?)
}

fn record(
    tx: &mut Tx<'_>,
    by: &Operator,
    action: &'static str,
    key: &IssuedKey,
    mut details: serde_json::Value,
) -> Result<(), ScriptError> {
    let named = [
        ("agent", key.agent.as_ref().map(|agent| json!(agent))),
        ("label", key.name.as_ref().map(|name| json!(name))),
    ];
    for (name, value) in named {
        if let (Some(value), Some(details)) = (value, details.as_object_mut()) {
            details.insert(name.to_owned(), value);
        }
    }
    let subject = KeyId::of(&key.hash).to_string();
    let entry = AuditEntry {
        action,
        organization: Some(&key.organization),
        environment: Some(key.kind),
        subject: &subject,
        details,
    };
    Ok(audit::write(tx, by, &entry)?)
}

fn not_found(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_beginning_of_the_hash() {
        let id = KeyId::of(&[0xab; 32]);
        assert_eq!(id.to_string(), "key_abababababab");
        assert_eq!(KeyId::parse("key_abababababab").unwrap(), id);
        assert_eq!((&id.filled(0)[5..7], id.filled(255)[31]), (&[0xab, 0][..], 255));
        for text in [
            "",
            "key_",
            "abababababab",
            "key_ababababab",
            "key_abababababab0",
            "key_+bababababab",
            "key_ababababaé",
        ] {
            let refused = KeyId::parse(text).unwrap_err().to_string();
            assert!(refused.contains("12 hexadecimal digits"), "{refused}");
        }
    }

    #[test]
    fn a_name_can_be_shown_in_a_line() {
        assert!(name("ci, since June").is_ok() && name(&"é".repeat(64)).is_ok());
        let key = ApiKey::from_random(KeyClass::Agent, EnvironmentKind::Production, &[9; 32]);
        let bad =
            ["", "a\nb", "\u{1b}[31m", "a\u{202e}b", "\u{2028}\u{85}", key.expose(), &key.expose()[..56]];
        for bad in bad.into_iter().chain([&*"a".repeat(65)]) {
            let refused = name(bad).unwrap_err().to_string();
            assert!(refused.starts_with("label must") && !refused.contains("ak_live"), "{bad:?}");
        }
    }
}
