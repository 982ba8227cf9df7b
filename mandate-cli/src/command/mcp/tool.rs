//! The tools: a closed set, each with its schemas, and what it does.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use rmcp::schemars::generate::SchemaSettings;
use serde_json::Value;

use super::answer::{Mandates, Usage, failed, result};
use super::decided::Decided;
use super::input::{Nothing, Spend, When, Which, read};
use super::session::Session;
use super::trouble::Trouble;

/// What a model can call. No tool approves, revokes, switches or reads what is another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    AuthorizeSpend,
    GetDecision,
    ListMyMandates,
    MyUsage,
}

impl Kind {
    pub(super) const ALL: [Self; 4] =
        [Self::AuthorizeSpend, Self::GetDecision, Self::ListMyMandates, Self::MyUsage];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AuthorizeSpend => "authorize_spend",
            Self::GetDecision => "get_decision",
            Self::ListMyMandates => "list_my_mandates",
            Self::MyUsage => "my_usage",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The definition that the host shows to the model. Its text is fixed: nothing in it is from the service.
    pub(super) fn definition(self) -> Tool {
        let (title, about, input, output) = match self {
            Self::AuthorizeSpend => (
                "Ask before paying",
                "Ask whether a payment may be made, before making it. Call it once for each purchase and pay only on allow, \
                 with the token. Calling again with the same purchase and arguments is safe: it gives the decision there is. \
                 What is allowed counts as spent even if no money moves.",
                input::<Spend>(),
                output::<Decided>(),
            ),
            Self::GetDecision => (
                "Look at a decision",
                "Show a decision of this agent as it is now: whether its review is answered, and the token of an allow while \
                 it is valid.",
                input::<Which>(),
                output::<Decided>(),
            ),
            Self::ListMyMandates => (
                "What this agent may spend",
                "List the mandates of this agent, the newest first: limits, categories, the amount above which a person has to \
                 answer, and the last day.",
                input::<Nothing>(),
                output::<Mandates>(),
            ),
            Self::MyUsage => (
                "What this agent has spent",
                "Show what this agent has spent in a calendar month, and what is left of the limit.",
                input::<When>(),
                output::<Usage>(),
            ),
        };
        let is_reading = self != Self::AuthorizeSpend;
        let hints = ToolAnnotations::with_title(title).read_only(is_reading).destructive(false);
        Tool::new(self.name(), about, input)
            .with_title(title)
            .with_raw_output_schema(output)
            .with_annotations(hints.idempotent(true).open_world(false))
    }

    /// Does what a call asks for.
    pub(super) fn call(self, arguments: Option<JsonObject>, session: &Session) -> CallToolResult {
        let done = match self {
            Self::AuthorizeSpend => authorize(arguments, session),
            Self::GetDecision => decision(arguments, session),
            Self::ListMyMandates => mandates(arguments, session),
            Self::MyUsage => usage(arguments, session),
        };
        done.unwrap_or_else(|trouble| failed(&trouble))
    }
}

fn authorize(arguments: Option<JsonObject>, session: &Session) -> Result<CallToolResult, Trouble> {
    let spend: Spend = read(arguments)?;
    let (body, idempotency_key) = spend.request()?;
    let posted = session.authorize(&body, idempotency_key)?;
    let mut decided = Decided::read(&posted.body, posted.is_replayed, session)?;
    // The answer that is given again is the first one. A person may have answered since.
    if posted.is_replayed && decided.is_review() {
        decided = Decided::read(&session.decision(&decided.id()?)?, true, session)?;
        if let Some(fresh) = decided.fresh() {
            let fresh =
                mandate_core::DecisionId::parse(fresh).map_err(|e| Trouble::unknown(&e.to_string()))?;
            decided = Decided::read(&session.decision(&fresh)?, true, session)?;
        }
    }
    // The decision is made: that what is left cannot be read takes nothing from it.
    let usage = session.usage(&[]).and_then(|json| Usage::read(&json)).ok();
    decided.this_month = usage.and_then(|usage| usage.remaining(&spend.currency));
    Ok(result(decided.next(), &decided))
}

fn decision(arguments: Option<JsonObject>, session: &Session) -> Result<CallToolResult, Trouble> {
    let id = read::<Which>(arguments)?.id()?;
    // An earlier call has made it, and may have paid.
    let decided = Decided::read(&session.decision(&id)?, true, session)?;
    Ok(result(decided.next(), &decided))
}

fn mandates(arguments: Option<JsonObject>, session: &Session) -> Result<CallToolResult, Trouble> {
    let Nothing {} = read(arguments)?;
    let mandates = Mandates::read(&session.mandates()?)?;
    Ok(result(mandates.next(), &mandates))
}

fn usage(arguments: Option<JsonObject>, session: &Session) -> Result<CallToolResult, Trouble> {
    let query = read::<When>(arguments)?.query()?;
    let usage = Usage::read(&session.usage(&query)?)?;
    Ok(result(usage.next(), &usage))
}

fn input<T: JsonSchema>() -> Arc<JsonObject> {
    schema::<T>(SchemaSettings::draft2020_12())
}

fn output<T: JsonSchema>() -> Arc<JsonObject> {
    schema::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// The schema of a type, in one piece and without naming its dialect, which older hosts do not know.
fn schema<T: JsonSchema>(settings: SchemaSettings) -> Arc<JsonObject> {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut object = match schema.to_value() {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    };
    object.remove("title");
    object.remove("description");
    Arc::new(object)
}
