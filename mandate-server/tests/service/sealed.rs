//! What is sealed under the master key is whole: the logs' secret, their keys, the keys that sign, and the URLs of notices.

use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::model::master_key::MasterKey;
use mandate_server::model::records::NoticeFormat;
use mandate_server::service::check::quick;
use mandate_server::service::public_log::keys;
use mandate_server::service::signing::rotation::Maker;
use mandate_server::service::signing::{self, Keyring};
use mandate_server::store::tx::Tx;

use crate::apart;
use crate::check::{Found, findings, looked_at};
use crate::notices;
use crate::oracle::MASTER_KEY;
use crate::world::{ISSUER, World};

/// A table with what is sealed, how it is read and written, and whether a server starts without it.
const SEALED: [(&str, &str, &str, bool); 4] = [
    ("log_secret", "SELECT sealed FROM log_secret", "UPDATE log_secret SET sealed = $1", false),
    (
        "signing_keys",
        "SELECT sealed FROM signing_keys WHERE kind = 'sandbox'",
        "UPDATE signing_keys SET sealed = $1 WHERE kind = 'sandbox'",
        false,
    ),
    (
        "logs",
        "SELECT sealed FROM logs WHERE kind = 'sandbox'",
        "UPDATE logs SET sealed = $1 WHERE kind = 'sandbox'",
        true,
    ),
    ("notices", "SELECT sealed FROM notices", "UPDATE notices SET sealed = $1", true),
];

#[tokio::test]
async fn what_does_not_open_under_a_master_key_that_opens_the_rest_is_found() {
    let (world, master) = (World::new().await, MasterKey::from_bytes(MASTER_KEY));
    world.ask(&world.agent("buyer").await, "1").await;
    notices::set(&world, "http://localhost:1/in", NoticeFormat::Slack, false);
    assert_eq!(findings(&world.database), []);
    for (table, read, write, starts) in SEALED {
        let get = |tx: &mut Tx<'_>| tx.one_row(read, &[])?.blob();
        let put = |sealed: Vec<u8>| {
            apart::run_once(&world.database, |tx| Ok(tx.execute(write, &[sealed.into()])?)).unwrap().unwrap()
        };
        let whole = apart::snapshot(&world.database, get).unwrap();
        let mut flipped = whole.clone();
        flipped[20] ^= 1;
        assert_eq!(put(flipped), 1);
        let Found(found, notes) = looked_at(&world.database, Some(&master));
        assert_eq!(found.iter().map(|found| found.table.as_str()).collect::<Vec<_>>(), [table], "{found:?}");
        assert!(found[0].found.ends_with("that does not open under the master key"), "{found:?}");
        let is_said = notes.iter().any(|note| {
            note.starts_with("the secret of the public logs does not open, though other keys do: ")
        });
        assert_eq!(is_said, table == "log_secret", "{notes:?}");
        assert!(!notes.iter().any(|note| note.starts_with("no master key")), "{notes:?}");
        let loaded = apart::run_once(&world.database, |tx| Ok(Keyring::load(tx, &master, ISSUER).map(drop)));
        assert_eq!(loaded.unwrap().unwrap().is_ok(), starts, "{table}");
        let opens = apart::snapshot(&world.database, |tx| Ok(keys::must_open(tx, &master).is_ok()));
        assert_eq!(opens.unwrap(), table != "log_secret");
        put(whole);
        assert_eq!(findings(&world.database), [], "{table}");
    }
}

#[tokio::test]
async fn another_master_key_says_nothing_about_the_database() {
    let world = World::new().await;
    let other = MasterKey::from_bytes([8; 32]);
    for (master, begins) in [
        (Some(&other), "the master key that is set opens none of the keys: "),
        (None, "no master key is set: "),
    ] {
        let Found(found, notes) = looked_at(&world.database, master);
        assert_eq!(found, []);
        let is_of_the_log = |note: &&String| note.contains("not compared with the public log");
        let said: Vec<_> = notes.iter().filter(is_of_the_log).collect();
        assert!(said.len() == 1 && said[0].starts_with(begins), "{notes:?}");
    }
}

/// Another secret would make other entries of the same rows.
#[tokio::test]
async fn a_lost_secret_is_found_and_no_other_is_drawn() {
    let (world, master) = (World::new().await, MasterKey::from_bytes(MASTER_KEY));
    assert_eq!(world.change("DELETE FROM log_secret"), 1);
    for key in [Some(&master), None] {
        let Found(found, _) = looked_at(&world.database, key);
        let found: Vec<_> = found.iter().map(|found| (found.table.as_str(), found.found.as_str())).collect();
        assert_eq!(found, [("log_secret", "no row")]);
    }
    let mut found = Found::default();
    apart::snapshot(&world.database, |tx| quick(tx, &mut found)).unwrap();
    assert_eq!(found.0.len(), 1, "{:?}", found.0);
    let maker = Maker { master: &master, entropy: &SystemEntropy };
    let now = world.clock.now();
    let started = apart::run_once(&world.database, |tx| Ok(signing::ensure(tx, maker, ISSUER, now)?));
    let fault = started.unwrap_err();
    assert_eq!(fault.kind(), "corrupt");
    assert!(fault.to_string().contains("log_secret has no row"), "{fault}");
    assert_eq!(world.number("SELECT COUNT(*) FROM log_secret"), 0);
}
