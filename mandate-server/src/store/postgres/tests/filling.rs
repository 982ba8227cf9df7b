//! A database to be filled: the connection is lost at every step until it is marked and has its tables.

use mandate_core::Timestamp;
use mandate_tests::campaign::{Numbers, scale, seed};
use mandate_tests::cluster::query;
use mandate_tests::proxy::Lost;
use mandate_tests::{Kind, Proxy};

use crate::store::postgres::transfer::Filling;
use crate::store::transfer::TargetState;

/// More round trips than a beginning takes. The connection is lost at each of them up to the first after the
/// mark, and then at every tenth; below scale 10 at a third of these.
const MOST_STEPS: usize = 160;
const MARKING_STEPS: usize = 10;
const SOURCE: [&str; 2] = ["sqlite:///a", "a stamp"];
const TABLES: &str = "SELECT to_regclass('organizations') IS NOT NULL";
const MARKED: &str = "SELECT to_regclass('transfer') IS NOT NULL";

fn begin(url: &str) -> Result<TargetState, crate::error::Fault> {
    let [source, stamp] = SOURCE;
    Filling::begin(url, source, stamp, Timestamp::from_seconds(1_800_000_000)).map(|(_, begun)| begun)
}

#[test]
fn wherever_the_connection_is_lost_there_are_no_tables_without_the_mark() {
    let (mut failed, mut went_well) = (0, 0);
    let mut random = Numbers::from_seed(seed("filling"));
    for lost in [Lost::Request, Lost::Answer] {
        for after in (0..MARKING_STEPS).chain((MARKING_STEPS..MOST_STEPS).step_by(10)) {
            if scale() < 10 && random.below(3) > 0 {
                continue;
            }
            let database = Kind::Postgres.fresh();
            let (proxy, through) = Proxy::before_database(database.url());
            proxy.lose(after, lost);
            let first = begin(&format!("{through}?statement_cache=off"));
            if proxy.lose_nothing() {
                assert_eq!(
                    (first.unwrap(), after > MARKING_STEPS),
                    (TargetState::Fresh, true),
                    "{after} round trips"
                );
                println!("{after} round trips");
                break;
            }
            assert!(after + 10 < MOST_STEPS, "it takes more round trips");
            let case = || format!("{lost:?} of round trip {after}: {first:?}");
            if query(database.url(), TABLES) == "t" || first.is_ok() {
                assert_eq!(query(database.url(), MARKED), "t", "{}", case());
            }
            if first.is_ok() {
                went_well += 1;
            } else {
                failed += 1;
            }
            begin(database.url()).unwrap_or_else(|again| panic!("{}, and then {again}", case()));
            assert_eq!(begin(database.url()).unwrap(), TargetState::GoesOn);
            assert_eq!(query(database.url(), "SELECT count(*) FROM transfer WHERE stamp = 'a stamp'"), "1");
        }
    }
    assert!(scale() < 10 || failed > 0 && went_well > 0, "{failed} failed, {went_well} went well");
}
