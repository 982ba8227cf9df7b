//! Mandates, modes and answered reviews are what the public log has of them.

use mandate_core::EnvironmentKind::Sandbox;
use mandate_server::clock::Clock as _;
use mandate_server::model::records::Mode;
use mandate_server::service::enforcement;
use mandate_server::store::sql::public_log as rows;
use mandate_server::store::tx::Tx;
use mandate_tests::Kind;

use crate::apart;
use crate::check;
use crate::public_log::keeper;
use crate::world::World;

/// On SQLite these rows have checksums, which SQL does not write.
#[tokio::test]
async fn a_mandate_or_a_mode_that_is_not_what_was_recorded_is_found() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    world.ask(&agent, "1").await;
    world.mandate(&agent, 2_000, "").await;
    let id = world.mandate(&agent, 3_000, "").await;
    world.revoke(&id).await;
    world.mandate(&agent, 4_000, "").await;
    for mode in [Mode::Observe, Mode::Enforce] {
        world.clock.advance(1);
        let (call, at) = (world.call(&world.organization), world.clock.now());
        world.write(call, move |tx, call| enforcement::set(tx, call, mode, at)).await;
    }
    assert_eq!(check::findings(&world.database), []);
    keeper(&world, None).keep(Sandbox).await.unwrap();
    assert_eq!(check::findings(&world.database), []);
    for (change, back, wanted) in [
        (
            "UPDATE mandates SET terms = replace(terms, '4000', '9000')",
            "UPDATE mandates SET terms = replace(terms, '9000', '4000')",
            "mandates: terms {",
        ),
        (
            "UPDATE mandates SET terms = replace(terms, '2026-12-31', '2027-12-31')",
            "UPDATE mandates SET terms = replace(terms, '2027-12-31', '2026-12-31')",
            "mandates: terms {",
        ),
        (
            "UPDATE mandates SET terms = replace(terms, 'role:cfo', 'role:ceo')",
            "UPDATE mandates SET terms = replace(terms, 'role:ceo', 'role:cfo')",
            "mandates: terms {",
        ),
        (
            "UPDATE mandates SET revoked_at = revoked_at + 1",
            "UPDATE mandates SET revoked_at = revoked_at - 1",
            "mandates: revoked_at 2",
        ),
        (
            "UPDATE mandates SET created_at = created_at - 1",
            "UPDATE mandates SET created_at = created_at + 1",
            "mandates: created_at 2",
        ),
        (
            "UPDATE environments SET mode = 'observe' WHERE kind = 'sandbox'",
            "UPDATE environments SET mode = 'enforce' WHERE kind = 'sandbox'",
            "environments: observe since 2",
        ),
        (
            "UPDATE environments SET mode = 'enforce' WHERE kind = 'production'",
            "UPDATE environments SET mode = 'observe' WHERE kind = 'production'",
            "environments: enforce since 2",
        ),
    ] {
        assert!(world.change(change) > 0, "{change}");
        let found = check::found(&world.database);
        let wanted = match crate::KIND {
            Kind::Postgres => wanted,
            Kind::Sqlite => "a checksum of other values",
        };
        assert!(found.iter().any(|found| found.contains(wanted)), "{change}: {found:?}");
        world.change(back);
        assert_eq!(check::findings(&world.database), [], "{back}");
    }
}

/// On SQLite the checksums of both rows are findings.
#[tokio::test]
async fn a_mandate_that_cannot_be_read_is_found_and_hides_none_behind_it() {
    let world = World::new().await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    let unreadable = world.mandate(&first, 1_000, "").await;
    let raised = world.mandate(&second, 2_000, "").await;
    assert_eq!(check::findings(&world.database), []);
    assert_eq!(world.change("UPDATE mandates SET terms = 'x' WHERE agent = 'agt_first'"), 1);
    world.change("UPDATE mandates SET terms = replace(terms, '2000', '9000') WHERE agent = 'agt_second'");
    let found = |with_records| {
        let found = check::findings_with(&world.database, with_records).into_iter();
        found.map(|finding| (finding.id.unwrap_or_default(), finding.found)).collect::<Vec<_>>()
    };
    let (all, readable) = (found(true), found(false));
    match crate::KIND {
        Kind::Postgres => {
            let ids: Vec<_> = all.iter().map(|(id, _)| id).collect();
            assert_eq!(ids, [&unreadable, &raised], "{all:?}");
            assert!(all[1].1.starts_with("terms {"), "{all:?}");
            assert_eq!(readable, all[..1]);
        }
        Kind::Sqlite => {
            let checksum = "a checksum of other values".to_owned();
            assert_eq!(all, [(unreadable, checksum.clone()), (raised, checksum)]);
            assert_eq!(readable, all);
        }
    }
}

/// Both rows have the checksums of what they are then.
#[tokio::test]
async fn a_decision_that_cannot_be_read_hides_none_behind_it() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    let unreadable = world.ask(&agent, "1").await["decision"].clone();
    world.clock.advance(1);
    let changed = world.ask(&agent, "2").await["decision"].clone();
    keeper(&world, None).keep(Sandbox).await.unwrap();
    assert_eq!(check::findings(&world.database), []);
    world.give_reason(&changed, "another");
    assert_eq!(world.change("UPDATE decisions SET category = '' WHERE amount = '1'"), 1);
    world.reseal(&unreadable);
    let found = check::findings(&world.database).into_iter();
    let found = found.filter(|finding| finding.found.contains("public log") || finding.table == "logs");
    let found: Vec<_> = found.map(|finding| (finding.id.unwrap_or_default(), finding.found)).collect();
    let [(first, why), (second, other)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((first.as_str(), second.as_str()), (unreadable.as_str().unwrap(), changed.as_str().unwrap()));
    assert!(why.starts_with("a row that cannot be compared with the public log: "), "{why}");
    assert_eq!(other, "a row that is not that of its entry in the public log");
}

/// Each change is one of a row, so that its checksum does not hold either.
#[tokio::test]
async fn a_review_that_is_not_what_was_recorded_is_found() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    let mut reviews = Vec::new();
    for amount in ["201", "202", "203"] {
        reviews.push(world.ask(&agent, amount).await["review"]["id"].clone());
    }
    world.deny(&reviews[0], Some("not this vendor")).await;
    world.clock.advance(1);
    world.approve(&reviews[1]).await;
    assert_eq!(check::findings(&world.database), []);
    for (change, back, wanted) in [
        (
            "UPDATE reviews SET reason = 'this vendor' WHERE status = 'denied'",
            "UPDATE reviews SET reason = 'not this vendor' WHERE status = 'denied'",
            "denied at",
        ),
        (
            "UPDATE reviews SET resolved_at = resolved_at + 1 WHERE status = 'approved'",
            "UPDATE reviews SET resolved_at = resolved_at - 1 WHERE status = 'approved'",
            "approved at",
        ),
        (
            "UPDATE reviews SET resolved_by = replace(resolved_by, 'key', 'person') WHERE status = 'approved'",
            "UPDATE reviews SET resolved_by = replace(resolved_by, 'person', 'key') WHERE status = 'approved'",
            r#"by {"kind":"person","#,
        ),
        (
            "UPDATE reviews SET status = 'pending' WHERE status = 'denied'",
            "UPDATE reviews SET status = 'denied' WHERE status = 'pending' AND reason IS NOT NULL",
            "pending",
        ),
        (
            r#"UPDATE reviews SET status = 'denied', resolved_at = 1, resolved_after = 3, resolved_by = '{"kind":"key","id":"1"}'
                WHERE status = 'pending'"#,
            "UPDATE reviews SET status = 'pending', resolved_at = NULL, resolved_after = NULL, resolved_by = NULL WHERE resolved_at = 1",
            "denied at",
        ),
    ] {
        assert_eq!(world.change(change), 1, "{change}");
        let found = check::findings(&world.database);
        let found: Vec<_> = found
            .iter()
            .filter(|found| found.found.ends_with("unlike its record in the public log"))
            .collect();
        assert!(found.len() == 1 && found[0].found.contains(wanted), "{change}: {found:?}");
        world.change(back);
        assert_eq!(check::findings(&world.database), [], "{back}");
    }
}

/// What waits has no tree yet that would show it.
#[tokio::test]
async fn each_byte_of_an_entry_that_waits_is_compared_with_its_row() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    keeper(&world, None).look().await;
    world.ask(&agent, "1").await;
    let read = |tx: &mut Tx<'_>| Ok(rows::pending(tx, Sandbox, 2)?);
    let put = |entries: Vec<u8>| {
        let replace = |tx: &mut Tx<'_>| {
            for old in rows::pending(tx, Sandbox, 2)? {
                rows::take(tx, &old)?;
            }
            Ok(rows::add(tx, Sandbox, world.clock.now(), entries)?)
        };
        apart::run_once(&world.database, replace).unwrap().unwrap();
    };
    let waiting = apart::run_once(&world.database, read).unwrap().unwrap();
    assert_eq!(waiting.len(), 1);
    let whole = waiting[0].entries.clone();
    assert_eq!(check::findings(&world.database), []);
    for place in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << (place % 8);
        put(flipped);
        assert_ne!(check::findings(&world.database), [], "byte {place}");
    }
    put(whole);
    assert_eq!(check::findings(&world.database), []);
}
