//! What is said of the key set, the one operation of the public listener.

use serde_json::json;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Content, RefOr, ResponseBuilder, Schema};

use super::Operation;
use super::operation::{X_REQUEST_ID, header, text_header};

pub(super) fn document() -> Operation {
    let mut content = Content::new(Some(schema()));
    content.example = Some(json!({"keys": [{
        "kty": "EC",
        "crv": "P-256",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        "use": "sig",
        "alg": "ES256",
        "kid": "sandbox-cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
    }]}));
    let found = ResponseBuilder::new()
        .description(
            "The keys under which verdicts and events are signed now, and those that were until lately.",
        )
        .header_ref(X_REQUEST_ID, header(X_REQUEST_ID))
        .header("Cache-Control", text_header("`public, max-age=300`."))
        .header("ETag", text_header("For If-None-Match."))
        .content("application/jwk-set+json", content);
    let unchanged = ResponseBuilder::new()
        .description("The key set is the one that If-None-Match names.")
        .header_ref(X_REQUEST_ID, header(X_REQUEST_ID));
    Operation::public()
        .named("getKeySet", "Key set", "Get the public keys")
        .told("A JWK Set (RFC 7517). Anybody may fetch it, without a key, and keep it for five minutes.")
        .answers(200, found)
        .answers(304, unchanged)
}

fn schema() -> RefOr<Schema> {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let members = ["kty", "crv", "x", "y", "use", "alg", "kid"];
    let key = members
        .iter()
        .fold(ObjectBuilder::new(), |key, member| key.property(*member, text()).required(*member));
    let keys = ArrayBuilder::new().items(key).min_items(Some(1));
    ObjectBuilder::new().property("keys", keys).required("keys").into()
}
