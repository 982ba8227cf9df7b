//! Witnesses of the public log: those that cosign, and those that are away, slow, wrong or hostile.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use mandate_core::EnvironmentKind::{self, Sandbox};
use mandate_core::log::{
    AddCheckpoint, Entry, Hash, KeyKind, LogProof, Policy, SignedCheckpoint, SigningKey, VerifierKey,
    WitnessRefused, WitnessedLog, cosign, token_hash, write_conflict, write_entry,
};
use mandate_server::clock::Clock as _;
use mandate_server::service::audit::Operator;
use mandate_server::service::public_log::{Remembered, append, operated, serve, shown};
use mandate_server::store::sql::public_log;
use mandate_server::store::sql::witnesses::Witness;
use mandate_server::store::tx::Tx;

use crate::apart;
use crate::log_origins::new_origin;
use crate::public_log::{entries, keeper, log};
use crate::world::World;

/// The time by the world's clock, in seconds.
const NOW: u64 = 1_781_524_800;

pub(crate) fn key(name: &str) -> SigningKey {
    let seed = Hash::sha256(name.as_bytes());
    SigningKey::new(name, KeyKind::Cosignature, seed.as_bytes()).unwrap()
}

/// A server that answers each request with what `answer` gives: a status and a body. Gives its address.
pub(crate) fn serving(mut answer: impl FnMut(&[u8]) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let body = request(&mut stream);
            let (status, text) = answer(&body);
            let head =
                format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", text.len());
            // A client that has waited long enough is gone.
            let _ = stream.write_all((head + &text).as_bytes());
        }
    });
    url
}

/// The body of a request.
fn request(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return body.as_bytes().to_vec();
        }
    }
}

/// A witness that keeps to the rules.
pub(crate) fn honest(name: &str, of: &VerifierKey) -> String {
    late(name, of, Duration::ZERO)
}

/// The same, which takes this long for each request.
pub(crate) fn late(name: &str, of: &VerifierKey, takes: Duration) -> String {
    let (key, keys) = (key(name), vec![of.clone()]);
    let mut last = None;
    serving(move |body| {
        thread::sleep(takes);
        let asked = AddCheckpoint::parse(body).unwrap();
        let state = WitnessedLog { keys: keys.clone(), last };
        match state.decide(&asked) {
            Ok(checkpoint) => {
                last = Some((checkpoint.size(), *checkpoint.root()));
                (200, format!("{}\n", cosign(&key, checkpoint, NOW)))
            }
            Err(WitnessRefused::Conflict { size }) => (409, write_conflict(size)),
            Err(refused) => (refused.status(), refused.to_string()),
        }
    })
}

pub(crate) fn add(world: &World, name: &str, url: String) {
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let witness = Witness { key: key(name).verifier().clone(), url, created_at: by.at };
    apart::run_once(&world.database, |tx| operated::add_witness(tx, &witness, &by)).unwrap().unwrap();
}

fn published(world: &World) -> SignedCheckpoint {
    SignedCheckpoint::parse(log(world).checkpoint.unwrap().as_bytes()).unwrap()
}

pub(crate) fn has_cosigned(world: &World, name: &str) -> bool {
    published(world).cosignature(key(name).verifier()).unwrap().is_some()
}

#[tokio::test]
async fn a_proof_has_the_newest_checkpoint_with_its_quorum() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    assert_eq!(world.clock.now().seconds(), i64::try_from(NOW).unwrap());
    let of = VerifierKey::parse(&log(&world).verifier_key).unwrap();
    for name in ["w1.example", "w2.example"] {
        add(&world, name, honest(name, &of));
    }
    // Nothing listens there.
    add(&world, "w3.example", "http://127.0.0.1:9".to_owned());
    let keeper = keeper(&world, None);
    let policy = format!(
        "log {of}\nwitness w1 {}\nwitness w2 {}\nwitness w3 {}\ngroup all 2 w1 w2 w3\nquorum all\n",
        key("w1.example").verifier(),
        key("w2.example").verifier(),
        key("w3.example").verifier()
    );
    let policy = Policy::parse(policy.as_bytes()).unwrap();
    for _ in 0..3 {
        let answer = world.ask(&agent, "1").await;
        let decision = world.decision(&agent, &answer["decision"]).await;
        let token = decision["verdict_token"].as_str().unwrap();
        keeper.look().await;
        let log = log(&world);
        assert!(log.checkpoint == log.witnessed && log.stopped.is_none(), "{log:?}");
        assert!(!has_cosigned(&world, "w3.example"));
        let hash = token_hash(token).unwrap();
        let proof =
            world.store.read(move |tx| serve::proof(tx, Sandbox, &hash)).await.unwrap().unwrap().unwrap();
        let proof = LogProof::parse(proof.as_bytes()).unwrap();
        proof.verify_decision(token, Some(&of), &policy).unwrap();
    }
    // What the page shows of them.
    let shown = world.store.read(shown::logs).await.unwrap().unwrap();
    let shown = shown.iter().find(|log| log.kind == Sandbox).unwrap();
    let last: Vec<_> = shown.witnesses.iter().map(|witness| (&*witness.name, witness.last)).collect();
    let size = published(&world).checkpoint().size();
    let cosigned = Some((size, world.clock.now()));
    let wanted = [("w1.example", cosigned), ("w2.example", cosigned), ("w3.example", None)];
    assert!(last.len() == wanted.len() && wanted.iter().all(|one| last.contains(one)), "{last:?}");
    // Another keeper does not know what the witnesses have: they tell it.
    world.ask(&agent, "1").await;
    crate::public_log::keeper(&world, None).look().await;
    assert!(has_cosigned(&world, "w1.example") && has_cosigned(&world, "w2.example"));
}

#[tokio::test]
async fn a_witness_that_is_slow_wrong_or_hostile_delays_and_spoils_nothing() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let wrong = |body: &[u8]| {
        let asked = AddCheckpoint::parse(body).unwrap();
        (200, format!("{}\n", cosign(&key("other.example"), asked.checkpoint.checkpoint(), NOW)))
    };
    let late = |body: &[u8]| {
        let asked = AddCheckpoint::parse(body).unwrap();
        (200, format!("{}\n", cosign(&key("late.example"), asked.checkpoint.checkpoint(), NOW - 7_200)))
    };
    add(&world, "wrong.example", serving(wrong));
    add(&world, "late.example", serving(late));
    add(&world, "garbage.example", serving(|_| (200, "\u{0}garbage".repeat(2_000))));
    add(&world, "empty.example", serving(|_| (200, String::new())));
    add(&world, "refuses.example", serving(|_| (403, "no".to_owned())));
    add(&world, "behind.example", serving(|_| (409, "0\n".to_owned())));
    add(&world, "mad.example", serving(|_| (409, "many\n".to_owned())));
    let slow = |_: &[u8]| {
        thread::sleep(Duration::from_secs(10));
        (200, String::new())
    };
    add(&world, "slow.example", serving(slow));
    let keeper = keeper(&world, None);
    for _ in 0..2 {
        world.ask(&agent, "1").await;
        let began = Instant::now();
        keeper.look().await;
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        let log = log(&world);
        assert!(log.witnessed.is_none() && log.stopped.is_none(), "{log:?}");
        assert_eq!(published(&world).checkpoint().size(), log.tree.size());
        for name in ["wrong.example", "late.example", "garbage.example", "slow.example"] {
            assert!(!has_cosigned(&world, name), "{name}");
        }
    }
}

#[tokio::test]
async fn a_witness_that_has_cosigned_more_stops_the_log() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.ask(&agent, "1").await;
    add(&world, "w.example", serving(|_| (409, write_conflict(1_000))));
    keeper(&world, None).look().await;
    let log = log(&world);
    let why = log.stopped.unwrap();
    assert!(why.contains("the witness w.example says that it has cosigned 1000"), "{why}");
    assert!(why.contains("log witness remove"), "{why}");
    assert!(log.checkpoint.is_none());
}

/// A database that was restored and has grown again: as long as the witness's log or longer, and another one.
#[tokio::test]
async fn a_witness_that_has_cosigned_other_entries_stops_the_log() {
    // How the versions of tlog-witness say it, of a smaller size and of the same.
    for (status, fewer) in [(422, 0), (422, 1), (409, 0), (409, 1)] {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        let keeper = keeper(&world, None);
        keeper.look().await;
        let before = log(&world);
        let of = VerifierKey::parse(&before.verifier_key).unwrap();
        let size = before.tree.size() + 1 - fewer;
        let state = WitnessedLog { keys: vec![of], last: Some((size, Hash::sha256(b"other"))) };
        let answer = move |body: &[u8]| match state.decide(&AddCheckpoint::parse(body).unwrap()) {
            Err(WitnessRefused::Inconsistent(_)) if status == 422 => (422, String::new()),
            Err(WitnessRefused::Inconsistent(_) | WitnessRefused::Conflict { .. }) => {
                (409, write_conflict(size))
            }
            _ => (404, String::new()),
        };
        add(&world, "w.example", serving(answer));
        world.ask(&agent, "1").await;
        keeper.keep(Sandbox).await.unwrap();
        let now = log(&world);
        assert!(now.tree.size() >= size);
        let why = now.stopped.unwrap();
        let said = format!("the witness w.example says that the first {size} entries");
        assert!(why.contains(&said) && why.contains("log witness remove"), "{why}");
        assert_eq!(now.checkpoint, before.checkpoint, "{status}: nothing was published");
    }
}

/// What was signed and refused was not published: the file says again what it said before.
#[tokio::test]
async fn a_checkpoint_that_a_witness_refused_is_not_remembered() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, Some(folder.path()));
    keeper.look().await;
    let file = || std::fs::read(folder.path().join("sandbox")).unwrap();
    let (before, old) = (file(), log(&world));
    world.ask(&agent, "1").await;
    add(&world, "w.example", serving(|_| (409, write_conflict(1_000))));
    keeper.look().await;
    let stopped = log(&world);
    assert!(stopped.stopped.is_some() && stopped.tree.size() > old.tree.size());
    assert_eq!((file(), stopped.signed), (before, None));
    // The way out, if the witness errs.
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let remembered = Remembered::new(Some(folder.path().to_owned()));
    let go_on = |tx: &mut Tx<'_>| {
        operated::remove_witness(tx, "w.example", &by)?;
        operated::go_on(tx, Sandbox, &remembered, &by)
    };
    apart::run_once(&world.database, go_on).unwrap().unwrap();
    keeper.look().await;
    let now = log(&world);
    assert!(now.stopped.is_none());
    assert_eq!(published(&world).checkpoint().size(), stopped.tree.size());
}

/// What a witness holds is the last that was published: one that lies has nothing of it taken back.
#[tokio::test]
async fn a_checkpoint_that_one_witness_may_have_cosigned_is_remembered_whatever_another_says() {
    for is_silent in [false, true] {
        let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
        let agent = world.agent("buyer").await;
        let keeper = keeper(&world, Some(folder.path()));
        keeper.look().await;
        let before = log(&world);
        let of = VerifierKey::parse(&before.verifier_key).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = if is_silent {
            format!("http://{}", silent.local_addr().unwrap())
        } else {
            honest("w1.example", &of)
        };
        add(&world, "w1.example", other);
        add(&world, "w2.example", serving(|_| (409, write_conflict(1_000))));
        world.ask(&agent, "1").await;
        keeper.keep(Sandbox).await.unwrap();
        let stopped = log(&world);
        assert!(stopped.stopped.is_some() && stopped.tree.size() > before.tree.size());
        let file = std::fs::read(folder.path().join("sandbox")).unwrap();
        let last = SignedCheckpoint::parse(&file).unwrap();
        assert_eq!(last.checkpoint().size(), stopped.tree.size(), "{is_silent}");
        // The log that follows says so, and nothing that was cosigned moves to it.
        let (ended, _) = new_origin(&world, Some(folder.path()));
        let of_ended = SignedCheckpoint::parse(ended.checkpoint.unwrap().as_bytes()).unwrap();
        assert_eq!(of_ended.checkpoint(), last.checkpoint());
        let is_cosigned = of_ended.cosignature(key("w1.example").verifier()).unwrap().is_some();
        assert_eq!(is_cosigned, !is_silent);
        assert_eq!(entries(&world)[0], Entry::OlderLog(of_ended));
        let decisions = entries(&world).iter().filter(|e| matches!(e, Entry::Decision { .. })).count();
        assert_eq!(decisions, 0);
    }
}

/// Another server has published meanwhile: the witness knows more than the slow one asks about, and less than the log has.
#[tokio::test]
async fn a_server_that_is_overtaken_while_it_asks_does_not_stop_the_log() {
    let world = World::new().await;
    let (database, kept, at) = (world.database.clone(), world.keyring.clone(), world.clock.now());
    let overtake = move |_: &[u8]| {
        let mut waiting = Vec::new();
        let hash = Hash::sha256(b"other");
        let entry = Entry::Decision { tag: hash, token: hash, record: hash };
        write_entry(&mut waiting, &entry.to_bytes()).unwrap();
        let size = apart::run_once(&database, |tx| {
            public_log::add(tx, Sandbox, at, waiting)?;
            append::append(tx, Sandbox, kept.log_secrets())?;
            Ok(public_log::newest(tx, Sandbox)?.tree.size())
        });
        (409, write_conflict(size.unwrap().unwrap()))
    };
    add(&world, "w.example", serving(overtake));
    keeper(&world, None).keep(Sandbox).await.unwrap();
    let log = log(&world);
    assert!(log.tree.size() > 1);
    assert_eq!(log.stopped, None);
}

#[tokio::test]
async fn a_witness_that_was_away_cosigns_a_quiet_log_when_it_comes_back() {
    let world = World::new().await;
    let of = VerifierKey::parse(&log(&world).verifier_key).unwrap();
    let mut tries = 0;
    let (own, keys) = (key("w.example"), vec![of]);
    let away = move |body: &[u8]| {
        tries += 1;
        if tries == 1 {
            return (503, String::new());
        }
        let asked = AddCheckpoint::parse(body).unwrap();
        let state = WitnessedLog { keys: keys.clone(), last: None };
        (200, format!("{}\n", cosign(&own, state.decide(&asked).unwrap(), NOW)))
    };
    add(&world, "w.example", serving(away));
    let keeper = keeper(&world, None);
    keeper.keep(Sandbox).await.unwrap();
    let before = log(&world);
    assert!(before.checkpoint.is_some() && before.witnessed.is_none());
    keeper.keep(Sandbox).await.unwrap();
    let now = log(&world);
    assert_eq!(now.tree.size(), before.tree.size());
    assert!(has_cosigned(&world, "w.example"));
    assert_eq!(now.witnessed, now.checkpoint);
}

#[tokio::test]
async fn a_silent_witness_does_not_hold_up_the_quorum() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let of = VerifierKey::parse(&log(&world).verifier_key).unwrap();
    for name in ["w1.example", "w2.example"] {
        add(&world, name, honest(name, &of));
    }
    // Connections are taken, and nothing is ever said.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    add(&world, "w3.example", format!("http://{}", silent.local_addr().unwrap()));
    let keeper = keeper(&world, None);
    for _ in 0..3 {
        world.ask(&agent, "1").await;
        let began = Instant::now();
        keeper.keep(Sandbox).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
        let log = log(&world);
        assert_eq!(log.checkpoint, log.witnessed);
    }
}

/// A witness that never answers about logs of one kind, and refuses those of the other at once.
fn silent_about(kind: EnvironmentKind) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let asked = AddCheckpoint::parse(&request(&mut stream)).unwrap();
            if asked.checkpoint.checkpoint().origin().ends_with(kind.as_str()) {
                kept.push(stream);
            } else {
                let refused = b"HTTP/1.1 403 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(refused).unwrap();
            }
        }
    });
    url
}

/// The one that nothing holds up is published first, whichever comes first in the server.
#[tokio::test]
async fn a_witness_that_is_silent_about_one_kind_does_not_hold_up_the_other() {
    for silent in EnvironmentKind::ALL {
        let world = World::new().await;
        add(&world, "w.example", silent_about(silent));
        let keeper = keeper(&world, None);
        let first_published = async {
            loop {
                let mut published = Vec::new();
                for kind in EnvironmentKind::ALL {
                    let log =
                        world.store.read(move |tx| public_log::newest(tx, kind)).await.unwrap().unwrap();
                    published.extend(log.checkpoint.map(|_| kind));
                }
                if !published.is_empty() {
                    return published;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ((), published) = tokio::join!(keeper.look(), first_published);
        assert!(published.len() == 1 && published[0] != silent, "{silent}: {published:?}");
    }
}
