//! The console over HTTP: what is asked of it without a browser.
//!
//! Where each attack is tried. A row without a file is in `console/attacks.rs`; `service/attacks.rs` also has the audit records.
//!
//! | Attack | Where |
//! |---|---|
//! | every path without a session; with that of another organization or environment, or of a disabled person; with an API key | `no_path_is_open_without_a_session_of_its_own_environment`; in a browser, `attacks` in `tests/pages/console.mjs` |
//! | a role or a right that the person has not | `who_may_not_answer_is_given_no_statement` here; `only_a_person_with_the_role_may_answer_and_only_while_they_have_it` in `service/people.rs` |
//! | a forged or absent origin | `a_forged_origin_is_refused_on_every_path_that_changes_something_and_recorded` |
//! | an assertion replayed, for another challenge, of another person or tenant, late, without user verification, for another origin or relying party | to sign in: `no_attack_on_a_sign_in_begins_a_session_and_each_is_recorded` in `service/attacks.rs`; to answer: `what_was_not_signed_by_this_person_for_this_answer_is_refused` in `service/people.rs` |
//! | an answer replayed, or for other digits | the same, and `attacks` in `tests/pages/console.mjs` |
//! | a statement used twice, or late, also hours later | `a_statement_that_was_used_or_is_late_is_refused_as_such_also_hours_later` in `service/attacks.rs` |
//! | a statement, or a review, of another tenant | `what_is_of_another_tenant_is_refused_and_recorded` in `service/attacks.rs` |
//! | a cookie at another listener | `a_session_opens_one_environment_of_one_listener` here |
//! | an enrolment link used twice, late, replaced, or opened by a scanner | `no_link_is_good_twice_or_late_and_each_attempt_is_recorded` in `service/attacks.rs`; `enrolment` in `tests/pages/console.mjs` |
//! | 10,000 sign-ins | `ten_thousand_sign_ins_fill_nothing_and_keep_nobody_out` in `service/attacks.rs`; `a_client_begins_so_many_sign_ins_in_a_minute_and_keeps_no_other_out` |
//! | a flood of refusals that hides others | `a_flood_of_refusals_hides_those_of_nobody_else_and_says_that_it_hides` |
//! | HTML in every free text | `what_people_have_typed_is_text_on_every_page` here; `what_an_address_says_is_text_or_refused`; `denial` in `tests/pages/console.mjs` |
//! | a control character, or one that turns the text around, in a reason | `a_reason_that_the_api_refuses_is_refused_by_the_console` here |
//! | a download, or a page that waits, after the session's end | `console/outlived.rs` |
//! | a passkey of another origin of the same host | `a_passkey_of_another_origin_neither_signs_in_nor_answers` in `service/attacks.rs` |
//! | a guess which organizations exist | `no_answer_before_a_session_shows_which_organizations_exist` here |

mod attacks;
mod news;
mod outlived;
mod pages;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mandate_core::es256::SecretKey;
use mandate_core::people::CredentialId;
use mandate_core::{AgentName, EnvironmentKind, PersonId, Principal};
use mandate_server::clock::{Clock as _, Ids, SystemEntropy};
use mandate_server::http::X_REQUEST_ID;
use mandate_server::model::people::PasskeyRecord;
use mandate_server::service::audit::Operator;
use mandate_server::service::moments::Moments;
use mandate_server::service::people::{self, May, New, Secret};
use mandate_server::store::sql;
use serde_json::{Value, json};

use crate::apart;
use crate::wire::{Reply, exchange};
use crate::world::{World, spend};

/// A text that a browser would run, if it were not escaped.
const HTML: &str = "<img src=x onerror=alert(1)>\"'&amp;";
/// The pages below an environment that need no id.
const PAGES: [&str; 8] = ["", "decisions", "usage", "mandates", "agents", "webhooks", "exports", "people"];

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
}

/// A person who has signed in.
struct SignedIn {
    id: PersonId,
    credential: CredentialId,
    organization: AgentName,
    kind: EnvironmentKind,
    /// The text of the session's secret.
    secret: String,
}

impl SignedIn {
    /// A person of `acme`.
    fn new(world: &World, kind: EnvironmentKind, of: (&str, May)) -> Self {
        Self::of(world, &acme(), kind, of)
    }

    fn of(world: &World, organization: &AgentName, kind: EnvironmentKind, (role, may): (&str, May)) -> Self {
        let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
        let moments = Moments::new(Arc::clone(&world.clock) as _, Arc::clone(&ids));
        let (id, credential) = (
            PersonId::from_bytes(ids.random()[..16].try_into().unwrap()),
            CredentialId::from_bytes(&*ids.random()),
        );
        let (secret, credential) = (Secret::new(ids.random()), credential.unwrap());
        let roles = vec![Principal::parse(role).unwrap()];
        let new = New { id, name: HTML.to_owned(), roles, may, secret: Secret::new(ids.random()) };
        let (hash, at) = (secret.hash(), world.clock.now());
        let written = apart::run_once(&world.settings.database, |tx| {
            let record = people::create(tx, &moments, (organization, kind), &new, &operator(world))?;
            let key = PasskeyRecord {
                environment: record.environment,
                credential: credential.clone(),
                person: record.person.id,
                key: (*SecretKey::from_bytes([9; 32]).unwrap().public_key()).into(),
                label: HTML.to_owned(),
                origin: world.running.urls.console.clone().unwrap(),
                is_synced: false,
                enrolled_at: record.created_at,
                withdrawn_at: None,
            };
            sql::people::insert_key(tx, &key)?;
            Ok(sql::sessions::insert(tx, key.environment, hash, (id, &credential), at)?)
        });
        written.unwrap().unwrap();
        let secret = secret.to_text().to_string();
        Self { id, credential, organization: organization.clone(), kind, secret }
    }

    /// The header of the session's cookie.
    fn cookie(&self) -> String {
        self.cookie_of(&self.organization, self.kind)
    }

    /// The same under the name of an environment's cookie.
    fn cookie_of(&self, organization: &AgentName, kind: EnvironmentKind) -> String {
        format!("Cookie: mandate-{kind}-{organization}={}\r\n", self.secret)
    }

    async fn page(&self, world: &World, page: &str) -> Reply {
        get(world, &self.cookie(), &format!("/{}/acme/{page}", self.kind)).await
    }

    async fn ask(&self, world: &World, review: &Value) -> Reply {
        let body = json!({ "answer": "approve", "review": review });
        post_with(world, &self.cookie(), &format!("/{}/acme/statements", self.kind), &body).await
    }
}

fn acme() -> AgentName {
    AgentName::parse("acme").unwrap()
}

fn operator(world: &World) -> Operator {
    Operator { name: "test".to_owned(), at: world.clock.now() }
}

fn disable(world: &World, person: &SignedIn) {
    let disabled = apart::run_once(&world.settings.database, |tx| {
        let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
        let moments = Moments::new(Arc::clone(&world.clock) as _, ids);
        let of = (&person.organization, person.kind);
        people::disable(tx, &moments, of, person.id, &operator(world)).map(drop)
    });
    disabled.unwrap().unwrap();
}

/// An agent whose mandate asks `role:finance`: its key, and a review of it.
async fn review(world: &World) -> (String, Value) {
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    let asked = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    (agent, asked["review"]["id"].clone())
}

#[tokio::test]
async fn who_may_not_answer_is_given_no_statement() {
    let world = started().await;
    let (_, review) = review(&world).await;
    for (kind, role, may, status) in [
        (EnvironmentKind::Sandbox, "role:finance", May::Review, 200),
        (EnvironmentKind::Sandbox, "role:cto", May::Review, 403),
        (EnvironmentKind::Sandbox, "role:finance", May::Read, 403),
        (EnvironmentKind::Production, "role:finance", May::Review, 404),
    ] {
        let person = SignedIn::new(&world, kind, (role, may));
        assert_eq!(person.ask(&world, &review).await.status, status, "{kind} {role}");
        assert_eq!(person.page(&world, "people").await.status, 200);
        disable(&world, &person);
        assert_eq!(person.ask(&world, &review).await.status, 401, "{kind} {role} is disabled");
        assert_eq!(person.page(&world, "people").await.status, 303);
    }
}

#[tokio::test]
async fn a_session_opens_one_environment_of_one_listener() {
    let world = started().await;
    let person = SignedIn::new(&world, EnvironmentKind::Sandbox, ("role:finance", May::Review));
    let (server, cookie) = (&world.running, person.cookie());
    for (host, path) in [
        (server.api, "/v1/decisions"),
        (server.api, "/v1/agents"),
        (server.public, "/"),
        (server.public, "/verify"),
        (server.ops, "/livez"),
        (server.ops, "/sandbox/acme/"),
        (server.public, "/sandbox/acme/"),
        (server.api, "/sandbox/acme/"),
    ] {
        let without = exchange(host, "GET", path, "", b"").await.anonymous();
        assert_eq!(exchange(host, "GET", path, &cookie, b"").await.anonymous(), without, "{path}");
    }
    for cookie in [person.cookie(), person.cookie_of(&acme(), EnvironmentKind::Production)] {
        assert_eq!(get(&world, &cookie, "/production/acme/").await.status, 303);
    }
    let twice = format!("{cookie}{cookie}");
    for (cookie, status) in [(&cookie, 200), (&twice, 303)] {
        assert_eq!(get(&world, cookie, "/sandbox/acme/").await.status, status);
    }
}

/// Agents, recipients, categories and roles cannot have such a text at all; of a webhook the host is shown.
#[tokio::test]
async fn what_people_have_typed_is_text_on_every_page() {
    let world = started().await;
    let label = apart::run_once(&world.settings.database, |tx| {
        Ok(tx.execute("UPDATE api_keys SET name = $1 WHERE agent IS NULL", &[HTML.into()])?)
    });
    label.unwrap().unwrap();
    let webhook = json!({ "url": format!("https://a.example/{HTML}"), "events": ["*"] });
    world.post(&world.organization_key, "/v1/webhooks", &webhook).await;
    let person = SignedIn::new(&world, EnvironmentKind::Sandbox, ("role:finance", May::Review));
    let (agent, denied) = review(&world).await;
    let denied = denied.as_str().unwrap();
    let deny = format!("/v1/reviews/{denied}/deny");
    let answered = world.post(&world.organization_key, &deny, &json!({ "reason": HTML })).await;
    assert_eq!(answered.status, 200, "{}", answered.body);
    let next = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    let one = |kind: &str, id: &Value| format!("{kind}/{}", id.as_str().unwrap());
    let own = [
        format!("reviews/{denied}"),
        one("reviews", &next["review"]["id"]),
        one("decisions", &next["decision"]),
    ];
    let escaped = "&#60;img src=x onerror=alert(1)&#62;";
    for page in PAGES.into_iter().chain(own.iter().map(String::as_str)) {
        let shown = person.page(&world, page).await;
        assert_eq!(shown.status, 200, "{page}");
        assert!(!shown.body.contains("<img"), "{page}");
        // The name of the person who has signed in is on each.
        assert!(shown.body.contains(escaped), "{page}");
        let policy = shown.header("content-security-policy").unwrap();
        assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    }
    // Names and label; person, key and reason.
    for (page, times) in [("people", 3), (&own[0], 3), (&own[1], 3)] {
        assert_eq!(person.page(&world, page).await.body.matches(escaped).count(), times, "{page}");
    }
    for field in ["recipient", "category"] {
        let mut asked = spend(1);
        asked[field] = json!(format!("vendor:{HTML}"));
        world.post(&agent, "/v1/authorizations", &asked).await.refused(400, "invalid_request");
    }
    let named = world.post(&world.organization_key, "/v1/agents", &json!({ "name": HTML })).await;
    named.refused(400, "invalid_request");
}

#[tokio::test]
async fn live_and_observe_mode_are_marked_on_every_page() {
    let world = started().await;
    for (kind, key) in
        [(EnvironmentKind::Sandbox, &world.organization_key), (EnvironmentKind::Production, &world.live_key)]
    {
        let person = SignedIn::new(&world, kind, ("role:finance", May::Read));
        for mode in ["observe", "enforce"] {
            assert_eq!(world.post(key, "/v1/enforcement", &json!({ "mode": mode })).await.status, 200);
            for page in PAGES {
                let body = person.page(&world, page).await.body;
                let marks =
                    ["LIVE: real money", "Sandbox: no real money", "Observe mode: nothing is blocked"];
                let marked = marks.map(|mark| body.contains(&format!("{mark}</strong>")));
                let is_live = kind == EnvironmentKind::Production;
                assert_eq!(marked, [is_live, !is_live, mode == "observe"], "{kind} {page}");
            }
        }
    }
}

/// As the API refuses them. Nothing is kept: neither a statement, nor an audit record.
#[tokio::test]
async fn a_reason_that_the_api_refuses_is_refused_by_the_console() {
    let world = started().await;
    let (_, review) = review(&world).await;
    let person = SignedIn::new(&world, EnvironmentKind::Sandbox, ("role:finance", May::Review));
    let deny = async |reason: &str| {
        let body = json!({ "answer": "deny", "review": review, "reason": reason });
        post_with(&world, &person.cookie(), "/sandbox/acme/statements", &body).await
    };
    let controls =
        "must hold no control characters but line feed, carriage return before it, and tab; character";
    let order =
        "must hold no bidirectional controls: they change the order in which text is shown; character";
    let length = "must be 1 to 500 characters long".to_owned();
    for (reason, problem) in [
        ("no\0", format!("{controls} 3 is U+0000")),
        ("\u{1b}[2Jno", format!("{controls} 1 is U+001B")),
        ("no\ryes", format!("{controls} 3 is U+000D")),
        ("no \u{202e}sey", format!("{order} 4 is U+202E")),
        ("", length.clone()),
        (&"é".repeat(501), length),
        (" \n", "must say why, in 1 to 500 characters; it is empty".to_owned()),
    ] {
        let refused = deny(reason).await.refused(400, "invalid_request");
        assert_eq!(refused, format!("reason {problem}"), "{reason:?}");
    }
    let statements = || {
        let counted = apart::run_once(&world.settings.database, |tx| {
            Ok(tx.one_row("SELECT COUNT(*) FROM statements", &[])?.integer()?)
        });
        counted.unwrap().unwrap()
    };
    assert_eq!(statements(), 0);
    for reason in ["é".repeat(500), "no,\r\n\tnot now \u{2028}".to_owned()] {
        assert_eq!(deny(&reason).await.status, 200, "{reason:?}");
    }
    assert_eq!(statements(), 2);
}
