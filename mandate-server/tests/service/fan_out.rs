//! Which webhooks get an event when webhooks are added, deleted and emptied while it waits for a lock: those that
//! it locks.

use std::sync::Arc;

use mandate_core::WebhookId;
use mandate_server::model::call::Caller;
use mandate_tests::cluster::Held;

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

/// Who writes the event.
#[derive(Debug, Clone, Copy)]
enum Writer {
    /// A batch of authorizations.
    Batch,
    /// A script.
    Script,
}

/// A world with an agent and its mandate.
struct Scene {
    world: World,
    agent: Arc<Caller>,
    mandate: String,
}

impl Scene {
    async fn new() -> Self {
        let world = World::new().await;
        let agent = world.agent("a").await;
        let mandate = world.mandate(&agent, 10_000, r#","review_above":10"#).await;
        Self { world, agent, mandate }
    }

    /// A webhook that is in the due queue already.
    async fn webhook(&self) -> String {
        let id = webhook(&self.world).await;
        assert_eq!(ping(&self.world, self.world.call(&self.world.organization), &id).await.status, 202);
        id
    }

    /// Another transaction that has done this to a webhook and is under way.
    fn under_way(&self, sql: &str, id: &str) -> Held {
        let id = u128::from_be_bytes(WebhookId::parse(id).unwrap().to_bytes());
        Held::begin(&self.world.database, &sql.replace("{}", &format!("decode('{id:032x}', 'hex')")))
    }

    async fn write(&self, writer: Writer) {
        match writer {
            Writer::Batch => assert_eq!(self.world.ask(&self.agent, "20").await["verdict"], "review"),
            Writer::Script => assert_eq!(self.world.revoke(&self.mandate).await.status, 200),
        }
    }

    async fn until_it_waits(&self) {
        while self.world.number(WAITING) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_webhook_that_comes_while_another_is_waited_for_loses_nothing() {
    for writer in [Writer::Batch, Writer::Script] {
        for then in [DELETE, EMPTY] {
            let scene = Scene::new().await;
            let first = scene.webhook().await;
            let holding = scene.under_way(HOLD, &first);
            let meanwhile = async {
                scene.until_it_waits().await;
                let second = scene.webhook().await;
                let changing = scene.under_way(then, &second);
                holding.commit();
                changing
            };
            let ((), changing) = tokio::join!(scene.write(writer), meanwhile);
            changing.commit();
            assert_eq!(
                (scene.world.number(MADE), scene.world.number(LOST)),
                (1, 0),
                "{writer:?}, then {then}"
            );
            oracle::holds(&scene.world.database);
        }
    }
}

#[tokio::test]
async fn a_webhook_that_is_emptied_or_deleted_while_it_is_waited_for_is_seen_as_it_is_then() {
    for writer in [Writer::Batch, Writer::Script] {
        for (meanwhile, made) in [(EMPTY, 1), (DELETE, 0)] {
            let scene = Scene::new().await;
            let changing = scene.under_way(meanwhile, &scene.webhook().await);
            let commit = async {
                scene.until_it_waits().await;
                // A statement that begins behind the wait would see this one too, and not the change that is under way.
                let other = scene.under_way(meanwhile, &scene.webhook().await);
                changing.commit();
                other
            };
            let ((), other) = tokio::join!(scene.write(writer), commit);
            other.commit();
            assert_eq!(
                (scene.world.number(MADE), scene.world.number(LOST)),
                (made, 0),
                "{writer:?}, {meanwhile}"
            );
            oracle::holds(&scene.world.database);
        }
    }
}
