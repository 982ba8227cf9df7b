//! An escrow that settles with a provider whose answers a test decides.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use mandate_core::{EnvironmentKind, EscrowId, EscrowState};
use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::metrics::Metrics;
use mandate_server::model::call::{Answer, ScriptError};
use mandate_server::service::escrows::Reply::{self, Pending, Settled};
use mandate_server::service::escrows::{self, Address, Create};
use mandate_server::settlement::{Adapter, Instruction, Outcome, Settlement};
use mandate_server::store::sql::instructions::InstructionKey;
use mandate_server::store::tx::Tx;
use mandate_server::worker::settle::carry_out_due;
use serde_json::Value;

use crate::check::found;
use crate::escrows::{create, get, go_by, open};
use crate::events::log;
use crate::world::{self, World};

/// Longer than any instruction waits.
const AN_HOUR: i64 = 3_600;

/// What a provider does with one instruction.
pub(crate) type Said = Result<Reply, &'static str>;

/// A provider that answers as the test decides, and remembers what it was sent.
#[derive(Debug, Default, Clone)]
pub(crate) struct Provider {
    answers: Arc<Mutex<VecDeque<Said>>>,
    sent: Arc<Mutex<Vec<Instruction>>>,
}

impl Provider {
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = Said>) {
        self.answers.lock().unwrap().extend(answers);
    }

    /// What was sent since this was last asked.
    pub(crate) fn sent(&self) -> Vec<Instruction> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

impl Adapter for Provider {
    fn recorded(&self) -> Reply {
        Pending
    }

    fn carry_out<'a>(&'a self, instruction: &'a Instruction) -> Outcome<'a> {
        self.sent.lock().unwrap().push(instruction.clone());
        let answer = self.answers.lock().unwrap().pop_front().unwrap();
        Box::pin(async move { answer.map_err(Fault::new) })
    }
}

pub(crate) fn refused(reason: &str) -> Reply {
    Reply::Refused { reason: Some(reason.to_owned()) }
}

/// An escrow in a production environment that settles with a provider.
pub(crate) struct Deal {
    pub(crate) world: World,
    pub(crate) provider: Provider,
    pub(crate) settlement: Settlement,
    pub(crate) escrow: Value,
}

impl Deal {
    pub(crate) async fn begin() -> Self {
        let world = World::of(EnvironmentKind::Production).await;
        let provider = Provider::default();
        let settlement = Settlement::with(Box::new(provider.clone()));
        let agent = world.agent("a").await;
        world.mandate(&agent, 1_000, "").await;
        let decision = world.ask(&agent, "40.5").await["decision"].clone();
        let kind = world.organization.environment.kind;
        let create = Create { settlement: settlement.recorded(kind), ..create(&world, &decision) };
        let answer = open(&world, create).await;
        assert_eq!(answer.status, 201);
        let escrow = world::json(&answer);
        Self { world, provider, settlement, escrow }
    }

    /// One whose funds are locked, and that has then been in these states.
    pub(crate) async fn funded(states: &[EscrowState]) -> Self {
        let deal = Self::begin().await;
        deal.answered([Ok(Settled)]).await;
        for state in states {
            assert_eq!(deal.go(*state).await.status, 200);
        }
        deal.provider.sent();
        deal
    }

    /// Sends what is due. Returns how many instructions that were.
    pub(crate) async fn run(&self) -> usize {
        let metrics = Metrics::new();
        carry_out_due(&self.world.store, &self.settlement, &self.world.moments, &metrics).await.unwrap()
    }

    /// Has an instruction sent once for each of these answers, an hour apart.
    pub(crate) async fn answered(&self, answers: impl IntoIterator<Item = Said>) {
        for answer in answers {
            self.provider.answers([answer]);
            assert_eq!(self.run().await, 1);
            self.world.clock.advance(AN_HOUR);
        }
    }

    pub(crate) async fn go(&self, to: EscrowState) -> Answer {
        go_by(&self.world, &self.escrow, to, Some(to.as_str()), Pending).await
    }

    /// What those with a key see. Those with the address see the same, but for what only the former may see.
    pub(crate) async fn shown(&self) -> Value {
        let shown = get(&self.world, &self.world.organization, &self.escrow).await.unwrap();
        let address = Address::parse(shown["contract"].as_str().unwrap()).unwrap();
        let contract = self.world.store.read(move |tx| escrows::contract(tx, address)).await.unwrap();
        let mut public = shown.clone();
        let members = public.as_object_mut().unwrap();
        members.retain(|name, _| !["escrow", "decision", "settlement"].contains(&name.as_str()));
        assert_eq!(world::json(&contract.unwrap()), public);
        shown
    }

    /// State, flag and settlement, which is `action attempt status`.
    pub(crate) async fn summary(&self) -> (String, bool, String) {
        let shown = self.shown().await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let settlement = &shown["settlement"];
        let instruction = text(&settlement["instruction"]);
        let id = instruction.strip_prefix(self.escrow["escrow"].as_str().unwrap()).unwrap();
        assert!(id.starts_with(&format!(".{}.", text(&settlement["action"]))), "{id}");
        let settlement = format!("{} {}", id.trim_start_matches('.'), text(&settlement["status"]));
        (text(&shown["state"]), shown["disputed"].as_bool().unwrap(), settlement)
    }

    pub(crate) async fn must_be(&self, state: &str, disputed: bool, settlement: &str) {
        assert_eq!(self.summary().await, (state.to_owned(), disputed, settlement.to_owned()));
    }

    /// The states and flags that it has been in.
    pub(crate) async fn history(&self) -> Vec<(String, bool)> {
        let shown = self.shown().await;
        let history = shown["history"].as_array().unwrap().iter();
        history
            .map(|entry| (entry["state"].as_str().unwrap().to_owned(), entry["disputed"].as_bool().unwrap()))
            .collect()
    }

    /// The events so far, oldest first: type, state, flag.
    pub(crate) async fn events(&self) -> Vec<String> {
        let mut events: Vec<_> = log(&self.world).await;
        events.reverse();
        let line = |event: &Value| {
            let data = &event["data"];
            assert_eq!(data["escrow"], self.escrow["escrow"]);
            format!(
                "{} {} {}",
                event["type"].as_str().unwrap(),
                data["state"].as_str().unwrap(),
                data["disputed"]
            )
        };
        events.iter().map(line).collect()
    }

    /// The id of an instruction.
    pub(crate) fn id(&self, action_and_attempt: &str) -> String {
        format!("{}.{action_and_attempt}", self.escrow["escrow"].as_str().unwrap())
    }

    /// Has the provider say something of an instruction beside the worker. Returns whether it counts.
    pub(crate) async fn said(&self, number: i64, reply: Reply) -> bool {
        let escrow = EscrowId::parse(self.escrow["escrow"].as_str().unwrap()).unwrap();
        let key = InstructionKey { environment: self.world.organization.environment.id, escrow, number };
        let (moments, next_at) = (Arc::clone(&self.world.moments), self.world.clock.now());
        let script = move |tx: &mut Tx<'_>| {
            escrows::settle(tx, &key, &reply, next_at, &moments).map_err(ScriptError::Fault)
        };
        self.world.store.write(script).await.unwrap().unwrap()
    }

    /// Ends the story: a check of the database finds nothing.
    pub(crate) fn must_be_sound(&self) {
        self.world.store.close();
        assert_eq!(found(&self.world.database), Vec::<String>::new());
    }
}
