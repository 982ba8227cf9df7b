//! One recorded trace of thousands of operations, drawn from a seed and carried out on both databases with the same clock
//! and the same randomness: every answer is the same, byte for byte, but for what ECDSA draws at each signature.

use std::sync::{Arc, Mutex};

use mandate_core::Timestamp;
use mandate_server::clock::{Clock, Entropy, Sleep, TestClock};
use mandate_tests::Kind;
use mandate_tests::campaign::{self, Numbers};

use crate::operations::{Operation, Recorder};
use crate::wire::Reply;
use crate::world::{World, noon};

/// Operations of an ordinary run.
const OPERATIONS: u32 = 800;

/// Shows the time, and wakes no task: what is done by time draws from the same randomness as the requests, in no order that
/// could be repeated. Readers see the time for themselves.
struct Still(Arc<TestClock>);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn database(&self, shown: Timestamp) -> Timestamp {
        self.0.database(shown)
    }

    fn uptime_millis(&self) -> i64 {
        self.0.uptime_millis()
    }

    fn sleep_until(&self, _: Timestamp) -> Sleep<'_> {
        Box::pin(std::future::pending())
    }
}

/// The same bytes for the same seed, in the order in which they are asked for.
struct Seeded(Mutex<Numbers>);

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut numbers = self.0.lock().unwrap();
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&numbers.draw().to_le_bytes()[..chunk.len()]);
        }
    }
}

async fn world(kind: Kind, seed: u64) -> World {
    let clock = noon();
    let (time, entropy) = (Still(Arc::clone(&clock)), Seeded(Mutex::new(Numbers::from_seed(seed))));
    World::on(kind, clock, Arc::new(time), Arc::new(entropy), |settings| {
        settings.base_url = Some("http://127.0.0.1:1/v1".to_owned());
        settings.verdicts_url = Some("http://127.0.0.1:2".to_owned());
    })
    .await
}

async fn carry_out(world: &World, operation: &Operation) -> Reply {
    // No two decisions are of one millisecond: their ids then rest on the clock alone.
    world.clock.advance(operation.seconds.max(1));
    let mut reply = operation.send(world).await;
    reply.body = unsigned(&reply.body);
    reply
}

/// The text with a mask over the signatures of its tokens.
fn unsigned(text: &str) -> String {
    let masked = text.split('"').map(|part| match part.rsplit_once('.') {
        Some((signed, signature)) if part.starts_with("eyJ") && signature.len() == 86 => {
            format!("{signed}.*")
        }
        _ => part.to_owned(),
    });
    masked.collect::<Vec<_>>().join("\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_trace_has_the_same_answers_on_both_databases() {
    let seed = campaign::seed("trace");
    let (sqlite, postgres) = tokio::join!(world(Kind::Sqlite, seed), world(Kind::Postgres, seed));
    assert_eq!(sqlite.organization_key, postgres.organization_key);
    let mut recorder = Recorder::new(seed, [sqlite.organization_key.clone(), sqlite.live_key.clone()]);
    let mut statuses = std::collections::BTreeMap::new();
    let wanted = OPERATIONS * campaign::scale();
    for number in 0..4 * wanted {
        // Few seeds take longer until each verdict was given.
        if number >= wanted && recorder.verdicts().len() == 8 {
            break;
        }
        let operation = recorder.next();
        let (one, other) = tokio::join!(carry_out(&sqlite, &operation), carry_out(&postgres, &operation));
        assert_eq!(one, other, "operation {number} of seed {seed}: {operation:#?}");
        assert!(one.status < 500, "operation {number} of seed {seed}: {operation:#?}: {}", one.body);
        *statuses.entry(one.status).or_insert(0) += 1;
        recorder.remember(&operation, &one);
    }
    println!("{statuses:?}, {:?}", recorder.verdicts());
    for status in [200, 201, 204, 400, 404, 409] {
        assert!(statuses.contains_key(&status), "the trace has no {status}: {statuses:?}");
    }
    assert_eq!(recorder.verdicts().len(), 8, "{:?}", recorder.verdicts());
    assert_eq!(sqlite.holds(), postgres.holds());
}
