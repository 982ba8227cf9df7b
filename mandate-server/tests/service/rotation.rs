//! Signing keys through their life: no client that keeps the key set for five minutes ever meets a token that it cannot verify.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use mandate_core::jwks::KeySet;
use mandate_core::verify::MAX_LEEWAY_SECONDS;
use mandate_core::{EnvironmentKind, Timestamp, VERDICT_LIFETIME_SECONDS};
use mandate_server::clock::SystemEntropy;
use mandate_server::error::Refusal;
use mandate_server::model::call::ScriptError;
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::{self, Operator};
use mandate_server::service::signing::rotation::{
    self, CACHE_SECONDS, CLOCK_MARGIN_SECONDS, INCOMING_SECONDS, KeyState, Maker, OUTGOING_SECONDS,
    PROPAGATION_SECONDS,
};
use mandate_server::service::signing::{self, Keyring};
use mandate_server::store::sql::signing_keys::SigningKeyRecord;
use mandate_server::store::tx::Tx;

use mandate_tests::Database;

use crate::apart;

const MASTER: [u8; 32] = [7; 32];
const KINDS: [EnvironmentKind; 2] = EnvironmentKind::ALL;
const SANDBOX: &[EnvironmentKind] = &[EnvironmentKind::Sandbox];

/// A database with signing keys, made at the beginning of time.
struct Keys {
    database: String,
    master: MasterKey,
    _held: Database,
}

impl Keys {
    fn new() -> Self {
        let held = apart::migrated(crate::KIND);
        let database = held.url().to_owned();
        let keys = Self { database, master: MasterKey::from_bytes(MASTER), _held: held };
        let maker = Maker { master: &keys.master, entropy: &SystemEntropy };
        keys.run(|tx| Ok(signing::ensure(tx, maker, "https://verdicts.example", at(0))?)).unwrap();
        keys
    }

    fn run<T: Send>(
        &self,
        script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError> + Send,
    ) -> Result<T, Refusal> {
        apart::run_once(&self.database, script).unwrap()
    }

    fn maker(&self) -> Maker<'_> {
        Maker { master: &self.master, entropy: &SystemEntropy }
    }

    fn keyring(&self) -> Keyring {
        self.run(|tx| Ok(Keyring::load(tx, &self.master, "https://verdicts.example")?)).unwrap()
    }

    fn refresh(&self, keyring: &Keyring) {
        self.run(|tx| Ok(keyring.refresh(tx)?)).unwrap();
    }

    fn rotate(&self, kinds: &[EnvironmentKind], now: i64) -> Result<Vec<SigningKeyRecord>, Refusal> {
        self.run(|tx| rotation::rotate(tx, self.maker(), kinds, &by(now)))
    }

    fn rotate_due(&self, every_seconds: i64, now: i64) -> usize {
        self.run(|tx| rotation::rotate_due(tx, self.maker(), every_seconds, &by(now))).unwrap().len()
    }

    fn revoke(&self, kid: &str, now: i64) -> Result<rotation::Revoked, Refusal> {
        self.run(|tx| rotation::revoke(tx, self.maker(), kid, &by(now)))
    }

    /// The states of the sandbox's keys, oldest first.
    fn states(&self, now: i64) -> Vec<KeyState> {
        let mut keys = self.run(|tx| Ok(rotation::list(tx)?)).unwrap();
        keys.retain(|key| key.kind.is_sandbox());
        keys.iter().map(|key| KeyState::of(key, at(now))).collect()
    }
}

/// Seconds after the keys were made.
fn at(seconds: i64) -> Timestamp {
    Timestamp::parse("2026-06-15T12:00:00Z").unwrap().plus_seconds(seconds)
}

fn by(seconds: i64) -> Operator {
    Operator { name: "test".to_owned(), at: at(seconds) }
}

fn published(keyring: &Keyring, seconds: i64) -> BTreeSet<String> {
    kids(&keyring.public_key_set(at(seconds)).unwrap())
}

fn kids(key_set: &str) -> BTreeSet<String> {
    KeySet::parse(key_set.as_bytes()).unwrap().iter().map(|key| key.kid().to_string()).collect()
}

fn signing(keyring: &Keyring, seconds: i64) -> String {
    keyring.signing(EnvironmentKind::Sandbox, at(seconds)).unwrap().signer.kid().to_string()
}

#[test]
fn a_key_is_incoming_signing_outgoing_and_retired() {
    use KeyState::{Incoming, Outgoing, Retired, Signing};
    let keys = Keys::new();
    let keyring = keys.keyring();
    let first = signing(&keyring, 0);
    let second = keys.rotate(SANDBOX, 1000).unwrap()[0].kid.clone();
    keys.refresh(&keyring);
    let switch = 1000 + INCOMING_SECONDS;
    let gone = switch + OUTGOING_SECONDS;
    for (seconds, states, signs) in [
        (-1_000_000, [Signing, Incoming], &first),
        (1000, [Signing, Incoming], &first),
        (switch - 1, [Signing, Incoming], &first),
        (switch, [Outgoing, Signing], &second),
        (gone - 1, [Outgoing, Signing], &second),
        (gone, [Retired, Signing], &second),
    ] {
        assert_eq!(keys.states(seconds), states, "{seconds}");
        assert_eq!(&signing(&keyring, seconds), signs, "{seconds}: no command is needed at the switch");
        assert!(published(&keyring, seconds).contains(&second));
        assert_eq!(published(&keyring, seconds).contains(&first), seconds < gone, "{seconds}");
    }
    let refused = keys.rotate(&KINDS, switch - 1).unwrap_err().message;
    assert!(refused.contains(&second) && refused.contains("incoming"), "{refused}");
    assert_eq!(keys.states(switch).len(), 2, "what is refused for one kind is done for none");
    assert_eq!(keys.rotate(&KINDS, switch).unwrap().len(), 2);
}

#[test]
fn a_keyring_that_was_not_read_lately_promises_nothing() {
    let keys = Keys::new();
    let began = Instant::now();
    let keyring = keys.keyring();
    let after = |seconds: i64| Instant::now() + Duration::from_secs(seconds.unsigned_abs());
    assert!(
        keyring.is_current(began)
            && keyring.is_current(began + Duration::from_secs(PROPAGATION_SECONDS.unsigned_abs()))
    );
    assert!(!keyring.is_current(after(PROPAGATION_SECONDS + 1)));
    keys.refresh(&keyring);
    assert!(keyring.is_current(Instant::now()));
}

#[test]
fn a_schedule_rotates_once_when_the_time_has_come() {
    let keys = Keys::new();
    let day = 24 * 60 * 60;
    assert_eq!(keys.rotate_due(90 * day, 90 * day - 1), 0);
    assert_eq!(keys.rotate_due(90 * day, 90 * day), 2, "one of each kind");
    assert_eq!(keys.rotate_due(90 * day, 90 * day), 0, "another server, or the same once more");
    assert_eq!(keys.rotate_due(90 * day, 180 * day + INCOMING_SECONDS - 1), 0);
    assert_eq!(keys.rotate_due(90 * day, 180 * day + INCOMING_SECONDS), 2);
}

#[test]
fn a_revoked_key_is_unpublished_at_once_and_another_signs_whatever_the_clocks_say() {
    let keys = Keys::new();
    let keyring = keys.keyring();
    let first = signing(&keyring, 0);
    let revoked = keys.revoke(&first, 1000).unwrap();
    keys.refresh(&keyring);
    let second = revoked.successor.unwrap().kid;
    for seconds in [1000 - CLOCK_MARGIN_SECONDS, 1000, 5000] {
        assert_eq!(signing(&keyring, seconds), second);
        assert!(
            !published(&keyring, seconds).contains(&first) && published(&keyring, seconds).contains(&second)
        );
    }
    assert!(keys.revoke(&first, 1001).unwrap_err().message.contains("is revoked"));
    assert!(keys.revoke("sandbox-unknown", 1001).unwrap_err().message.contains("no signing key"));

    let third = keys.rotate(SANDBOX, 2000).unwrap()[0].kid.clone();
    let revoked = keys.revoke(&second, 2001).unwrap();
    assert_eq!(revoked.successor.unwrap().kid, third, "the incoming one is known to some clients already");
    keys.refresh(&keyring);
    assert_eq!(signing(&keyring, 2001), third);

    let fourth = keys.rotate(SANDBOX, 3000).unwrap()[0].kid.clone();
    assert!(keys.revoke(&fourth, 3001).unwrap().successor.is_none());
    keys.refresh(&keyring);
    assert_eq!(
        (signing(&keyring, 1_000_000), published(&keyring, 1_000_000).contains(&third)),
        (third, true)
    );
}

#[test]
fn every_rotation_and_revocation_is_recorded_without_a_secret() {
    let keys = Keys::new();
    let made = keys.rotate(SANDBOX, 0).unwrap().remove(0);
    keys.revoke(&made.kid, 1).unwrap();
    let records = keys.run(|tx| Ok(audit::newest(tx, None, at(0), 10)?)).unwrap();
    let actions: Vec<_> = records.iter().map(|r| (r.action.as_str(), r.subject.as_str())).collect();
    assert_eq!(actions, [("signing-key.revoke", made.kid.as_str()), ("signing-key.rotate", &made.kid)]);
    assert!(records.iter().all(|record| record.details.get().len() < 200), "{records:?}");
}

#[test]
fn keys_are_neither_made_under_a_wrong_master_key_nor_signed_with_when_they_do_not_open() {
    let mut keys = Keys::new();
    let keyring = keys.keyring();
    keys.master = MasterKey::from_bytes([8; 32]);
    let refused = keys.rotate(SANDBOX, 0).unwrap_err().message;
    assert!(refused.contains("master key"), "{refused}");
    let refused = keys.revoke(&signing(&keyring, 0), 0).unwrap_err().message;
    assert!(refused.contains("master key"), "{refused}");
    assert_eq!(keys.states(0), [KeyState::Signing]);

    let old = MasterKey::from_bytes(MASTER);
    let sealed = keys.run(|tx| rotation::reseal(tx, &old, keys.maker(), &by(0)));
    assert_eq!(sealed.unwrap(), 2);
    assert!(apart::run_once(&keys.database, |tx| Ok(Keyring::load(tx, &old, "https://v.example")?)).is_err());
    let new = keys.keyring();
    keys.refresh(&keyring);
    assert_eq!(signing(&keyring, 1), signing(&new, 1), "a server that has opened a key goes on with it");

    keys.rotate(SANDBOX, 10).unwrap();
    let unopened = apart::run_once(&keys.database, |tx| Ok(keyring.refresh(tx)?));
    assert!(unopened.unwrap_err().to_string().contains("does not open"));
    let switch = 10 + INCOMING_SECONDS;
    assert_eq!(
        published(&keyring, 10),
        published(
            &{
                keys.refresh(&new);
                new.clone()
            },
            10
        ),
        "it is published all the same"
    );
    signing(&keyring, switch - 1);
    assert!(
        keyring.signing(EnvironmentKind::Sandbox, at(switch)).is_err(),
        "no old key in the place of the new one"
    );
}

/// The same numbers from the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % bound
    }

    pub(crate) fn between(&mut self, first: i64, last: i64) -> i64 {
        first + self.below(last - first + 1)
    }
}

/// A server: its clock, when it reads a change, and what it has published and signed with.
struct Server {
    offset: i64,
    keyring: Keyring,
    informed_at: Option<i64>,
    /// The key set as it was last published.
    shown: String,
    /// From when on it published which keys.
    published: Vec<(i64, BTreeSet<String>)>,
    /// When it signed with which key.
    signed: Vec<(i64, String)>,
}

/// A client that verifies: it fetches the key set at its phase, and every five minutes after that, one server or
/// another.
struct Client {
    offset: i64,
    leeway: i64,
    phase: i64,
}

impl Server {
    fn published_at(&self, seconds: i64) -> &BTreeSet<String> {
        let place = self.published.partition_point(|(since, _)| *since <= seconds);
        &self.published[place - 1].1
    }
}

const STEPS: i64 = 6 * 60 * 60;
const CLIENTS: usize = 60;

/// What happens from second to second: commands and schedules rotate, servers read the change, publish and sign.
fn live(keys: &Keys, servers: &mut [Server], steps: i64, random: &mut Random) -> usize {
    let (mut rotations, mut next) = (0, 0);
    for now in 0..steps {
        if now >= next {
            // By a command on a machine with a clock of its own, or by the schedule of one of the servers.
            let edge = CLOCK_MARGIN_SECONDS / 2;
            let clock =
                now + [-edge, edge, random.between(-edge, edge)][usize::try_from(random.below(3)).unwrap()];
            let made = match random.below(3) {
                0 => keys.rotate(&KINDS, clock).map_or(0, |made| made.len()),
                1 => keys.rotate(SANDBOX, clock).map_or(0, |made| made.len()),
                _ => keys.rotate_due(random.between(600, 3000), clock),
            };
            if made > 0 {
                rotations += made;
                for server in servers.iter_mut() {
                    server.informed_at = Some(now + random.between(0, PROPAGATION_SECONDS));
                }
            }
            next = now + random.between(1, 1200);
        }
        for server in servers.iter_mut() {
            if server.informed_at.is_some_and(|at| at <= now) {
                keys.refresh(&server.keyring);
                server.informed_at = None;
            }
            let shown = server.keyring.public_key_set(at(now + server.offset)).unwrap();
            if shown != server.shown {
                server.published.push((now, kids(&shown)));
                server.shown = shown;
            }
            if random.below(4) == 0 {
                server.signed.push((now, signing(&server.keyring, now + server.offset)));
            }
        }
    }
    rotations
}

#[test]
fn no_client_with_a_five_minute_cache_ever_meets_a_token_that_it_cannot_verify() {
    let seed = number("MANDATE_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one("rotation"));
    println!("rotation: repeat with MANDATE_TEST_SEED={seed}");
    let scale = number("MANDATE_TEST_SCALE").map_or(1, |scale| i64::try_from(scale).unwrap());
    let mut random = Random(seed);
    let (keys, edge) = (Keys::new(), CLOCK_MARGIN_SECONDS / 2);
    let offsets = [-edge, edge, random.between(-edge, edge)];
    let mut servers = offsets.map(|offset| Server {
        offset,
        keyring: keys.keyring(),
        informed_at: None,
        shown: String::new(),
        published: Vec::new(),
        signed: Vec::new(),
    });
    let steps = STEPS * scale;
    let rotations = live(&keys, &mut servers, steps, &mut random);
    assert!(rotations >= 10, "{rotations} rotations");

    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (offset, leeway) = (random.between(-edge, edge), random.between(0, MAX_LEEWAY_SECONDS));
            // Every other one accepts tokens for as long as any client does.
            let (offset, leeway) =
                if number % 2 == 0 { (-edge, MAX_LEEWAY_SECONDS) } else { (offset, leeway) };
            Client { offset, leeway, phase: random.below(CACHE_SECONDS) }
        })
        .collect();
    let mut verified = 0;
    for server in &servers {
        for (signed_at, kid) in &server.signed {
            for client in &clients {
                // By the clock of the server the token has expired then; by its own the client takes it a little longer.
                let expired = signed_at + server.offset + VERDICT_LIFETIME_SECONDS;
                let last = expired + client.leeway - client.offset - 1;
                let asks_before = |seen_at: i64| seen_at - (seen_at - client.phase).rem_euclid(CACHE_SECONDS);
                // Who looks at a token after it was used has one more cache time.
                let late = asks_before(last + CACHE_SECONDS);
                for seen_at in [*signed_at, random.between(*signed_at, last.max(*signed_at)), last, late] {
                    let asked_at = asks_before(seen_at);
                    if asked_at < 0 || seen_at < *signed_at || seen_at >= steps {
                        continue;
                    }
                    let asked = &servers[usize::try_from(random.below(3)).unwrap()];
                    assert!(
                        asked.published_at(asked_at).contains(kid),
                        "a client of phase {} that asked at {asked_at} cannot verify at {seen_at} what a server with its \
                         clock {} s off signed at {signed_at}",
                        client.phase,
                        server.offset
                    );
                    verified += 1;
                }
            }
        }
    }
    assert!(verified > 100_000, "{verified}");
    println!("rotation: {rotations} rotations, {verified} verifications");
}

#[expect(clippy::disallowed_methods, reason = "the caller of the tests sets the campaign")]
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number; got `{text}`")))
}
