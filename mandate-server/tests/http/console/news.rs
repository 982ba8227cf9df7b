//! What pages hear that wait, and when.

use mandate_core::EnvironmentKind;
use mandate_server::service::people::May;
use serde_json::json;

use super::outlived::{asked, change, heard};
use super::{SignedIn, review, started};
use crate::world::{World, spend};

/// The end of a piece of the news.
const END: &str = "\n\n\r\n";

/// A person of the sandbox for whom reviews wait.
fn finance(world: &World) -> SignedIn {
    SignedIn::new(world, EnvironmentKind::Sandbox, ("role:finance", May::Review))
}

/// The id of a review that waits now.
async fn waiting(world: &World, agent: &str) -> String {
    let asked = world.post(agent, "/v1/authorizations", &spend(300)).await.json();
    asked["review"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_page_whose_queue_cannot_be_read_is_stale_until_it_hears_it_again() {
    let world = started().await;
    let (agent, _) = review(&world).await;
    let mut page = asked(&world, &finance(&world), "events").await;
    heard(&mut page, "event: queue").await;
    change(&world, "ALTER TABLE reviews RENAME TO away");
    heard(&mut page, "event: stale").await;
    change(&world, "ALTER TABLE away RENAME TO reviews");
    heard(&mut page, "event: queue").await;
    // There are news, and whether the session lasts cannot be known.
    change(&world, "ALTER TABLE sessions RENAME TO away");
    let next = waiting(&world, &agent).await;
    assert!(!heard(&mut page, "event: stale").await.contains(&next));
    change(&world, "ALTER TABLE away RENAME TO sessions");
    heard(&mut page, &next).await;
}

/// The queue is read once a second for all pages together.
#[tokio::test]
async fn the_first_news_of_a_page_are_no_older_than_the_page() {
    let world = started().await;
    let (agent, _) = review(&world).await;
    let person = finance(&world);
    let mut first = asked(&world, &person, "events").await;
    heard(&mut first, "event: queue").await;
    for _ in 0..3 {
        let newest = waiting(&world, &agent).await;
        let mut page = asked(&world, &person, "events").await;
        let news = heard(&mut page, END).await;
        assert!(news.contains("event: queue") && news.contains(&newest), "{news}");
    }
}

#[tokio::test]
async fn the_page_of_a_review_hears_that_it_does_not_wait_any_more() {
    let world = started().await;
    let (agent, other) = review(&world).await;
    let (own, person) = (waiting(&world, &agent).await, finance(&world));
    let mut page = asked(&world, &person, &format!("events?review={own}")).await;
    let deny = async |review: &str| {
        let (path, body) = (format!("/v1/reviews/{review}/deny"), json!({ "reason": "no" }));
        assert_eq!(world.post(&world.organization_key, &path, &body).await.status, 200);
    };
    let waits = "event: review\ndata: {\"is_gone\":false,\"mode\":\"enforce\"}\n\n";
    heard(&mut page, waits).await;
    deny(other.as_str().unwrap()).await;
    assert!(!heard(&mut page, waits).await.contains("true"));
    deny(&own).await;
    heard(&mut page, "event: review\ndata: {\"is_gone\":true,\"mode\":\"enforce\"}\n\n").await;
    assert_eq!(person.page(&world, "events?review=rev_x").await.status, 400);
}
