//! Who acts: an organization and its agents.

use serde_json::{Value, json};

use super::client::{Answer, Client};

/// An organization, with a client for each of its environments.
pub(crate) struct Organization {
    /// In the sandbox.
    pub(crate) client: Client,
    /// In production.
    pub(crate) live: Client,
}

/// An agent of an organization.
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) client: Client,
}

impl Organization {
    /// Registers an agent in the sandbox.
    pub(crate) fn agent(&self, name: &str) -> Agent {
        Agent::register(&self.client, name)
    }

    /// Registers an agent and writes its mandate, of [`terms`].
    pub(crate) fn buyer(&self, name: &str) -> Agent {
        let agent = self.agent(name);
        self.mandate(&terms(&agent.id));
        agent
    }

    /// Writes a mandate in the sandbox. Returns its id.
    pub(crate) fn mandate(&self, terms: &Value) -> String {
        let written = self.client.post("/mandates", terms);
        assert_eq!(written.status, 201, "{written:?}");
        written.text("/id")
    }
}

impl Agent {
    /// Registers an agent in the environment of the client.
    pub(crate) fn register(organization: &Client, name: &str) -> Self {
        let created = organization.post("/agents", &json!({ "name": name }));
        assert_eq!(created.status, 201, "{created:?}");
        let client = organization.with_key(&created.text("/agent_key"));
        Self { id: created.text("/id"), client }
    }

    /// Asks for so much, of [`authorization`].
    pub(crate) fn ask(&self, amount: u32) -> Answer {
        self.client.post("/authorizations", &authorization(amount))
    }
}

/// A mandate: 500 USD a payment, 2000 a month, above 200 a person decides.
pub(crate) fn terms(agent: &str) -> Value {
    json!({
        "principal": "role:head-of-it",
        "agent": agent,
        "limits": { "per_transaction": 500, "per_month": 2000, "currency": "USD" },
        "categories": ["software", "cloud"],
        "review_above": 200,
        "expires": "2099-12-31"
    })
}

/// A request that [`terms`] allow up to 200.
pub(crate) fn authorization(amount: u32) -> Value {
    json!({ "amount": amount, "currency": "USD", "recipient": "vendor:acme", "category": "software" })
}
