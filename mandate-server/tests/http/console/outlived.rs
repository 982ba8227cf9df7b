//! Downloads and streams end with the session of the person who asked for them.

use futures_util::future::join_all;
use mandate_core::EnvironmentKind;
use mandate_server::service::people::May;
use mandate_server::service::people::sessions::{IDLE_SECONDS, TOUCH_SECONDS};
use mandate_tests::Kind;
use mandate_tests::wait::DEADLINE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::{SignedIn, disable, review, started};
use crate::apart;
use crate::world::{World, spend};

const SANDBOX: EnvironmentKind = EnvironmentKind::Sandbox;
/// More decisions than the buffers of a connection hold, and a download reads at a time.
const ROUNDS: usize = 35;
const AT_A_TIME: usize = 100;

/// A connection on which a page of `acme` is asked for, and nothing is read beyond a small buffer.
pub(super) async fn asked(world: &World, person: &SignedIn, page: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(world.running.console.unwrap()).await.unwrap();
    let cookie = person.cookie();
    let request =
        format!("GET /sandbox/acme/{page} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{cookie}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Changes the database beside the server.
pub(super) fn change(world: &World, sql: &'static str) {
    apart::run_once(&world.settings.database, move |tx| Ok(tx.execute(sql, &[])?)).unwrap().unwrap();
}

/// What comes until `end` is in it.
pub(super) async fn heard(stream: &mut TcpStream, end: &str) -> String {
    let (mut text, mut bytes, until) = (String::new(), [0; 4096], Instant::now() + DEADLINE);
    while !text.contains(end) {
        let read = timeout_at(until, stream.read(&mut bytes)).await;
        let length = read.unwrap_or_else(|_| panic!("no {end:?} in {text}")).unwrap();
        assert!(length > 0, "no {end:?} in {text}");
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    text
}

#[tokio::test]
async fn a_page_hears_no_news_once_its_session_is_over() {
    let world = started().await;
    let (agent, first) = review(&world).await;
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Read));
    let mut stream = asked(&world, &person, "events").await;
    let first = first.as_str().unwrap();
    assert!(heard(&mut stream, "\n\n\r\n").await.contains(first));
    disable(&world, &person);
    let second = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    let second = second["review"]["id"].as_str().unwrap();
    let said = heard(&mut stream, "event: ended").await;
    assert!(!said.contains(second) && !said.contains("event: queue"), "{said}");
}

/// As on a full disk.
#[tokio::test]
async fn pages_are_shown_where_nothing_can_be_written() {
    let world = started().await;
    let (_, review) = review(&world).await;
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Review));
    let refuse = match crate::KIND {
        Kind::Sqlite => {
            "CREATE TRIGGER refused BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'full'); END"
        }
        Kind::Postgres => "ALTER TABLE sessions ADD CONSTRAINT refused CHECK (false) NOT VALID",
    };
    change(&world, refuse);
    world.clock.advance(TOUCH_SECONDS);
    for page in ["", &format!("reviews/{}", review.as_str().unwrap()), "decisions.csv"] {
        assert_eq!(person.page(&world, page).await.status, 200, "{page}");
    }
    assert_eq!(person.ask(&world, &review).await.status, 200);
    // Unused it ends, as far as is written.
    world.clock.advance(IDLE_SECONDS - TOUCH_SECONDS);
    assert_eq!(person.page(&world, "").await.status, 303);
}

#[tokio::test]
async fn a_download_breaks_off_when_its_session_is_over() {
    let world = started().await;
    let agent = world.agent("a").await;
    world.change_key(&agent, |key| key.rate = 1_000_000);
    let mut request = spend(1);
    request["recipient"] = format!("vendor:{}", "v".repeat(128)).into();
    for _ in 0..ROUNDS {
        join_all((0..AT_A_TIME).map(|_| world.post(&agent, "/v1/authorizations", &request))).await;
    }
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Read));
    let whole = person.page(&world, "decisions.ndjson").await.body;
    assert_eq!(whole.matches("\"jti\":").count(), ROUNDS * AT_A_TIME);
    assert!(whole.ends_with("0\r\n\r\n"));
    let [mut stream, mut ended] =
        [asked(&world, &person, "decisions.ndjson").await, asked(&world, &person, "decisions.ndjson").await];
    heard(&mut stream, "\"jti\":").await;
    heard(&mut ended, "\"jti\":").await;
    // What is decided meanwhile is in none of them.
    let late = world.post(&agent, "/v1/authorizations", &request).await.json();
    let mut rest = String::new();
    ended.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n") && !rest.contains(late["decision"].as_str().unwrap()));
    disable(&world, &person);
    let mut rest = Vec::new();
    // The server closes the connection before the end, and that can be an error too.
    let _ = stream.read_to_end(&mut rest).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.ends_with("0\r\n\r\n"));
    assert!(rest.matches("\"jti\":").count() < ROUNDS * AT_A_TIME - 500);
}

/// The clock is set back after a decision: it is on the page, and in the download.
#[tokio::test]
async fn a_download_has_what_is_dated_ahead_of_the_clock() {
    let world = started().await;
    let agent = world.agent("a").await;
    let person = SignedIn::new(&world, SANDBOX, ("role:finance", May::Read));
    let decide =
        async || world.post(&agent, "/v1/authorizations", &spend(1)).await.json()["decision"].clone();
    let early = decide().await;
    world.clock.advance(3);
    let late = decide().await;
    for back in [0, 1, 2] {
        world.clock.step(-back);
        for page in ["decisions", "decisions.csv", "decisions.ndjson"] {
            let body = person.page(&world, page).await.body;
            let has = [&early, &late].map(|id| body.contains(id.as_str().unwrap()));
            assert_eq!(has, [true, true], "{back} {page}");
        }
    }
}
