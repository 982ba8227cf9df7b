//! Walks through lists: every row once, whatever is written meanwhile, and filters that cost a bounded search.

use std::sync::Arc;

use mandate_core::cursor::CursorKey;
use mandate_core::{AgentId, MandateId, ReviewStatus, Timestamp, Verdict};
use mandate_server::clock::Clock;
use mandate_server::model::call::{Caller, ScriptError};
use mandate_server::model::records::Mode;
use mandate_server::service::decisions;
use mandate_server::service::listing::{Cursors, From, Query};
use mandate_server::store::sql::decisions::Filter;
use serde_json::Value;

use crate::world::{World, json};

async fn page(
    world: &World,
    caller: &Arc<Caller>,
    filter: &Filter,
    limit: u32,
    from: From,
) -> Result<Value, String> {
    let (call, filter, query) = (world.call(caller), filter.clone(), Query { limit, from });
    let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
    let listed =
        world.store.read(move |tx| decisions::list(tx, &call, &filter, &query, &cursors)).await.unwrap();
    match listed {
        Ok(answer) => Ok(json(&answer)),
        Err(ScriptError::Refused(refusal)) => Err(refusal.message),
        Err(ScriptError::Fault(fault)) => panic!("{fault}"),
    }
}

fn ids(page: &Value) -> Vec<String> {
    page["data"].as_array().unwrap().iter().map(|d| d["jti"].as_str().unwrap().to_owned()).collect()
}

/// Walks from `from` to the end. Returns all ids in the order in which they came, and the number of pages.
async fn walk(
    world: &World,
    caller: &Arc<Caller>,
    filter: &Filter,
    limit: u32,
    from: From,
) -> (Vec<String>, usize) {
    let (mut from, mut all, mut pages) = (from, Vec::new(), 0);
    loop {
        let found = page(world, caller, filter, limit, from).await.unwrap();
        all.extend(ids(&found));
        pages += 1;
        match found.get("next_cursor") {
            None => {
                assert_eq!(found["has_more"], false);
                return (all, pages);
            }
            Some(cursor) => {
                assert_eq!(found["has_more"], true);
                from = From::Cursor(cursor.as_str().unwrap().to_owned());
            }
        }
    }
}

/// A world with decisions of all kinds. Returns their ids, oldest first.
async fn filled(count: usize) -> (World, Arc<Caller>, Vec<String>) {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000_000, r#","review_above":200"#).await;
    let mut made = Vec::new();
    for n in 0..count {
        let amount = ["1", "300", "501"][n % 3];
        made.push(world.ask(&agent, amount).await["decision"].as_str().unwrap().to_owned());
        world.clock.advance(7);
    }
    (world, agent, made)
}

#[tokio::test]
async fn a_walk_gives_each_row_once_while_others_are_written() {
    let (world, agent, made) = filled(23).await;
    let newest_first: Vec<_> = made.iter().rev().cloned().collect();
    for limit in [1, 5, 22, 23, 24, 100] {
        let (all, pages) = walk(&world, &world.organization, &Filter::default(), limit, From::Newest).await;
        assert_eq!(all, newest_first, "limit {limit}");
        assert_eq!(pages, 23_usize.div_ceil(limit as usize));
    }
    let first = page(&world, &world.organization, &Filter::default(), 10, From::Newest).await.unwrap();
    world.ask(&agent, "1").await;
    let cursor = From::Cursor(first["next_cursor"].as_str().unwrap().to_owned());
    let (rest, _) = walk(&world, &world.organization, &Filter::default(), 10, cursor).await;
    assert_eq!([ids(&first), rest].concat(), newest_first);
}

#[tokio::test]
async fn a_walk_with_any_filter_gives_each_row_once_in_both_directions_while_others_are_written() {
    let of = |filter: fn(&mut Filter)| {
        let mut made = Filter::default();
        filter(&mut made);
        made
    };
    for mut filter in [
        Filter::default(),
        of(|filter| filter.verdict = Some(Verdict::Allow)),
        of(|filter| filter.agent = Some(AgentId::parse("agt_a").unwrap())),
        of(|filter| filter.mode = Some(Mode::Enforce)),
        of(|filter| filter.review = Some(ReviewStatus::Pending)),
        of(|filter| filter.since = Some(Timestamp::parse("2026-06-15T12:00:14Z").unwrap())),
    ] {
        let (world, agent, made) = filled(12).await;
        let mandate = world.decision(&agent, &made[0].as_str().into()).await["mandate"].clone();
        if filter.mode.is_some() {
            filter.mandate = Some(MandateId::parse(mandate.as_str().unwrap()).unwrap());
        }
        for start in [From::Newest, From::Before(made[0].clone())] {
            let (mut there, _) = walk(&world, &world.organization, &filter, 100, start.clone()).await;
            assert!(there.len() >= 4, "{filter:?}");
            let (mut from, mut seen) = (start, Vec::new());
            for amount in ["1", "300", "501"].iter().cycle() {
                let found = page(&world, &world.organization, &filter, 3, from).await.unwrap();
                seen.extend(ids(&found));
                world.ask(&agent, amount).await;
                world.clock.advance(7);
                let Some(cursor) = found.get("next_cursor") else { break };
                from = From::Cursor(cursor.as_str().unwrap().to_owned());
            }
            seen.retain(|id| there.contains(id));
            seen.sort();
            there.sort();
            assert_eq!(seen, there, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn a_position_is_held_by_an_id_in_both_directions() {
    let (world, agent, made) = filled(12).await;
    let none = Filter::default();
    let (older, _) = walk(&world, &agent, &none, 2, From::After(made[5].clone())).await;
    assert_eq!(older, made[..5].iter().rev().cloned().collect::<Vec<_>>());
    // Towards the newest, each page is still newest first.
    let near = page(&world, &agent, &none, 4, From::Before(made[5].clone())).await.unwrap();
    assert_eq!(ids(&near), [9, 8, 7, 6].map(|n: usize| made[n].clone()));
    let cursor = From::Cursor(near["next_cursor"].as_str().unwrap().to_owned());
    let far = page(&world, &agent, &none, 4, cursor).await.unwrap();
    assert_eq!(
        (ids(&far), &far["has_more"]),
        ([11, 10].map(|n: usize| made[n].clone()).to_vec(), &Value::from(false))
    );
    let wrong =
        page(&world, &agent, &none, 4, From::After("mnd_00000000000000000000000000".to_owned())).await;
    let wrong = wrong.unwrap_err();
    assert!(
        wrong.starts_with("starting_after must be the id of an object of this list; got `mnd_"),
        "{wrong}"
    );
}

#[tokio::test]
async fn filters_find_what_they_name_and_are_bound_into_the_cursor() {
    let (world, agent, made) = filled(30).await;
    let of = |verdict| Filter { verdict: Some(verdict), ..Filter::default() };
    for (n, verdict) in [Verdict::Allow, Verdict::Review, Verdict::DenyLimit].into_iter().enumerate() {
        let wanted: Vec<_> = made.iter().skip(n).step_by(3).rev().cloned().collect();
        for (caller, agent) in
            [(&world.organization, None), (&agent, None), (&world.organization, agent.agent.clone())]
        {
            let filter = Filter { agent, ..of(verdict) };
            assert_eq!(walk(&world, caller, &filter, 4, From::Newest).await.0, wanted);
        }
    }
    let at = world.clock.now();
    let window =
        Filter { since: Some(at.plus_seconds(-14)), until: Some(at.plus_seconds(-7)), ..Filter::default() };
    for from in [From::Newest, From::Before(made[0].clone())] {
        assert_eq!(walk(&world, &agent, &window, 1, from).await.0, made[28..29]);
    }
    let first = page(&world, &agent, &of(Verdict::Allow), 2, From::Newest).await.unwrap();
    let cursor = || From::Cursor(first["next_cursor"].as_str().unwrap().to_owned());
    assert!(page(&world, &agent, &of(Verdict::Allow), 3, cursor()).await.is_ok(), "limit may change");
    for (caller, filter) in [
        (&agent, of(Verdict::Review)),
        (&agent, Filter::default()),
        (&world.organization, of(Verdict::Allow)),
    ] {
        let refused = page(&world, caller, &filter, 2, cursor()).await.unwrap_err();
        assert_eq!(refused, "cursor expired or malformed");
    }
    world.clock.advance(86_401);
    let refused = page(&world, &agent, &of(Verdict::Allow), 2, cursor()).await.unwrap_err();
    assert_eq!(refused, "cursor expired or malformed");
}

#[tokio::test]
async fn reviews_are_found_by_the_status_that_a_reader_sees() {
    let (world, agent, made) = filled(9).await;
    let of = |status| Filter { review: Some(status), ..Filter::default() };
    let review = world.decision(&agent, &made[1].as_str().into()).await["review"]["id"].clone();
    world.deny(&review, None).await;
    assert_eq!(walk(&world, &agent, &of(ReviewStatus::Denied), 5, From::Newest).await.0, made[1..2]);
    let pending = [made[7].clone(), made[4].clone()];
    assert_eq!(
        walk(&world, &world.organization, &of(ReviewStatus::Pending), 1, From::Newest).await.0,
        pending
    );
    world.clock.advance(86_400);
    assert!(walk(&world, &agent, &of(ReviewStatus::Pending), 5, From::Newest).await.0.is_empty());
    assert_eq!(walk(&world, &agent, &of(ReviewStatus::Expired), 5, From::Newest).await.0, pending);
}

#[tokio::test]
async fn a_search_that_finds_little_gives_up_and_goes_on_from_there() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 1_000_000, "").await;
    let kept = world.ask(&agent, "1").await["decision"].as_str().unwrap().to_owned();
    world.mandate(&agent, 1_000_000, "").await;
    for _ in 0..decisions::SEARCHED_ROWS + 200 {
        world.ask(&agent, "1").await;
    }
    let filter = Filter { mandate: Some(MandateId::parse(&mandate).unwrap()), ..Filter::default() };
    let first = page(&world, &world.organization, &filter, 10, From::Newest).await.unwrap();
    assert_eq!(
        (ids(&first).len(), &first["has_more"]),
        (0, &Value::from(true)),
        "an empty page is not the end"
    );
    assert_eq!(walk(&world, &world.organization, &filter, 10, From::Newest).await, (vec![kept], 2));
}

#[tokio::test]
async fn an_agent_that_asks_for_another_finds_nothing() {
    let (world, _, _) = filled(3).await;
    let other = world.agent("b").await;
    let filter = Filter { agent: Some(AgentId::parse("agt_a").unwrap()), ..Filter::default() };
    assert_eq!(walk(&world, &other, &filter, 10, From::Newest).await, (Vec::new(), 1));
}
