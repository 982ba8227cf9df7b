//! Attacks on the console over HTTP: without a session of its own, from another site's page, and by number.

use std::net::SocketAddr;

use futures_util::future::join_all;
use mandate_core::{AgentName, EnvironmentKind, ReviewId, Timestamp};
use mandate_server::clock::Clock as _;
use mandate_server::service::audit;
use mandate_server::service::people::May;
use mandate_server::service::people::refused::{MAX_RECORDED, RECORDED_SECONDS};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use super::{HTML, PAGES, SignedIn, acme, disable, get, post, post_with, review, started, unknown_passkey};
use crate::apart;
use crate::wire::{Reply, exchange, over};
use crate::world::{World, spend};

const SANDBOX: EnvironmentKind = EnvironmentKind::Sandbox;
/// What changes something, below an environment's address.
const CHANGING: [&str; 7] =
    ["statements", "answers", "sign-out", "sign-in", "sign-in/passkey", "enrol", "enrol/passkey"];
/// Those of them that are for a session.
const ANSWERING: [&str; 3] = ["statements", "answers", "sign-out"];
/// How many sign-ins of a client may begin or finish in any 60 seconds.
const PER_CLIENT: usize = 120;
/// The records of refused sign-ins, and of refused answers.
const FAILED: &str = "person.sign_in_failed";
const ANSWER_REFUSED: &str = "person.answer_refused";
/// The largest first page, with its style sheets and its script, in bytes.
const FIRST_PAGE_BYTES: usize = 100_000;

/// What audit records of an action say, and of what, oldest first.
fn recorded(world: &World, action: &str) -> Vec<(String, Value)> {
    let records = apart::run_once(&world.settings.database, |tx| {
        Ok(audit::newest(tx, Some("acme"), Timestamp::from_seconds(0), 1_000)?)
    });
    let records = records.unwrap().unwrap().into_iter().rev();
    let records = records.filter(|record| record.action == action);
    records.map(|record| (record.subject, serde_json::from_str(record.details.get()).unwrap())).collect()
}

/// What they say of requests that no page of the console has sent.
fn forged(world: &World) -> Vec<Value> {
    recorded(world, "console.refused").into_iter().map(|(_, details)| details).collect()
}

#[tokio::test]
async fn no_path_is_open_without_a_session_of_its_own_environment() {
    let world = started().await;
    let (agent, review) = review(&world).await;
    let decision = world.post(&agent, "/v1/authorizations", &spend(1)).await.json()["decision"].clone();
    let mandates = world.get(&world.organization_key, "/v1/mandates").await.json();
    let one = |kind: &str, id: &Value| format!("{kind}/{}", id.as_str().unwrap());
    let own =
        [one("reviews", &review), one("decisions", &decision), one("mandates", &mandates["data"][0]["id"])];
    let more = ["decisions.csv", "decisions.ndjson"].into_iter().chain(own.iter().map(String::as_str));
    let pages: Vec<&str> = PAGES.into_iter().chain(more).collect();

    let role = ("role:finance", May::Review);
    let person = SignedIn::new(&world, SANDBOX, role);
    world.onboard("other");
    let other = SignedIn::of(&world, &AgentName::parse("other").unwrap(), SANDBOX, role);
    let production = SignedIn::new(&world, EnvironmentKind::Production, role);
    let disabled = SignedIn::new(&world, SANDBOX, role);
    disable(&world, &disabled);
    let unknown = "A".repeat(43);
    for (whose, cookie) in [
        ("none", String::new()),
        ("of another organization", other.cookie()),
        ("of another organization, renamed", other.cookie_of(&acme(), SANDBOX)),
        ("of another environment", production.cookie()),
        ("of another environment, renamed", production.cookie_of(&acme(), SANDBOX)),
        ("of a disabled person", disabled.cookie()),
        ("guessed", format!("Cookie: mandate-sandbox-acme={unknown}\r\n")),
        ("a key", format!("Authorization: Bearer {}\r\n", world.organization_key)),
    ] {
        for page in &pages {
            let shown = get(&world, &cookie, &format!("/sandbox/acme/{page}")).await;
            assert_eq!(shown.status, 303, "{whose}: {page}");
            assert!(shown.header("location").unwrap().starts_with("/sandbox/acme/sign-in?to="), "{whose}");
            assert_eq!(shown.body, "", "{whose}: {page}");
        }
        assert_eq!(get(&world, &cookie, "/sandbox/acme/events").await.status, 401, "{whose}");
        let body = json!({ "answer": "approve", "review": review });
        for path in ANSWERING {
            let asked = post_with(&world, &cookie, &format!("/sandbox/acme/{path}"), &body).await;
            assert_eq!(asked.status, 401, "{whose}: {path}");
        }
    }
    for page in &pages {
        assert_eq!(person.page(&world, page).await.status, 200, "{page}");
    }
    assert!(person.page(&world, &own[0]).await.body.contains("Waits for"));
}

#[tokio::test]
async fn a_forged_origin_is_refused_on_every_path_that_changes_something_and_recorded() {
    let world = started().await;
    let (_, review) = review(&world).await;
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Review));
    let origin = world.running.urls.console.clone().unwrap();
    let body = json!({ "answer": "approve", "review": review }).to_string();
    let send = async |organization: &str, path: &str, headers: &str| {
        let length = body.len();
        let own = format!(
            "{headers}{}Content-Type: application/json\r\nContent-Length: {length}\r\n",
            person.cookie()
        );
        let path = format!("/sandbox/{organization}/{path}");
        exchange(world.running.console.unwrap(), "POST", &path, &own, body.as_bytes()).await
    };
    let mut wanted = Vec::new();
    for (headers, from, site) in [
        (String::new(), Value::Null, Value::Null),
        ("Origin: https://evil.example\r\n".to_owned(), json!("https://evil.example"), Value::Null),
        ("Origin: null\r\n".to_owned(), json!("null"), Value::Null),
        (format!("Origin: {origin}.evil.example\r\n"), json!(format!("{origin}.evil.example")), Value::Null),
        (format!("Origin: {origin}\r\nSec-Fetch-Site: cross-site\r\n"), json!(origin), json!("cross-site")),
        (format!("Origin: {origin}\r\nSec-Fetch-Site: same-site\r\n"), json!(origin), json!("same-site")),
    ] {
        for path in CHANGING {
            assert_eq!(send("acme", path, &headers).await.status, 403, "{path} {headers}");
            let said = json!({ "refused": "origin", "path": path, "origin": from, "fetch_site": site });
            wanted.push(said);
        }
        assert_eq!(send("mist", "answers", &headers).await.status, 403);
    }
    assert_eq!(forged(&world), wanted);
    // However many there are, and whatever they say.
    let most = usize::try_from(MAX_RECORDED).unwrap();
    let long = format!("Origin: {}\r\n", "x".repeat(1_000));
    for _ in 0..most {
        assert_eq!(send("acme", "answers", &long).await.status, 403);
    }
    let records = forged(&world);
    assert_eq!(records.len(), most);
    assert_eq!(records[most - 1]["origin"].as_str().unwrap().chars().count(), 201);
    assert_eq!(person.page(&world, "").await.status, 200, "the session goes on");
}

/// So many records of a subject, of which the last one alone says that no further one is written for an hour.
fn full(world: &World, action: &str, subject: &str) {
    let records = recorded(world, action).into_iter().filter(|(of, _)| of == subject);
    let further: Vec<_> = records.map(|(_, details)| details["further"].clone()).collect();
    let mut wanted = vec![Value::Null; usize::try_from(MAX_RECORDED).unwrap()];
    let until = world.clock.now().plus_seconds(RECORDED_SECONDS);
    *wanted.last_mut().unwrap() = json!(format!("not recorded until {until}"));
    assert_eq!(further, wanted, "{action} {subject}");
}

/// Neither without a session nor with one, and also where many are refused at the same time.
#[tokio::test]
async fn a_flood_of_refusals_hides_those_of_nobody_else_and_says_that_it_hides() {
    let world = started().await;
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Review));
    let other = SignedIn::new(&world, SANDBOX, ("role:finance", May::Review));
    let unknown = unknown_passkey(&"A".repeat(43));
    let own = |person: &SignedIn| {
        let mut body = unknown.clone();
        body["assertion"]["credential"] = json!(person.credential);
        body
    };
    let sign_in = |body: Value| {
        let world = &world;
        async move { assert_eq!(post(world, "acme", "sign-in/passkey", &body).await.status, 401) }
    };
    let rounds = usize::try_from(MAX_RECORDED).unwrap() / 4;
    for body in [unknown.clone(), own(&person)] {
        for _ in 0..rounds {
            join_all((0..5).map(|_| sign_in(body.clone()))).await;
        }
    }
    full(&world, FAILED, "console");
    full(&world, FAILED, &person.id.to_string());
    sign_in(own(&other)).await;
    assert_eq!(recorded(&world, FAILED).last().unwrap().0, other.id.to_string());

    let answer = |person: &SignedIn, body: Value| {
        let (world, cookie) = (&world, person.cookie());
        async move { post_with(world, &cookie, "/sandbox/acme/answers", &body).await.status }
    };
    for _ in 0..rounds {
        let answered = join_all((0..5).map(|_| answer(&person, own(&person)))).await;
        assert_eq!(answered, [400; 5]);
    }
    let absent = json!(ReviewId::from_bytes([9; 16]));
    assert_eq!(person.ask(&world, &absent).await.status, 404);
    full(&world, ANSWER_REFUSED, &person.id.to_string());
    assert_eq!(other.ask(&world, &absent).await.status, 404);
    assert_eq!(recorded(&world, ANSWER_REFUSED).last().unwrap().0, other.id.to_string());
}

/// A connection from an address of this machine.
async fn connected(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(format!("127.0.0.1:{}", to.port()).parse().unwrap()).await.unwrap()
}

/// Begins a sign-in as a client at an address.
async fn begin(world: &World, from: &str, organization: &str) -> Reply {
    let (at, origin) = (world.running.console.unwrap(), world.running.urls.console.as_deref().unwrap());
    let headers = format!("Origin: {origin}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n");
    let path = format!("/sandbox/{organization}/sign-in");
    over(connected(from, at).await, "POST", &path, &headers, b"{}").await
}

/// A client that fills its rate keeps no other client out, neither of that environment nor of another.
#[tokio::test]
async fn a_client_begins_so_many_sign_ins_in_a_minute_and_keeps_no_other_out() {
    let anywhere = "0.0.0.0:0".parse().unwrap();
    let world = World::start_with(|settings| settings.console_address = Some(anywhere)).await;
    for _ in 0..2 {
        for count in 0..PER_CLIENT {
            let organization = if count % 2 == 0 { "acme" } else { "mist" };
            assert_eq!(begin(&world, "127.0.0.2", organization).await.status, 200, "{count}");
        }
        let refused = begin(&world, "127.0.0.2", "acme").await.refused(429, "rate_limited");
        assert_eq!(refused, "too many sign-ins from your network; try again after 61 seconds");
        assert_eq!(begin(&world, "127.0.0.3", "acme").await.status, 200);
        world.clock.advance(61);
    }
}

/// On loopback, as behind a proxy, the listener sees no client. Beginning writes nothing, so that the number does not matter.
/// The page is shown meanwhile: opening it, as a scanner of links does, begins nothing.
#[tokio::test]
async fn any_number_of_sign_ins_begin_where_the_listener_sees_a_proxy() {
    let world = started().await;
    for count in 0..3 * PER_CLIENT {
        assert_eq!(post(&world, "acme", "sign-in", &json!({})).await.status, 200, "{count}");
    }
    let written = apart::run_once(&world.settings.database, |tx| {
        let counts = "SELECT (SELECT COUNT(*) FROM challenges) + (SELECT COUNT(*) FROM sessions)";
        Ok(tx.one_row(counts, &[])?.integer()?)
    });
    assert_eq!(written.unwrap().unwrap(), 0);
    assert_eq!(get(&world, "", "/sandbox/acme/enrol").await.status, 200);
}

#[tokio::test]
async fn what_an_address_says_is_text_or_refused() {
    let world = started().await;
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Review));
    let text: String = form_urlencoded::byte_serialize(HTML.as_bytes()).collect();
    for (path, status) in [
        (format!("decisions?agent={text}"), 400),
        (format!("decisions?verdict={text}"), 400),
        (format!("decisions?since={text}"), 400),
        (format!("decisions?before={text}"), 400),
        (format!("decisions?{text}={text}"), 200),
        (format!("sign-in?to={text}"), 200),
        (format!("reviews/{text}"), 404),
        (format!("decisions/{text}"), 404),
        (format!("mandates/{text}"), 404),
        (text.clone(), 404),
    ] {
        let shown = person.page(&world, &path).await;
        assert_eq!(shown.status, status, "{path}: {}", shown.body);
        assert!(!shown.body.contains("<img"), "{path}: {}", shown.body);
    }
}

/// With as many reviews as it shows: the page, its style sheets and its script.
#[tokio::test]
async fn the_first_page_is_small() {
    let world = started().await;
    let (agent, _) = review(&world).await;
    for count in 0..110 {
        // A mandate allows ten requests in 60 seconds.
        if count % 9 == 0 {
            world.clock.advance(61);
        }
        let asked = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
        assert_eq!(asked["verdict"], "review", "{asked}");
    }
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Review));
    let page = person.page(&world, "").await;
    assert_eq!(page.body.matches("data-review=").count(), 100);
    let mut bytes = page.body.len();
    for (before, files) in [("<link rel=\"stylesheet\" href=\"", 2), ("<script type=\"module\" src=\"", 1)] {
        let found: Vec<_> = page.body.split(before).skip(1).collect();
        assert_eq!(found.len(), files, "{before}");
        for path in found {
            let file = get(&world, "", path.split('"').next().unwrap()).await;
            assert_eq!(file.status, 200);
            bytes += file.body.len();
        }
    }
    assert!(bytes <= FIRST_PAGE_BYTES, "{bytes}");
}
