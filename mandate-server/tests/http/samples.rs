//! For each operation of the table, a request that succeeds: an operation without one fails the walk.

use serde_json::{Value, json};

use crate::tenants::{Tenant, text};

/// A request that succeeds once: what replaces `{id}`, and the body.
#[derive(Debug)]
pub(crate) struct Sample {
    /// An object of the tenant's, in the state that the operation needs; under an agent's key, the agent's own.
    pub(crate) id: String,
    /// The id of no object, of the same form.
    pub(crate) absent: &'static str,
    /// The body of a POST; null when it takes none.
    pub(crate) body: Value,
}

/// A fresh sample of an operation, named as in the table.
pub(crate) async fn sample(tenant: &Tenant, method: &str, path: &str) -> Sample {
    match (method, path) {
        (
            "GET",
            "/v1/agents" | "/v1/mandates" | "/v1/decisions" | "/v1/enforcement" | "/v1/webhooks"
            | "/v1/events" | "/v1/escrows" | "/v1/usage",
        ) => nothing(),
        ("POST", "/v1/agents") => body(json!({"name": tenant.name()})),
        ("GET", "/v1/agents/{id}") => object(own_agent(tenant).await, "agt_unknown"),
        ("POST", "/v1/mandates") => body(terms(&own_agent(tenant).await)),
        ("GET", "/v1/mandates/{id}") => object(own_mandate(tenant).await, "mnd_00000000000000000000000000"),
        ("POST", "/v1/mandates/{id}/revoke") => {
            let (agent, _) = tenant.agent().await;
            let mandate = tenant.create("/v1/mandates", &terms(&agent)).await;
            object(text(&mandate["id"]), "mnd_00000000000000000000000000")
        }
        ("POST", "/v1/authorizations") => body(request(40)),
        ("GET", "/v1/decisions/{id}") => object(allowed(tenant).await, "dec_00000000000000000000000000"),
        ("POST", "/v1/reviews/{id}/approve") => {
            object(review(tenant).await, "rev_00000000000000000000000000")
        }
        ("POST", "/v1/reviews/{id}/deny") => {
            let absent = "rev_00000000000000000000000000";
            Sample { id: review(tenant).await, absent, body: json!({"reason": "not this quarter"}) }
        }
        ("POST", "/v1/enforcement") => body(json!({"mode": "observe"})),
        ("POST", "/v1/webhooks") => body(subscription()),
        ("GET" | "DELETE", "/v1/webhooks/{id}") | ("POST", "/v1/webhooks/{id}/ping") => {
            object(webhook(tenant).await, "whk_00000000000000000000000000")
        }
        ("GET", "/v1/events/{id}") => {
            let ping = format!("/v1/webhooks/{}/ping", webhook(tenant).await);
            let event = tenant.create(&ping, &json!({})).await;
            object(text(&event["event"]), "evt_00000000000000000000000000")
        }
        ("POST", "/v1/escrows") => body(deal(&allowed(tenant).await)),
        ("GET", "/v1/escrows/{id}") => object(escrow(tenant).await, "esc_00000000000000000000000000"),
        ("POST", "/v1/escrows/{id}/transitions") => {
            let absent = "esc_00000000000000000000000000";
            let body = json!({"to": "delivered", "note": "signed for"});
            Sample { id: escrow(tenant).await, absent, body }
        }
        ("POST", "/v1/exports") => body(json!({"format": "ndjson", "verdict": "allow"})),
        ("GET", "/v1/exports/{id}") => {
            let export = tenant.create("/v1/exports", &json!({"format": "csv"})).await;
            object(text(&export["export"]), "exp_00000000000000000000000000")
        }
        _ => panic!("{method} {path} has no sample: add one here, so that the walk covers it"),
    }
}

fn nothing() -> Sample {
    body(Value::Null)
}

fn body(body: Value) -> Sample {
    Sample { id: String::new(), absent: "", body }
}

fn object(id: String, absent: &'static str) -> Sample {
    Sample { id, absent, body: Value::Null }
}

/// The agent behind the tenant's agent key.
async fn own_agent(tenant: &Tenant) -> String {
    let agents = tenant.client.get("/v1/agents").bearer_auth(&tenant.agent_key).asked().await.json();
    text(&agents["data"][0]["id"])
}

async fn own_mandate(tenant: &Tenant) -> String {
    let mandate = tenant.create("/v1/mandates", &terms(&own_agent(tenant).await)).await;
    text(&mandate["id"])
}

/// A pending review, of an agent of its own.
async fn review(tenant: &Tenant) -> String {
    let (agent, key) = tenant.agent().await;
    tenant.create("/v1/mandates", &terms(&agent)).await;
    text(&ask(tenant, &key, 300).await["review"]["id"])
}

/// An allow of the tenant's agent.
async fn allowed(tenant: &Tenant) -> String {
    own_mandate(tenant).await;
    // Little, so that a month has room for a long corpus.
    let answer = ask(tenant, &tenant.agent_key, 1).await;
    assert_eq!(answer["verdict"], "allow", "{answer}");
    text(&answer["decision"])
}

async fn webhook(tenant: &Tenant) -> String {
    text(&tenant.create("/v1/webhooks", &subscription()).await["webhook"])
}

/// An escrow that the tenant's agent buys with.
async fn escrow(tenant: &Tenant) -> String {
    text(&tenant.create("/v1/escrows", &deal(&allowed(tenant).await)).await["escrow"])
}

async fn ask(tenant: &Tenant, key: &str, amount: u32) -> Value {
    tenant.client.post("/v1/authorizations", &request(amount)).bearer_auth(key).asked().await.json()
}

pub(crate) fn terms(agent: &str) -> Value {
    json!({
        "principal": "role:head-of-it",
        "agent": agent,
        "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"},
        "categories": ["software"],
        "review_above": 200,
        "expires": "2027-06-30",
        "escrow": {"required_above": 0},
    })
}

fn subscription() -> Value {
    json!({"url": "https://hooks.example.com/mandate", "events": ["mandate.revoked"]})
}

fn deal(decision: &str) -> Value {
    json!({
        "decision": decision,
        "arbiter": "the chamber of commerce",
        "condition": "goods received",
        "refund_after": "2027-06-30T00:00:00Z",
    })
}

pub(crate) fn request(amount: u32) -> Value {
    json!({"amount": amount, "currency": "USD", "recipient": "vendor:acme", "category": "software"})
}
