//! API keys wherever they do not belong.

use mandate_core::EnvironmentKind;
use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_server::http::router::{Route, table};
use reqwest::Method;
use serde_json::{Value, json};

use crate::apart;
use crate::samples::{Sample, sample};
use crate::tenants::{Tenant, Tenants};
use crate::wire::Reply;

/// The places of all texts in a value, as JSON pointers.
fn texts(value: &Value, at: &str) -> Vec<String> {
    match value {
        Value::String(_) => vec![at.to_owned()],
        Value::Object(members) => {
            members.iter().flat_map(|(name, value)| texts(value, &format!("{at}/{name}"))).collect()
        }
        Value::Array(elements) => {
            elements.iter().enumerate().flat_map(|(i, value)| texts(value, &format!("{at}/{i}"))).collect()
        }
        _ => Vec::new(),
    }
}

/// The name of a place, as messages have it.
fn named(place: &str) -> String {
    let mut steps = place.split('/').skip(1).map(|step| match step.parse::<usize>() {
        Ok(number) => format!("[{number}]"),
        Err(_) => format!(".{step}"),
    });
    steps.by_ref().collect::<String>().trim_start_matches('.').to_owned()
}

async fn post(tenant: &Tenant, route: &Route, sample: &Sample, body: &str) -> Reply {
    let path = route.path.replace("{id}", &sample.id);
    let asking = tenant.client.request(&Method::POST, &path).bearer_auth(tenant.key(route.key));
    asking.text(body).asked().await
}

#[tokio::test]
async fn an_api_key_is_refused_wherever_it_is_and_never_repeated_or_kept() {
    let Tenants { world, ours, .. } = &Tenants::new().await;
    let key = ApiKey::from_random(KeyClass::Organization, EnvironmentKind::Production, &[9; 32]);
    let (key, secret) = (key.expose(), &key.expose()[8..]);
    let refused = |answer: &Reply, what: &str| {
        let message = answer.refused(400, "invalid_request");
        assert!(!answer.body.contains(secret), "{what}: {}", answer.body);
        message
    };
    let mut places = 0;
    for route in table().iter().filter(|route| route.method == Method::POST) {
        world.clock.advance(7);
        let sample = sample(ours, "POST", route.path).await;
        for place in texts(&sample.body, "") {
            for text in [key.to_owned(), format!("x {key}.")] {
                let mut body = sample.body.clone();
                *body.pointer_mut(&place).unwrap() = json!(text);
                let escaped = body.to_string().replace("sk_live_", "\\u0073k\\u005flive_");
                for body in [body.to_string(), escaped] {
                    let answer = post(ours, route, &sample, &body).await;
                    let wanted = format!("{} must not hold an API key", named(&place));
                    assert_eq!(refused(&answer, &place), wanted, "{} {place}", route.path);
                }
            }
            places += 1;
        }
        // As a name, as the name of a retry, as a parameter and as its name.
        let path = route.path.replace("{id}", &sample.id);
        let asking = |path: &str| ours.client.request(&Method::POST, path).bearer_auth(ours.key(route.key));
        let named = asking(&path).header("Idempotency-Key", &format!("named {path}"));
        let answer = named.text(&json!({key: 1}).to_string()).asked().await;
        refused(&answer, route.path);
        let answer = asking(&path).header("Idempotency-Key", key).text("{}").asked().await;
        assert_eq!(refused(&answer, route.path), "Idempotency-Key must not hold an API key");
    }
    assert!(places > 15, "{places}");
    for query in [format!("agent={key}"), format!("cursor={key}"), format!("{key}=1")] {
        for path in ["/v1/decisions", "/v1/usage"] {
            let asking = ours.client.get(&format!("{path}?{query}")).bearer_auth(&ours.organization_key);
            refused(&asking.asked().await, &query);
        }
    }
    let asking = ours.client.request(&Method::DELETE, &format!("/v1/agents/{key}"));
    refused(&asking.bearer_auth(&ours.organization_key).asked().await, "a path");
    let mistyped = &key[..key.len() - 1];
    let asking =
        ours.client.get(&format!("/v1/decisions?agent={mistyped}")).bearer_auth(&ours.organization_key);
    let message = refused(&asking.asked().await, "mistyped");
    assert!(message.ends_with("got `sk_live_…`"), "{message}");

    let kept = apart::snapshot(&world.settings.database, |tx| {
        let rows = tx.query("SELECT body FROM idempotency", &[])?;
        rows.into_iter().map(|mut row| row.blob()).collect::<Result<Vec<_>, _>>()
    });
    let kept = kept.unwrap();
    assert!(!kept.is_empty());
    assert!(kept.iter().all(|body| !String::from_utf8_lossy(body).contains(secret)));
}
