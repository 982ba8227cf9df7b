//! A database, an engine, an organization with one agent, and a clock.

use std::sync::Arc;

use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::json::Object;
use mandate_core::{AgentName, DecisionId, EnvironmentKind, EventId, Request, RequestId, Terms, Timestamp};
use mandate_server::admin::organization;
use mandate_server::clock::{Clock, Entropy, Ids, SystemEntropy, TestClock};
use mandate_server::error::Fault;
use mandate_server::model::call::{Answer, Call, Caller, Scripted};
use mandate_server::model::idempotency::Claim;
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::decide::Engine;
use mandate_server::service::idempotency;
use mandate_server::service::moments::Moments;
use mandate_server::service::signing::rotation::Maker;
use mandate_server::service::signing::{self, Keyring};
use mandate_server::service::{agents, decisions, keys, mandates, organizations, reviews};
use mandate_server::store::sql;
use mandate_server::store::sql::checksums::DECISIONS;
use mandate_server::store::tx::{Tx, Value as Parameter};
use mandate_server::store::{Authorization, Store};
use mandate_tests::Database;
use serde_json::Value;

use crate::apart;

pub(crate) const ISSUER: &str = "https://verdicts.example";

/// Everything that a test talks to.
pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) store: Store,
    pub(crate) engine: Arc<Engine>,
    pub(crate) database: String,
    pub(crate) organization: Arc<Caller>,
    pub(crate) organization_key: ApiKey,
    pub(crate) keyring: Keyring,
    pub(crate) ids: Arc<Ids>,
    pub(crate) moments: Arc<Moments>,
    pub(crate) held: Database,
}

pub(crate) fn random_key(class: KeyClass) -> ApiKey {
    let mut random = [0; 32];
    SystemEntropy.fill(&mut random);
    ApiKey::from_random(class, EnvironmentKind::Sandbox, &random)
}

impl World {
    /// A world at noon of 15 June 2026, with an organization's sandbox.
    pub(crate) async fn new() -> Self {
        Self::of(EnvironmentKind::Sandbox).await
    }

    /// A world with an organization's environment of this kind.
    pub(crate) async fn of(kind: EnvironmentKind) -> Self {
        let held = apart::migrated(crate::KIND);
        let database = held.url().to_owned();
        let clock = Arc::new(TestClock::at(Timestamp::parse("2026-06-15T12:00:00Z").unwrap()));
        let now = clock.now();
        let name = AgentName::parse("acme").unwrap();
        let created = organization::draw(name, now, &SystemEntropy);
        apart::run_once(&database, |tx| organizations::create(tx, &created)).unwrap().unwrap();
        let organization_key = match kind {
            EnvironmentKind::Sandbox => created.sandbox_key.clone(),
            EnvironmentKind::Production => created.live_key.clone(),
        };
        let keyring = apart::run_once(&database, |tx| Ok(keyring(tx, now)?));
        let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let keyring = keyring.unwrap().unwrap();
        let moments = Arc::new(Moments::new(shared, Arc::clone(&ids)));
        let engine = Arc::new(Engine::new(keyring.clone(), Arc::clone(&moments), 86_400));
        let store = apart::open(&database, Arc::clone(&engine) as _).unwrap();
        let organization = find(&store, &organization_key, now).await;
        Self { clock, store, engine, database, organization, organization_key, keyring, ids, moments, held }
    }

    /// Changes the database beside the service. Returns how many rows.
    pub(crate) fn change(&self, sql: &'static str) -> usize {
        apart::run_once(&self.database, |tx| Ok(tx.execute(sql, &[])?)).unwrap().unwrap()
    }

    /// Gives a decision another reason, with the checksum that it then has.
    #[allow(dead_code, reason = "not every suite has such a case")]
    pub(crate) fn give_reason(&self, decision: &Value, reason: &str) {
        let id = DecisionId::parse(decision.as_str().unwrap()).unwrap();
        let key: [Parameter; 2] = [self.organization.environment.id.into(), id.to_bytes().into()];
        let written = apart::run_once(&self.database, |tx| {
            tx.execute("UPDATE decisions SET reason = $1", &[reason.into()])?;
            Ok(DECISIONS.seal(tx, &key)?)
        });
        written.unwrap().unwrap();
    }

    /// Gives a decision the checksum of what it is now.
    #[allow(dead_code, reason = "not every suite has such a case")]
    pub(crate) fn reseal(&self, decision: &Value) {
        let id = DecisionId::parse(decision.as_str().unwrap()).unwrap();
        let key: [Parameter; 2] = [self.organization.environment.id.into(), id.to_bytes().into()];
        apart::run_once(&self.database, |tx| Ok(DECISIONS.seal(tx, &key)?)).unwrap().unwrap();
    }

    /// The one number that `sql` gives, read beside the service.
    pub(crate) fn number(&self, sql: &'static str) -> i64 {
        let row = apart::run_once(&self.database, |tx| Ok(tx.row(sql, &[])?.unwrap().integer()?));
        row.unwrap().unwrap()
    }

    /// Sets the clock back, and accepts it.
    pub(crate) fn set_back(&self, seconds: i64) {
        self.clock.step(-seconds);
        let now = self.clock.now();
        apart::run_once(&self.database, |tx| Ok(sql::clock::accept(tx, now)?)).unwrap().unwrap();
    }

    pub(crate) fn call(&self, caller: &Arc<Caller>) -> Call {
        let request_id = RequestId::from_bytes(self.ids.next(self.clock.now()));
        let (caller, at) = (Arc::clone(caller), self.clock.now());
        Call { caller, request_id, at, idempotency: None }
    }

    /// The id of a new event.
    pub(crate) fn event(&self) -> EventId {
        EventId::from_bytes(self.ids.next(self.clock.now()))
    }

    /// The 128 bits of a new id.
    pub(crate) fn new_id(&self) -> [u8; 16] {
        self.ids.next(self.clock.now())
    }

    /// Runs a script as the API does.
    pub(crate) async fn write<S>(&self, call: Call, script: S) -> Answer
    where
        S: Fn(&mut Tx<'_>, &Call) -> Scripted + Send + 'static,
    {
        let run = move |tx: &mut Tx<'_>| Ok(idempotency::once(tx, &call, |tx| script(tx, &call))?);
        self.store.write(run).await.unwrap().unwrap()
    }

    /// Registers an agent.
    pub(crate) async fn agent(&self, name: &str) -> Arc<Caller> {
        let key = random_key(KeyClass::Agent);
        let id = self.ids.next(self.clock.now());
        let create = agents::Create {
            name: AgentName::parse(name).unwrap(),
            key: key.clone(),
            id,
            at: self.clock.now(),
        };
        let answer = self
            .write(self.call(&self.organization), move |tx, call| agents::create(tx, call, &create))
            .await;
        assert_eq!(answer.status, 201);
        find(&self.store, &key, self.clock.now()).await
    }

    /// Creates another organization.
    pub(crate) async fn stranger(&self) -> Arc<Caller> {
        let (name, now) = (AgentName::parse("stranger").unwrap(), self.clock.now());
        let created = organization::draw(name, now, &SystemEntropy);
        apart::run_once(&self.database, |tx| organizations::create(tx, &created)).unwrap().unwrap();
        find(&self.store, &created.sandbox_key, now).await
    }

    /// Writes a mandate for an agent: `extra` is JSON members beside the required ones.
    pub(crate) async fn mandate(&self, agent: &Caller, per_month: u32, extra: &str) -> String {
        self.mandate_until("2026-12-31", agent, per_month, extra).await
    }

    /// The same, with another end.
    pub(crate) async fn mandate_until(
        &self,
        expires: &str,
        agent: &Caller,
        per_month: u32,
        extra: &str,
    ) -> String {
        let agent = agent.agent.as_ref().unwrap();
        let body = format!(
            r#"{{"principal":"role:cfo","agent":"{agent}","categories":["c"],"expires":"{expires}",
                "limits":{{"per_transaction":500,"per_month":{per_month},"currency":"USD"}}{extra}}}"#
        );
        let answer = self.write_mandate(&body).await;
        assert_eq!(answer["status"], "active", "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn write_mandate(&self, body: &str) -> Value {
        let terms = Terms::read(Object::parse(body.as_bytes()).unwrap()).unwrap();
        let create = mandates::Create { terms, moments: Arc::clone(&self.moments) };
        let answer =
            self.write(self.call(&self.organization), move |tx, call| mandates::create(tx, call, &create));
        json(&answer.await)
    }

    pub(crate) async fn revoke(&self, id: &str) -> Answer {
        let revoke = mandates::Revoke { id: id.to_owned(), moments: Arc::clone(&self.moments) };
        self.write(self.call(&self.organization), move |tx, call| mandates::revoke(tx, call, &revoke)).await
    }

    pub(crate) fn request(caller: &Caller, amount: &str) -> Request {
        let body = format!(r#"{{"amount":{amount},"currency":"USD","recipient":"vendor:v","category":"c"}}"#);
        Request::read(caller.agent.clone().unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap()
    }

    /// Asks for money in category `c`.
    pub(crate) async fn ask(&self, caller: &Arc<Caller>, amount: &str) -> Value {
        json(&self.decide(self.call(caller), amount).await)
    }

    pub(crate) async fn decide(&self, call: Call, amount: &str) -> Answer {
        let request = Ok(Self::request(&call.caller, amount));
        self.store.decide(Authorization::new(call, request)).await.unwrap()
    }

    pub(crate) async fn decision(&self, caller: &Arc<Caller>, id: &Value) -> Value {
        let (call, id, now) = (self.call(caller), id.as_str().unwrap().to_owned(), self.clock.now());
        json(&self.store.read(move |tx| decisions::get(tx, &call, &id, now)).await.unwrap().unwrap())
    }

    pub(crate) async fn approve(&self, review: &Value) -> Answer {
        let id = review.as_str().unwrap().to_owned();
        let approve = reviews::Approve { id, engine: Arc::clone(&self.engine) };
        self.write(self.call(&self.organization), move |tx, call| reviews::approve(tx, call, &approve)).await
    }

    pub(crate) async fn deny(&self, review: &Value, reason: Option<&str>) -> Answer {
        let id = review.as_str().unwrap().to_owned();
        let (reason, moments) = (reason.map(ToOwned::to_owned), Arc::clone(&self.moments));
        let deny = reviews::Deny { id, moments, reason };
        self.write(self.call(&self.organization), move |tx, call| reviews::deny(tx, call, &deny)).await
    }
}

/// A claim by which nothing that is kept has expired.
pub(crate) fn claim(name: &str, body: &str, key: &ApiKey) -> Claim {
    claim_at(name, body, key, Timestamp::from_seconds(0))
}

pub(crate) fn claim_at(name: &str, body: &str, key: &ApiKey, at: Timestamp) -> Claim {
    Claim::new(name, "POST", "/v1/authorizations", body.as_bytes(), key, at).unwrap()
}

fn keyring(tx: &mut Tx<'_>, now: Timestamp) -> Result<Keyring, Fault> {
    let master = MasterKey::from_bytes([7; 32]);
    signing::ensure(tx, Maker { master: &master, entropy: &SystemEntropy }, ISSUER, now)?;
    Keyring::load(tx, &master, ISSUER)
}

pub(crate) async fn find(store: &Store, key: &ApiKey, now: Timestamp) -> Arc<Caller> {
    let hash = key.hash();
    Arc::new(store.read(move |tx| keys::find(tx, &hash, now)).await.unwrap().unwrap().unwrap())
}

pub(crate) fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}
