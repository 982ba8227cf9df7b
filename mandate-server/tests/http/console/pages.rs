//! What the pages say: nothing that the database does not know.

use mandate_core::EnvironmentKind;
use mandate_server::service::people::May;
use serde_json::{Value, json};

use super::outlived::{asked as listening, heard};
use super::{SignedIn, get, started};
use crate::apart;
use crate::wire::Reply;
use crate::world::{World, spend};

/// A person who may answer for `role:finance`.
fn finance(world: &World) -> SignedIn {
    SignedIn::new(world, EnvironmentKind::Sandbox, ("role:finance", May::Review))
}

/// An agent under a mandate that asks `role:finance` above 200: its key, and the mandate.
async fn buyer(world: &World) -> (String, String) {
    let agent = world.agent("a").await;
    let mandate = world.mandate("agt_a").await;
    (agent, mandate)
}

/// The answer to a request.
async fn asked(world: &World, agent: &str, request: &Value, verdict: &str) -> Value {
    let asked = world.post(agent, "/v1/authorizations", request).await.json();
    assert_eq!(asked["verdict"], verdict, "{asked}");
    asked
}

/// The id of a review that waits.
async fn waiting(world: &World, agent: &str, amount: u32) -> String {
    let asked = asked(world, agent, &spend(amount), "review").await;
    asked["review"]["id"].as_str().unwrap().to_owned()
}

/// An answer by the organization's key.
async fn answered(world: &World, review: &str, answer: &str) {
    let body = if answer == "deny" { json!({ "reason": "not needed" }) } else { json!({}) };
    let path = format!("/v1/reviews/{review}/{answer}");
    let answered = world.post(&world.organization_key, &path, &body).await;
    assert!(answered.status < 300, "{}", answered.body);
}

/// The text of a page, without its elements, in one line.
async fn text(world: &World, person: &SignedIn, page: &str) -> String {
    let shown = person.page(world, page).await;
    assert_eq!(shown.status, 200, "{page}: {}", shown.body);
    let pieces = shown.body.split('<').map(|piece| piece.split_once('>').map_or(piece, |(_, text)| text));
    pieces.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a page says each of these, or not.
fn says(text: &str, said: &[&str], unsaid: &[&str]) {
    for said in said {
        assert!(text.contains(said), "`{said}` is not in {text}");
    }
    for unsaid in unsaid {
        assert!(!text.contains(unsaid), "`{unsaid}` is in {text}");
    }
}

#[tokio::test]
async fn a_review_shows_what_else_its_agent_did_and_what_came_after_it() {
    let world = started().await;
    let (person, (agent, _)) = (finance(&world), buyer(&world).await);
    let first = waiting(&world, &agent, 300).await;
    let page = format!("reviews/{first}");
    says(&text(&world, &person, &page).await, &["Nothing: this is its one request."], &[]);

    // The same payment once more, and this one is paid.
    let second = waiting(&world, &agent, 300).await;
    let paid = "No payment to this recipient was allowed among these decisions.";
    says(&text(&world, &person, &page).await, &["1 decision, the newest", "; 1 of them after it", paid], &[]);
    answered(&world, &second, "approve").await;
    let shown = text(&world, &person, &page).await;
    says(&shown, &["2 decisions, the newest", "; 2 of them after it", "1 300 USD 1 0"], &[paid, "Nothing"]);
    assert_eq!(shown.matches("after this request").count(), 2);

    // Of the second, the first came before; its own approval is not among what else the agent did.
    let shown = text(&world, &person, &format!("reviews/{second}")).await;
    says(&shown, &["1 decision, the newest", paid], &["of them after it", "after this request"]);

    // What was only ever denied is not paid, and a denial says whether it was later.
    answered(&world, &first, "deny").await;
    let other =
        json!({ "amount": 900, "currency": "USD", "recipient": "vendor:other", "category": "software" });
    asked(&world, &agent, &other, "deny_limit").await;
    let other =
        json!({ "amount": 250, "currency": "USD", "recipient": "vendor:other", "category": "software" });
    let third = asked(&world, &agent, &other, "review").await["review"]["id"].as_str().unwrap().to_owned();
    let shown = text(&world, &person, &format!("reviews/{third}")).await;
    says(&shown, &[paid, "vendor:other this one 0 0 1", "300 USD to vendor:acme : not needed"], &[]);
    let shown = text(&world, &person, &format!("reviews/{second}")).await;
    says(&shown, &["300 USD to vendor:acme : not needed", "; 2 of them after it"], &[]);
}

/// A mandate with a limit of the month, which asks `role:finance` above 200.
async fn with_month(world: &World, per_month: u32) {
    let mandate = json!({
        "principal": "role:finance", "agent": "agt_a", "categories": ["software"], "review_above": 200,
        "limits": { "per_transaction": 500, "per_month": per_month, "currency": "USD" }, "expires": "2026-12-31",
    });
    assert_eq!(world.post(&world.organization_key, "/v1/mandates", &mandate).await.status, 201);
}

#[tokio::test]
async fn a_payment_is_ahead_of_the_month_only_while_it_waits() {
    let world = started().await;
    let (person, agent) = (finance(&world), world.agent("a").await);
    with_month(&world, 500).await;
    let [approved, denied, late] = [
        waiting(&world, &agent, 300).await,
        waiting(&world, &agent, 260).await,
        waiting(&world, &agent, 250).await,
    ]
    .map(|review| format!("reviews/{review}"));
    let exceeded = "the month’s limit would be exceeded";
    let bar = async |page: &str| {
        let shown = person.page(&world, page).await.body;
        let (_, bar) = shown.split_once("max=\"500\" value=\"").unwrap();
        bar.split('"').next().unwrap().to_owned()
    };
    let row = "Spent 0 USD This payment 300 USD Limit 500 USD Left without it 500 USD";
    says(&text(&world, &person, &approved).await, &[row], &[exceeded]);
    assert_eq!(bar(&approved).await, "300");
    answered(&world, approved.trim_start_matches("reviews/"), "approve").await;
    answered(&world, denied.trim_start_matches("reviews/"), "deny").await;
    // What was approved is spent, and what was denied is not: neither is to come.
    for page in [&approved, &denied] {
        let shown = text(&world, &person, page).await;
        says(
            &shown,
            &["Spent 300 USD Limit 500 USD Left 200 USD"],
            &[exceeded, "This payment", "without it"],
        );
        assert_eq!(bar(page).await, "300");
    }
    let row = "Spent 300 USD This payment 250 USD Limit 500 USD Left without it 200 USD";
    says(&text(&world, &person, &late).await, &[row, exceeded], &[]);
    assert_eq!(bar(&late).await, "550");
    // Nor is what has expired, in whichever month it is looked at.
    world.clock.advance(20 * 86_400);
    let person = finance(&world);
    says(&text(&world, &person, &late).await, &["Spent 0 USD Limit 500 USD Left 500 USD"], &[exceeded]);
}

#[tokio::test]
async fn what_waits_for_a_person_is_shown_however_much_waits_for_others() {
    let world = started().await;
    let person = finance(&world);
    for name in (0..11).map(|number| format!("ops{number}")) {
        let key = world.agent(&name).await;
        let mandate = json!({
            "principal": "role:ops", "agent": format!("agt_{name}"), "categories": ["software"],
            "limits": { "per_transaction": 500, "currency": "USD" }, "review_above": 200, "expires": "2026-12-31",
        });
        assert_eq!(world.post(&world.organization_key, "/v1/mandates", &mandate).await.status, 201);
        for _ in 0..10 {
            waiting(&world, &key, 300).await;
        }
    }
    let ops = SignedIn::new(&world, EnvironmentKind::Sandbox, ("role:ops", May::Review));
    world.clock.advance(1);
    let (agent, _) = buyer(&world).await;
    let own = waiting(&world, &agent, 300).await;
    let count = "111 reviews wait for an answer. 100 are shown, yours first.";
    for (person, has_own) in [(person, true), (ops, false)] {
        let shown = person.page(&world, "").await.body;
        let rows: Vec<_> = shown.split("data-review=\"").skip(1).map(|row| &row[..own.len()]).collect();
        assert_eq!((rows.len(), rows[0] == own, rows.contains(&&*own)), (100, has_own, has_own));
        assert!(shown.contains(count));
        // The news have the same.
        let news = heard(&mut listening(&world, &person, "events").await, "\n\n\r\n").await;
        let data = news.split("data: ").nth(1).unwrap().split("\n\n").next().unwrap();
        let news: Value = serde_json::from_str(data).unwrap();
        let waiting = news["waiting"].as_array().unwrap();
        let told: Vec<_> = waiting.iter().map(|told| told["review"].as_str().unwrap()).collect();
        assert_eq!((told, &news["total"]), (rows, &json!(111)));
    }
}

#[tokio::test]
async fn usage_says_what_it_does_not_know() {
    let world = started().await;
    let (person, agent) = (finance(&world), world.agent("a").await);
    let mandate = json!({
        "principal": "role:finance", "agent": "agt_a", "categories": ["software"],
        "limits": { "per_transaction": 500, "per_month": 600, "currency": "USD" }, "expires": "2026-12-31",
    });
    assert_eq!(world.post(&world.organization_key, "/v1/mandates", &mandate).await.status, 201);
    asked(&world, &agent, &spend(40), "allow").await;
    let bars = async |person: &SignedIn, page: &str| {
        let shown = person.page(&world, page).await.body;
        let (spent, _) = shown.split_once("<h2>Verdicts").unwrap();
        spent.matches("<meter").count()
    };
    says(&text(&world, &person, "usage").await, &["40 USD 600 USD"], &["shown", "not known"]);
    assert_eq!(bars(&person, "usage").await, 1);
    // Of a month before, the limit of today says nothing.
    world.clock.advance(20 * 86_400);
    let person = finance(&world);
    asked(&world, &agent, &spend(50), "allow").await;
    says(&text(&world, &person, "usage").await, &["50 USD 600 USD"], &["not known"]);
    says(&text(&world, &person, "usage?month=2026-06").await, &["40 USD not known"], &["600", "none"]);
    // Without a limit there is nothing of which a bar could show a part.
    assert_eq!(bars(&person, "usage?month=2026-06").await, 0);
    // More rows than fit: the agent asks in 200 more currencies, and is denied.
    for number in 0..200 {
        let mut request = spend(1);
        request["currency"] = json!(format!("X{number:03}"));
        assert_eq!(world.post(&agent, "/v1/authorizations", &request).await.status, 201);
    }
    let shown = text(&world, &person, "usage").await;
    let first = "all figures are of the first 200 rows.";
    says(
        &shown,
        &[first, "Verdicts of the agents shown", "Denials by agent and rule, of the agents shown"],
        &[],
    );
}

#[tokio::test]
async fn a_review_says_in_which_mode_it_was_asked() {
    let world = started().await;
    let (person, (agent, _)) = (finance(&world), buyer(&world).await);
    let (observed, stopped) =
        ("The agent was not stopped by this review", "the agent was stopped by this review");
    let switch = async |mode: &str| {
        let switched = world.post(&world.organization_key, "/v1/enforcement", &json!({ "mode": mode })).await;
        assert_eq!(switched.status, 200, "{}", switched.body);
    };
    let enforced = format!("reviews/{}", waiting(&world, &agent, 300).await);
    says(&text(&world, &person, &enforced).await, &[], &[observed, stopped]);
    switch("observe").await;
    says(&text(&world, &person, &enforced).await, &[stopped], &[observed]);
    let only_observed = format!("reviews/{}", waiting(&world, &agent, 310).await);
    switch("enforce").await;
    says(&text(&world, &person, &only_observed).await, &[observed], &[stopped]);
    says(&text(&world, &person, &enforced).await, &[], &[observed, stopped]);
    // So does the queue, and only of the one that was.
    let queue = text(&world, &person, "").await;
    assert_eq!(queue.matches("observed").count(), 1);
    says(&queue, &["310 USD agt_a → vendor:acme software observed"], &[]);
}

#[tokio::test]
async fn a_review_says_that_its_mandate_has_ended() {
    let world = started().await;
    let (person, (agent, mandate)) = (finance(&world), buyer(&world).await);
    let page = format!("reviews/{}", waiting(&world, &agent, 300).await);
    let ended = "The mandate that governs has ended.";
    says(&text(&world, &person, &page).await, &[], &[ended]);
    let path = format!("/v1/mandates/{mandate}/revoke");
    assert_eq!(world.post(&world.organization_key, &path, &json!({})).await.status, 200);
    let shown = text(&world, &person, &page).await;
    says(&shown, &[ended, "Revoked: ", "An approval can only be a denial. Approve…"], &[]);
    // Another one governs: the request is decided by that.
    world.mandate("agt_a").await;
    says(&text(&world, &person, &page).await, &["Another one governs now:"], &[ended]);
}

#[tokio::test]
async fn a_rule_behind_the_one_that_decided_is_not_reached() {
    let world = started().await;
    let (person, agent) = (finance(&world), world.agent("a").await);
    let unasked = asked(&world, &agent, &spend(300), "deny_no_mandate").await;
    with_month(&world, 600).await;
    let mut euros = spend(300);
    euros["currency"] = json!("EUR");
    let large = asked(&world, &agent, &spend(900), "deny_limit").await;
    let other = asked(&world, &agent, &euros, "deny_limit").await;
    let review = asked(&world, &agent, &spend(300), "review").await;
    for (decision, said) in [
        (unasked, &["Mandate denies", "Velocity holds"][..]),
        (
            large,
            &[
                "Limit of a payment denies",
                "Limit of the month not reached",
                "Category holds",
                "Review not reached",
            ],
        ),
        (
            other,
            &[
                "Currency denies",
                "Limit of a payment not reached",
                "Limit of the month not reached",
                "Review not reached",
            ],
        ),
        (
            review,
            &[
                "Limit of a payment holds",
                "Limit of the month holds",
                "Velocity holds",
                "Review asks a person",
            ],
        ),
    ] {
        let page = format!("decisions/{}", decision["decision"].as_str().unwrap());
        says(&text(&world, &person, &page).await, said, &[]);
    }
}

#[tokio::test]
async fn what_cannot_be_shown_is_said_in_words_on_a_marked_page() {
    let world = started().await;
    let marks = |reply: &Reply| {
        let page = reply.header("content-type").unwrap().starts_with("text/html");
        let marked = ["LIVE: real money", "Sandbox: no real money"];
        (page, marked.map(|mark| reply.body.contains(&format!("{mark}</strong>"))))
    };
    for kind in EnvironmentKind::ALL {
        let person = SignedIn::new(&world, kind, ("role:finance", May::Read));
        let is_live = kind == EnvironmentKind::Production;
        for (path, status) in
            [("nowhere", 404), ("reviews/x", 404), ("decisions?since=x", 400), ("answers", 400)]
        {
            let shown = person.page(&world, path).await;
            assert_eq!((shown.status, marks(&shown)), (status, (true, [is_live, !is_live])), "{path}");
            let back = format!("<a href=\"/{kind}/acme/\">");
            assert!(shown.body.contains(&back) && !shown.body.contains("<p>no such"), "{}", shown.body);
        }
        // An address that has lost its end leads to the queue.
        for path in ["", "/reviews", "/reviews/"] {
            let shown = get(&world, &person.cookie(), &format!("/{kind}/acme{path}")).await;
            assert_eq!((shown.status, shown.header("location")), (303, Some(&*format!("/{kind}/acme/"))));
        }
    }
    for path in ["/nowhere", "/sandbox", "/sandbox//"] {
        let shown = get(&world, "", path).await;
        assert_eq!((shown.status, marks(&shown)), (404, (true, [false, false])), "{path}");
    }
    // A fault says which request it was.
    let person = finance(&world);
    let damaged = apart::run_once(&world.settings.database, |tx| {
        Ok(tx.execute("UPDATE person_keys SET label = 'another'", &[])?)
    });
    damaged.unwrap().unwrap();
    let shown = person.page(&world, "").await;
    assert_eq!((shown.status, marks(&shown)), (500, (true, [false, true])), "{}", shown.body);
    assert!(shown.body.contains(shown.header("x-request-id").unwrap()), "{}", shown.body);
    // What a script asks for is JSON.
    let news = person.page(&world, "events").await;
    assert_eq!((news.status, news.header("content-type")), (500, Some("application/json")));
}
