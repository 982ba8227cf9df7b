//! `mandate escrow`: funds that are locked until a condition is met.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod contract;

use clap::Subcommand;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use mandate_core::api_key::KeyClass;
use mandate_core::{DecisionId, EscrowId, EscrowState, Timestamp};
use serde_json::json;

use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::{Given, completed, given, to_change};
use crate::output::Output;
use crate::resource::{ListOptions, Resource};
use crate::service::{Change, Service};
use crate::table::{agent, id, recipient, state, text, time, whole};
use crate::value::{day_or_instant, escrow_state};

const ESCROWS: Resource = Resource {
    path: "/escrows",
    class: None,
    id: Some("escrow"),
    columns: &[
        id("ESCROW", "escrow").spare(1),
        state("STATE", "state"),
        whole("AMOUNT", "amount currency"),
        agent("BUYER", "buyer"),
        recipient("SELLER", "seller"),
        time("REFUND AFTER", "refund_after"),
    ],
    lines: &[
        whole("escrow", "escrow"),
        state("state", "state"),
        text("disputed", "disputed"),
        text("amount", "amount currency"),
        text("buyer", "buyer"),
        text("seller", "seller"),
        text("arbiter", "arbiter"),
        text("condition", "condition"),
        text("refund after", "refund_after"),
        text("instruction", "settlement.instruction"),
        state("settlement", "settlement.status"),
        text("reason", "settlement.reason"),
        text("decision", "decision"),
        text("contract", "contract"),
        text("created", "created_at"),
    ],
    tables: &[(
        "history",
        &[state("STATE", "state"), text("DISPUTED", "disputed"), time("AT", "at"), text("NOTE", "note")],
    )],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Escrow {
    /// Create an escrow from an allowed decision
    #[command(after_help = "\
Examples:
  mandate escrow create dec_01hf7yat000000000000000007 \\
      --condition 'goods received' --refund-after 2027-06-30T00:00:00Z")]
    Create {
        /// The decision's id, `dec_...`; it gives amount, currency, buyer and seller [default: a choice]
        #[arg(value_parser = given::<DecisionId>, add = completed::<DecisionId>())]
        decision: Option<Given<DecisionId>>,
        /// The condition for the release
        #[arg(long, value_name = "TEXT")]
        condition: String,
        /// When the buyer can be refunded: a day (its start, UTC), RFC 3339, or seconds since the epoch
        #[arg(long, value_name = "TIME", value_parser = day_or_instant)]
        refund_after: Timestamp,
        /// The arbiter in a dispute
        #[arg(long, value_name = "TEXT")]
        arbiter: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    /// List escrows, newest first; with an agent key, those where it is the buyer
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate escrow list
  mandate escrow list --state disputed --all --jq '.[].escrow'"
    )]
    List {
        /// Only in this state
        #[arg(long, value_name = "STATE", value_parser = escrow_state())]
        state: Option<EscrowState>,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Show an escrow and its history
    #[command(after_help = "\
Examples:
  mandate escrow show esc_01hf7yat000000000000000007")]
    Show {
        /// The escrow's id, `esc_...`, or its beginning as lists show it [default: a choice]
        #[arg(value_parser = given::<EscrowId>, add = completed::<EscrowId>())]
        id: Option<Given<EscrowId>>,
        #[command(flatten)]
        service: Service,
    },
    /// Move an escrow to its next state
    #[command(
        allow_missing_positional = true,
        after_help = "\
Examples:
  mandate escrow transition esc_01hf7yat000000000000000007 delivered \\
      --note 'signed for'

funded may become delivered, refunded or disputed; delivered: released or disputed; disputed: released or refunded.
released and refunded are entered when the settlement provider has moved the funds. Until then the escrow \
shows its instruction, which is pending, and can only become disputed."
    )]
    Transition {
        /// The escrow's id, `esc_...`; at a terminal also its beginning [default: a choice]
        #[arg(value_parser = given::<EscrowId>, add = completed::<EscrowId>())]
        id: Option<Given<EscrowId>>,
        /// The new state: delivered, released, refunded or disputed
        #[arg(value_parser = next_state, add = ArgValueCandidates::new(next_states))]
        to: EscrowState,
        /// A note, visible to everyone who has the contract's address
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    Contract(contract::Contract),
}

/// The states that an escrow is moved to.
const NEXT_STATES: [&str; 4] = ["delivered", "released", "refunded", "disputed"];

/// What a shell offers for the state that an escrow is moved to.
fn next_states() -> Vec<CompletionCandidate> {
    NEXT_STATES.map(CompletionCandidate::new).into()
}

fn next_state(text: &str) -> Result<EscrowState, String> {
    EscrowState::parse(text).map_err(|_| format!("must be one of {}", NEXT_STATES.join(", ")))
}

impl Escrow {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::List { state, list } => {
                let filters = vec![("state", state.as_ref().map(ToString::to_string))];
                list.run(&ESCROWS, filters, global, output)
            }
            Self::Contract(args) => args.run(global, output),
            Self::Show { id, service } => ESCROWS.get(service, id.as_ref(), global, output),
            Self::Create { decision, condition, refund_after, arbiter, change } => {
                let client = Client::for_change(change, global, Some(KeyClass::Organization))?;
                let decision: DecisionId = to_change(decision.as_ref(), &client)?;
                let mut body = json!({
                    "decision": decision.to_string(),
                    "condition": condition,
                    "refund_after": refund_after.to_string(),
                });
                if let (Some(arbiter), Some(body)) = (arbiter, body.as_object_mut()) {
                    body.insert("arbiter".to_owned(), json!(arbiter));
                }
                client.confirm(&format!("lock the funds of {decision}"))?;
                ESCROWS.change(&client, ESCROWS.path, Some(&body.to_string()), output)
            }
            Self::Transition { id, to, note, change } => {
                let client = Client::for_change(change, global, Some(KeyClass::Organization))?;
                let id: EscrowId = to_change(id.as_ref(), &client)?;
                let mut body = json!({"to": to.to_string()});
                if let (Some(note), Some(body)) = (note, body.as_object_mut()) {
                    body.insert("note".to_owned(), json!(note));
                }
                client.confirm(&format!("move {id} on to {to}"))?;
                let path = format!("/escrows/{id}/transitions");
                ESCROWS.change(&client, &path, Some(&body.to_string()), output)
            }
        }
    }
}
