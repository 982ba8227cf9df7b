//! Operations as a trace has them: drawn at random, about objects from earlier answers, some of them refused.

use std::collections::BTreeMap;

use mandate_tests::campaign::Numbers;
use serde_json::{Value, json};

use crate::wire::Reply;
use crate::world::World;

/// Objects that are remembered of each kind; the newest are the likeliest to be in a state of interest.
const REMEMBERED: usize = 40;
const LISTS: [&str; 7] = ["agents", "mandates", "decisions", "webhooks", "events", "escrows", "usage"];
const VERDICTS: [&str; 4] = ["allow", "review", "deny_limit", "deny_velocity"];
const CATEGORIES: [&str; 3] = ["software", "cloud", "travel"];
const CURRENCIES: [&str; 3] = ["USD", "USD", "EUR"];

/// A request, and by how much the clock moves before it.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) seconds: i64,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) name: Option<String>,
    pub(crate) body: Option<String>,
}

impl Operation {
    /// Sends it. The clock is the caller's to move.
    pub(crate) async fn send(&self, world: &World) -> Reply {
        let mut headers =
            self.name.as_ref().map_or(String::new(), |name| format!("Idempotency-Key: {name}\r\n"));
        if let Some(body) = &self.body {
            let length = body.len().to_string();
            headers.extend(["Content-Type: application/json\r\nContent-Length: ", &length, "\r\n"]);
        }
        let body = self.body.as_deref().unwrap_or_default();
        world.send(self.method, &self.path, &self.key, &headers, body).await
    }
}

/// Draws operations, and remembers the ids in their answers.
pub(crate) struct Recorder {
    numbers: Numbers,
    tenants: [Tenant; 2],
    past: Vec<Operation>,
    /// An agent that asks over and over, and how often it still does.
    burst: Option<(String, usize)>,
    verdicts: BTreeMap<String, usize>,
    count: usize,
}

/// What is known of one environment.
struct Tenant {
    key: String,
    agents: Vec<(String, String)>,
    /// Those that have a mandate, the newest last.
    mandated: Vec<String>,
    /// Ids by their prefix.
    objects: BTreeMap<&'static str, Vec<String>>,
    /// Lists that go on: the path with its filters, and where.
    cursors: Vec<String>,
}

impl Recorder {
    pub(crate) fn new(seed: u64, keys: [String; 2]) -> Self {
        let tenant = |key| Tenant {
            key,
            agents: Vec::new(),
            mandated: Vec::new(),
            objects: BTreeMap::new(),
            cursors: Vec::new(),
        };
        let (numbers, verdicts) = (Numbers::from_seed(!seed), BTreeMap::new());
        Self { numbers, tenants: keys.map(tenant), past: Vec::new(), burst: None, verdicts, count: 0 }
    }

    /// How often each verdict came.
    #[allow(dead_code, reason = "the suite of one database has no such case")]
    pub(crate) fn verdicts(&self) -> &BTreeMap<String, usize> {
        &self.verdicts
    }

    /// The next operation.
    pub(crate) fn next(&mut self) -> Operation {
        self.count += 1;
        if let Some((key, left)) = self.burst.take().filter(|(_, left)| *left > 0) {
            let body = authorization(&mut self.numbers);
            let operation = post(&mut self.numbers, key.clone(), "/v1/authorizations".to_owned(), &body);
            self.burst = Some((key, left - 1));
            return operation;
        }
        let seconds = match self.numbers.below(100) {
            0..60 => 0,
            60..97 => i64::try_from(self.numbers.below(30)).unwrap(),
            97..99 => i64::try_from(self.numbers.below(40_000)).unwrap(),
            _ => i64::try_from(self.numbers.below(400_000)).unwrap(),
        };
        let mut operation =
            if !self.past.is_empty() && self.numbers.below(12) == 0 { self.again() } else { self.fresh() };
        operation.seconds = seconds;
        operation
    }

    /// A retry, or another request under a name that was used.
    fn again(&mut self) -> Operation {
        let past = self.numbers.of(&self.past).clone();
        if self.numbers.below(3) > 0 {
            return past;
        }
        Operation { name: past.name, ..self.fresh() }
    }

    fn fresh(&mut self) -> Operation {
        // Most of what goes on is in the sandbox.
        let at = usize::from(self.numbers.below(4) == 0);
        let numbers = &mut self.numbers;
        let tenant = &self.tenants[at];
        let (key, choice) =
            (tenant.key.clone(), if tenant.agents.is_empty() { 0 } else { numbers.below(100) });
        let number = self.count;
        match choice {
            0..4 => register(numbers, key, number),
            4..10 => {
                let mandate = tenant.mandate(numbers);
                post(numbers, key, "/v1/mandates".to_owned(), &mandate)
            }
            10..13 => {
                let path = format!("/v1/mandates/{}/revoke", tenant.object("mnd", numbers));
                act(numbers, key, path)
            }
            13..52 => {
                let ((_, agent), body) = (tenant.buyer(numbers), authorization(numbers));
                self.burst = (numbers.below(40) == 0).then(|| (agent.clone(), 12));
                post(numbers, agent, "/v1/authorizations".to_owned(), &body)
            }
            52..58 => {
                let path = format!("/v1/reviews/{}/approve", tenant.object("rev", numbers));
                act(numbers, key, path)
            }
            58..62 => {
                let path = format!("/v1/reviews/{}/deny", tenant.object("rev", numbers));
                post(numbers, key, path, &json!({ "reason": format!("not now, {number}: “zu teuer”") }))
            }
            62..64 => {
                let mode = *numbers.of(&["observe", "enforce", "enforce", "off"]);
                post(numbers, key, "/v1/enforcement".to_owned(), &json!({ "mode": mode }))
            }
            64..67 => {
                let body = json!({ "url": format!("https://hooks.example.com/{number}"), "events": ["escrow.disputed"] });
                post(numbers, key, "/v1/webhooks".to_owned(), &body)
            }
            67 => Operation {
                method: "DELETE",
                ..get(key, format!("/v1/webhooks/{}", tenant.object("whk", numbers)))
            },
            68..72 => {
                let decision = tenant.object("dec", numbers);
                let body = json!({ "decision": decision, "condition": "goods", "refund_after": "2027-06-30T00:00:00Z" });
                post(numbers, key, "/v1/escrows".to_owned(), &body)
            }
            72..76 => {
                let path = format!("/v1/escrows/{}/transitions", tenant.object("esc", numbers));
                let to = *numbers.of(&["delivered", "released", "refunded", "funded"]);
                post(numbers, key, path, &json!({ "to": to, "note": "as agreed" }))
            }
            76..82 => show(numbers, tenant, key),
            82 => get(key, "/v1/enforcement".to_owned()),
            83..88 if !tenant.cursors.is_empty() => get(key, numbers.of(&tenant.cursors).clone()),
            _ => {
                let key = if numbers.below(3) == 0 { tenant.agent(numbers).1 } else { key };
                get(key, tenant.list(numbers))
            }
        }
    }

    /// Remembers the ids in an answer.
    pub(crate) fn remember(&mut self, operation: &Operation, reply: &Reply) {
        if operation.name.is_some() {
            self.past.push(operation.clone());
            if self.past.len() > REMEMBERED {
                self.past.remove(0);
            }
        }
        let sandbox = operation.key.contains("_sandbox_");
        let tenant = &mut self.tenants[usize::from(!sandbox)];
        let Ok(body) = serde_json::from_str::<Value>(&reply.body) else { return };
        if let (Some(id), Some(key)) = (body["id"].as_str(), body["agent_key"].as_str()) {
            tenant.agents.push((id.to_owned(), key.to_owned()));
        }
        if let (Some("active"), Some(agent)) = (body["status"].as_str(), body["agent"].as_str()) {
            tenant.mandated.retain(|known| known != agent);
            tenant.mandated.push(agent.to_owned());
        }
        if let Some(verdict) = body["verdict"].as_str() {
            *self.verdicts.entry(verdict.to_owned()).or_default() += 1;
        }
        if let Some(cursor) = body["next_cursor"].as_str() {
            let path = operation.path.split("&cursor").next().unwrap();
            tenant.cursors.push(format!("{path}&cursor={cursor}"));
        }
        for prefix in ["agt", "mnd", "dec", "rev", "whk", "evt", "esc"] {
            let known = tenant.objects.entry(prefix).or_default();
            let words = reply
                .body
                .split('"')
                .filter(|word| word.starts_with(prefix) && word.as_bytes().get(3) == Some(&b'_'));
            for word in words {
                known.retain(|id| id != word);
                known.push(word.to_owned());
            }
            known.drain(..known.len().saturating_sub(REMEMBERED));
        }
    }
}

impl Tenant {
    /// An agent's id and key.
    fn agent(&self, numbers: &mut Numbers) -> (String, String) {
        // A few are busy, so that limits and velocity come to bear.
        let among = if numbers.below(2) == 0 { self.agents.len().min(3) } else { self.agents.len() };
        self.agents[self.agents.len() - 1 - numbers.below(among)].clone()
    }

    /// An agent that has a mandate, most of the time.
    fn buyer(&self, numbers: &mut Numbers) -> (String, String) {
        if self.mandated.is_empty() || numbers.below(12) == 0 {
            return self.agent(numbers);
        }
        let among = self.mandated.len().min(5);
        let wanted = &self.mandated[self.mandated.len() - 1 - numbers.below(among)];
        self.agents.iter().find(|(id, _)| id == wanted).unwrap().clone()
    }

    /// An object that is known, or one that is not.
    fn object(&self, prefix: &'static str, numbers: &mut Numbers) -> String {
        match self.objects.get(prefix).filter(|known| !known.is_empty()) {
            Some(known) if numbers.below(20) > 0 => numbers.of(known).clone(),
            _ => format!("{prefix}_00000000000000000000000000"),
        }
    }

    fn mandate(&self, numbers: &mut Numbers) -> Value {
        let categories = CATEGORIES[..=numbers.below(3).max(1)].to_vec();
        let mut mandate = json!({
            "principal": "role:head-of-it",
            "agent": self.agent(numbers).0,
            "limits": { "per_transaction": 500, "currency": *numbers.of(&CURRENCIES) },
            "categories": categories,
            "expires": format!("2026-{:02}-{:02}", 7 + numbers.below(6), 1 + numbers.below(31)),
        });
        if numbers.below(2) == 0 {
            mandate["limits"]["per_month"] = json!(500 + numbers.below(2000));
        }
        if numbers.below(3) > 0 {
            mandate["review_above"] = json!(100 + numbers.below(450));
        }
        mandate
    }

    fn list(&self, numbers: &mut Numbers) -> String {
        let list = *numbers.of(&LISTS);
        if list == "usage" {
            return numbers
                .of(&["/v1/usage", "/v1/usage?month=2026-06", "/v1/usage?month=2026-13"])
                .to_string();
        }
        let path = format!("/v1/{list}?limit={}", numbers.below(30));
        let filter = match (list, numbers.below(6)) {
            ("decisions", 0) => format!("&verdict={}", numbers.of(&VERDICTS)),
            ("decisions", 1) => format!("&agent={}", self.agent(numbers).0),
            ("decisions", 2) => format!("&mandate={}", self.object("mnd", numbers)),
            ("decisions", 3) => {
                format!("&review={}", numbers.of(&["pending", "approved", "denied", "expired"]))
            }
            ("decisions", 4) => format!("&mode={}", numbers.of(&["observe", "enforce"])),
            ("events", 0..3) => {
                format!("&type={}", numbers.of(&["decision.resolved", "mandate.revoked", "ping"]))
            }
            _ => String::new(),
        };
        path + &filter
    }
}

fn authorization(numbers: &mut Numbers) -> Value {
    let amount: Value = match numbers.below(8) {
        0 => json!(500 + numbers.below(3)),
        1 => serde_json::from_str(&format!("{}.{:08}", numbers.below(90), 1 + numbers.below(9_999_999)))
            .unwrap(),
        2 => json!(-1),
        _ => json!(1 + numbers.below(400)),
    };
    json!({
        "amount": amount,
        "currency": *numbers.of(&CURRENCIES),
        "recipient": format!("vendor:acme-{}", numbers.below(5)),
        "category": *numbers.of(&CATEGORIES),
    })
}

/// Registers an agent, now and then under a name that is taken.
fn register(numbers: &mut Numbers, key: String, number: usize) -> Operation {
    let name = if numbers.below(5) == 0 { "buyer-1".to_owned() } else { format!("buyer-{number}") };
    post(numbers, key, "/v1/agents".to_owned(), &json!({ "name": name }))
}

/// Reads an object of any kind.
fn show(numbers: &mut Numbers, tenant: &Tenant, key: String) -> Operation {
    let (list, prefix) = *numbers.of(&[
        ("agents", "agt"),
        ("mandates", "mnd"),
        ("decisions", "dec"),
        ("events", "evt"),
        ("escrows", "esc"),
        ("webhooks", "whk"),
    ]);
    let key = if numbers.below(3) == 0 { tenant.agent(numbers).1 } else { key };
    get(key, format!("/v1/{list}/{}", tenant.object(prefix, numbers)))
}

fn post(numbers: &mut Numbers, key: String, path: String, body: &Value) -> Operation {
    Operation { body: Some(body.to_string()), ..act(numbers, key, path) }
}

fn act(numbers: &mut Numbers, key: String, path: String) -> Operation {
    let name = (numbers.below(2) == 0).then(|| format!("name-{}", numbers.draw()));
    Operation { method: "POST", name, ..get(key, path) }
}

fn get(key: String, path: String) -> Operation {
    Operation { seconds: 0, method: "GET", path, key, name: None, body: None }
}
