//! The ceiling: what the machine gives to a service that stores nothing.
//!
//! axum, the body parsed, one ES256 signature, an answer of the same fields as ours. It knows no callers and looks nothing
//! up: the answer follows from the request alone.

mod common;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use mandate_core::{AgentId, Amount, Category, Currency, MandateId, Recipient, Request, Verdict};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::common::{DecisionSigner, Failure, now, respond, serve};

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    amount: &'a RawValue,
    currency: &'a str,
    recipient: &'a str,
    category: &'a str,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    serve(|signer| Ok(Router::new().route("/v1/authorizations", post(authorize)).with_state(signer))).await
}

async fn authorize(State(signer): State<Arc<DecisionSigner>>, body: Bytes) -> Response {
    respond(decide(&signer, &body))
}

fn decide(signer: &DecisionSigner, body: &[u8]) -> Result<Vec<u8>, Failure> {
    let body: Body<'_> = serde_json::from_slice(body)?;
    let request = Request {
        agent: AgentId::parse("agt_bench-00000")?,
        amount: Amount::parse(body.amount.get())?,
        currency: Currency::parse(body.currency)?,
        recipient: Recipient::parse(body.recipient)?,
        category: Category::parse(body.category)?,
    };
    let (verdict, reason) = if body.category != "software" {
        (Verdict::DenyCategory, Some("category travel is not among the mandate's categories"))
    } else if request.amount > Amount::parse("500")? {
        (Verdict::DenyLimit, Some("amount 900 exceeds per_transaction limit 500"))
    } else if request.amount > Amount::parse("200")? {
        (Verdict::Review, None)
    } else {
        (Verdict::Allow, None)
    };
    let now = now();
    let decision = signer.sign(request, verdict, Some(MandateId::new(now, 0)), now)?;
    signer.answer(&decision, verdict, reason, now)
}
