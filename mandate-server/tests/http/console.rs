//! The console over HTTP: what is asked of it without a browser. `tests/pages/console.mjs` is the walk of a person; what a
//! passkey may sign, and by which check each attack on an answer fails, is in `tests/service/people.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mandate_server::http::X_REQUEST_ID;
use serde_json::{Value, json};

use crate::wire::{Reply, exchange};
use crate::world::World;

/// How many sign-ins of an address may begin or finish in any 60 seconds.
const PER_MINUTE: usize = 120;

async fn started() -> World {
    World::start_with(|settings| settings.console_address = Some(settings.api_address)).await
}

/// What the console's script posts, with more headers, each with its line break.
async fn post_with(world: &World, headers: &str, path: &str, body: &Value) -> Reply {
    let (body, origin) = (body.to_string(), world.running.urls.console.as_deref().unwrap());
    let length = body.len();
    let headers = format!(
        "{headers}Origin: {origin}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    );
    exchange(world.running.console.unwrap(), "POST", path, &headers, body.as_bytes()).await
}

/// The same in the sandbox of an organization.
async fn post(world: &World, organization: &str, path: &str, body: &Value) -> Reply {
    post_with(world, "", &format!("/sandbox/{organization}/{path}"), body).await
}

async fn get(world: &World, headers: &str, path: &str) -> Reply {
    exchange(world.running.console.unwrap(), "GET", path, headers, b"").await
}

/// An answer without what differs between any two: its id, the organization's name, and the challenge.
fn likeness(mut reply: Reply, organization: &str) -> Reply {
    if reply.header(X_REQUEST_ID.as_str()).is_some() {
        reply = reply.anonymous();
    }
    if let Ok(Value::Object(body)) = serde_json::from_str(&reply.body)
        && let Some(challenge) = body.get("challenge")
    {
        let challenge = challenge.as_str().unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(challenge).unwrap().len(), 32);
        reply.body = reply.body.replace(challenge, "challenge");
    }
    reply.body = reply.body.replace(organization, "organization");
    for (_, value) in &mut reply.headers {
        *value = value.replace(organization, "organization");
    }
    reply
}

/// A passkey that no organization knows, over a challenge.
fn unknown_passkey(challenge: &str) -> Value {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    json!({ "challenge": challenge, "assertion": {
        "credential": text(&[1; 16]), "authenticatorData": text(&[2; 37]), "clientDataJSON": text(b"{}"),
        "signature": text(&[3; 70]),
    } })
}

/// `acme` exists, `mist` does not.
#[tokio::test]
async fn no_answer_before_a_session_shows_which_organizations_exist() {
    let world = started().await;
    let guess = "A".repeat(43);
    let registration = json!({ "secret": guess, "challenge": guess, "label": " ", "registration": {
        "authenticatorData": "AA", "clientDataJSON": "AA",
    } });
    for (path, body, status) in [
        ("sign-in", json!({}), 200),
        ("sign-in", json!({ "x": 1 }), 400),
        ("sign-in/passkey", unknown_passkey(&guess), 401),
        ("enrol", json!({ "secret": guess }), 404),
        ("enrol", json!({ "secret": "no secret" }), 404),
        ("enrol/passkey", registration, 404),
        ("sign-out", json!({}), 401),
        ("statements", json!({}), 401),
        ("answers", json!({}), 401),
    ] {
        let known = likeness(post(&world, "acme", path, &body).await, "acme");
        let unknown = likeness(post(&world, "mist", path, &body).await, "mist");
        assert_eq!((known.status, &known), (status, &unknown), "{path} {body}");
    }
    // The challenge that was given, and a passkey that is unknown.
    let mut refused = Vec::new();
    for organization in ["acme", "mist"] {
        let begun = post(&world, organization, "sign-in", &json!({})).await.json();
        let body = unknown_passkey(begun["challenge"].as_str().unwrap());
        refused.push(likeness(post(&world, organization, "sign-in/passkey", &body).await, organization));
    }
    assert_eq!((refused[0].status, &refused[0]), (401, &refused[1]));
    for path in ["", "sign-in", "enrol", "decisions", "events", "nowhere"] {
        let of = async |organization| {
            likeness(get(&world, "", &format!("/sandbox/{organization}/{path}")).await, organization)
        };
        assert_eq!(of("acme").await, of("mist").await, "{path}");
    }
    // The rate is that of the address.
    for organization in ["mist", "acme"] {
        world.clock.advance(61);
        let mut admitted = 0;
        while post(&world, organization, "sign-in", &json!({})).await.status == 200 {
            admitted += 1;
        }
        assert_eq!(admitted, PER_MINUTE, "{organization}");
    }
}
