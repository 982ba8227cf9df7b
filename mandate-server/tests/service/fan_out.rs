//! Which webhooks get an event when webhooks are added, deleted and emptied while it waits for a lock: those that
//! it locks.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::WebhookId;
use mandate_server::model::call::Caller;
use mandate_tests::cluster::{self, OpenTransaction};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::events::ping;
use crate::oracle;
use crate::order::webhook;
use crate::world::World;

const WAITING: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND a.datname = current_database()";
/// Deliveries of events other than pings.
const MADE: &str = "SELECT count(*) FROM deliveries d JOIN events e USING (environment, event)
    WHERE d.state = 'pending' AND e.type <> 'ping'";
/// Those of them that no server would look at.
const LOST: &str = "SELECT count(*) FROM deliveries d JOIN events e USING (environment, event)
    LEFT JOIN webhooks w ON w.environment = d.environment AND w.webhook = d.webhook
    WHERE d.state = 'pending' AND e.type <> 'ping' AND w.due_at IS NULL";
const HOLD: &str = "SELECT 1 FROM webhooks WHERE webhook = {} FOR NO KEY UPDATE";
const DELETE: &str = "DELETE FROM subscriptions WHERE webhook = {}; DELETE FROM webhooks WHERE webhook = {}";
const EMPTY: &str = "UPDATE deliveries SET state = 'delivered' WHERE webhook = {};
    UPDATE webhooks SET due_at = NULL WHERE webhook = {}";

/// The statements that did this before, for an event that is there already: the second sees more than the first holds.
const FORMER: &str = "BEGIN;
    SELECT 1 FROM webhooks WHERE (environment, webhook) IN
            (SELECT s.environment, s.webhook FROM events e JOIN subscriptions s USING (environment, type))
        ORDER BY environment, webhook FOR NO KEY UPDATE;
    INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
        SELECT s.environment, e.event, s.webhook, 'pending', e.created_at, 0
        FROM events e JOIN subscriptions s USING (environment, type);
    UPDATE webhooks w SET due_at = e.created_at FROM events e JOIN subscriptions s USING (environment, type)
        WHERE w.environment = s.environment AND w.webhook = s.webhook
            AND (w.due_at IS NULL OR w.due_at > e.created_at);
    COMMIT";
/// How long the event may take to wait for a lock, or to be written.
const DEADLINE: Duration = Duration::from_mins(1);
/// How many scenes are played until the event is written in one try.
const SCENES: usize = 10;

/// Who writes the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// A batch of authorizations.
    Batch,
    /// A script.
    Script,
    /// The former statements. With them the tests must not find what they want.
    Former,
}

/// A world with an agent and its mandate.
struct Scene {
    world: World,
    agent: Arc<Caller>,
    mandate: String,
}

impl Scene {
    async fn new(writer: Writer) -> Self {
        let world = World::new().await;
        let agent = world.agent("a").await;
        let mandate = world.mandate(&agent, 10_000, r#","review_above":10"#).await;
        let scene = Self { world, agent, mandate };
        if writer == Writer::Former {
            scene.write(Writer::Batch).await;
        }
        scene
    }

    /// A webhook that is in the due queue already.
    async fn webhook(&self) -> String {
        let id = webhook(&self.world).await;
        assert_eq!(ping(&self.world, self.world.call(&self.world.organization), &id).await.status, 202);
        id
    }

    /// Another transaction that has done this to a webhook and is under way.
    fn under_way(&self, sql: &str, id: &str) -> OpenTransaction {
        let id = u128::from_be_bytes(WebhookId::parse(id).unwrap().to_bytes());
        OpenTransaction::begin(
            &self.world.database,
            &sql.replace("{}", &format!("decode('{id:032x}', 'hex')")),
        )
    }

    async fn write(&self, writer: Writer) {
        match writer {
            Writer::Batch => assert_eq!(self.world.ask(&self.agent, "20").await["verdict"], "review"),
            Writer::Script => assert_eq!(self.world.revoke(&self.mandate).await.status, 200),
            Writer::Former => {
                let database = self.world.database.clone();
                spawn_blocking(move || cluster::run(&database, FORMER)).await.unwrap();
            }
        }
    }

    /// Writes the event, and does `meanwhile` once the event waits. The transaction that this leaves under way ends when
    /// the event is written. Returns whether it was written in one try: where that took too long, another try sees what
    /// came meanwhile, and waits for it.
    async fn write_while(&self, writer: Writer, meanwhile: impl Future<Output = OpenTransaction>) -> bool {
        let mut writing = pin!(self.write(writer));
        let meanwhile = async {
            self.until_it_waits().await;
            meanwhile.await
        };
        let changing = tokio::select! {
            () = &mut writing => panic!("{writer:?} waited for nothing"),
            changing = meanwhile => changing,
        };
        let written = tokio::select! {
            () = &mut writing => true,
            () = self.until_it_waits() => false,
        };
        changing.commit();
        if !written {
            writing.await;
        }
        written || writer == Writer::Former
    }

    async fn until_it_waits(&self) {
        let waiting = async {
            while self.world.number(WAITING) == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, waiting).await.unwrap();
    }

    /// So many deliveries were made, and none is lost; the former statements would have other numbers.
    fn made(&self, writer: Writer, made: i64, change: &str) {
        let found = (self.world.number(MADE), self.world.number(LOST));
        if writer == Writer::Former {
            assert_ne!(found, (made, 0), "{change}");
        } else {
            assert_eq!(found, (made, 0), "{writer:?}, {change}");
            oracle::holds(&self.world.database);
        }
    }
}

/// A scene in which the event was written in one try. A slow machine needs more than one scene.
async fn in_one_try(mut played: impl AsyncFnMut() -> (Scene, bool)) -> Scene {
    for _ in 0..SCENES {
        if let (scene, true) = played().await {
            return scene;
        }
    }
    panic!("in each of {SCENES} scenes the event was tried anew");
}

#[tokio::test]
async fn a_webhook_that_comes_while_another_is_waited_for_loses_nothing() {
    for writer in [Writer::Batch, Writer::Script, Writer::Former] {
        for then in [DELETE, EMPTY] {
            let played = async || {
                let scene = Scene::new(writer).await;
                let holding = scene.under_way(HOLD, &scene.webhook().await);
                let meanwhile = async {
                    let second = scene.webhook().await;
                    let changing = scene.under_way(then, &second);
                    holding.commit();
                    changing
                };
                let in_one = scene.write_while(writer, meanwhile).await;
                (scene, in_one)
            };
            in_one_try(played).await.made(writer, 1, then);
        }
    }
}

#[tokio::test]
async fn a_webhook_that_is_emptied_or_deleted_while_it_is_waited_for_is_seen_as_it_is_then() {
    for writer in [Writer::Batch, Writer::Script, Writer::Former] {
        for (change, made) in [(EMPTY, 1), (DELETE, 0)] {
            let played = async || {
                let scene = Scene::new(writer).await;
                let changing = scene.under_way(change, &scene.webhook().await);
                let meanwhile = async {
                    // A statement that begins behind the wait would see this one too, and not the change that is under way.
                    let other = scene.under_way(change, &scene.webhook().await);
                    changing.commit();
                    other
                };
                let in_one = scene.write_while(writer, meanwhile).await;
                (scene, in_one)
            };
            in_one_try(played).await.made(writer, made, change);
        }
    }
}
