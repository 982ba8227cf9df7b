//! By which keys the tokens of an export are verified.

use mandate_core::jwks::{KeySet, VerificationKey};

use super::Audit;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::key_set::{Issuer, document, parse, published_at, well_formed};

/// The accepted issuers, and all their keys.
pub(super) fn of(args: &Audit, global: &Global) -> Result<(Vec<String>, KeySet), Failure> {
    if args.exports.contains(&Source::Stdin) && args.jwks.iter().any(|place| place == "-") {
        return Err(crate::command::both_from_standard_input("the key set", "the export"));
    }
    let mut issuers = args.issuer.iter().map(|name| well_formed(name)).collect::<Result<Vec<_>, _>>()?;
    if issuers.is_empty() {
        issuers.push(Issuer::find(None, args.jwks.first().map(String::as_str), global)?.name);
    }
    let mut places = args.jwks.clone();
    if places.is_empty() {
        for issuer in &issuers {
            places.push(published_at(issuer)?.to_string());
        }
    }
    let mut keys: Vec<VerificationKey> = Vec::new();
    for place in &places {
        for key in parse(&document(place)?, place)?.iter() {
            match keys.iter().find(|known| known.kid() == key.kid()) {
                Some(known) if known.public_key() == key.public_key() => {}
                Some(_) => {
                    let message = format!("two of the key sets have different keys named `{}`", key.kid());
                    return Err(Failure::new(Exit::KeySet, message).note("read from", place));
                }
                None => keys.push(key.clone()),
            }
        }
    }
    let keys = KeySet::archive(keys).map_err(|e| Failure::new(Exit::KeySet, e.to_string()))?;
    Ok((issuers, keys))
}
