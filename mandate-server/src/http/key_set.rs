//! `/.well-known/jwks.json`: the public keys, the one operation of the public listener.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use hyper::header::HeaderMap;
use serde_json::{Value, json};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::KEY_SET_PATH;
use super::document::Document;
use super::respond::Failure;
use crate::clock::Clock;
use crate::service::signing::Keyring;

/// The Content-Type of a key set (RFC 7517, section 8.5.2).
const JWK_SET: &str = "application/jwk-set+json";

/// What the key set is made from.
pub(super) struct KeySet {
    pub(super) keyring: Keyring,
    pub(super) clock: Arc<dyn Clock>,
}

/// Get the public keys
///
/// A JWK Set (RFC 7517). No API key is needed. It may be cached for five minutes.
#[utoipa::path(
    get, path = KEY_SET_PATH, operation_id = "getKeySet", tag = "Key set",
    responses(
        (
            status = 200,
            description = "The public keys of the signing keys in use, and of those replaced so recently that their tokens may still be valid.",
            content((inline(Keys) = "application/jwk-set+json", example = json!(example()))),
            headers(
                ("Cache-Control" = String, description = "`public, max-age=300`."),
                ("ETag" = String, description = "The version of the key set, to be sent in If-None-Match."),
                ("Access-Control-Allow-Origin" = String, description = "`*`: any web page may read it."),
            ),
        ),
        (status = 304, description = "The key set is the one that If-None-Match names."),
    ),
)]
pub(super) async fn get(State(keys): State<Arc<KeySet>>, headers: HeaderMap) -> Result<Response, Failure> {
    let key_set = keys.keyring.public_key_set(keys.clock.now())?;
    let document = Document::new(JWK_SET, Bytes::from(key_set))?;
    // Caches may keep it, unless this server may have missed a change of the keys.
    let document = if keys.keyring.is_current(Instant::now()) { document } else { document.no_cache() };
    Ok(document.respond(&headers))
}

/// A JWK Set.
#[derive(Debug)]
pub struct Keys;

impl ToSchema for Keys {}

impl PartialSchema for Keys {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let members = ["kty", "crv", "x", "y", "use", "alg", "kid"];
        let key = members
            .iter()
            .fold(ObjectBuilder::new(), |key, member| key.property(*member, text()).required(*member));
        let keys = ArrayBuilder::new().items(key).min_items(Some(1));
        ObjectBuilder::new().property("keys", keys).required("keys").into()
    }
}

fn example() -> Value {
    json!({"keys": [{
        "kty": "EC",
        "crv": "P-256",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        "use": "sig",
        "alg": "ES256",
        "kid": "sandbox-cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
    }]})
}
