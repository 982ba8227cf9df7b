//! A flipped bit in the write-ahead log of a server that was killed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mandate_server::error::Fault;
use mandate_server::store::upkeep;
use mandate_tests::campaign::{Numbers, scale, seed};

use super::questions::live;
use super::{copied_with_log, trial};
use crate::apart;
use crate::world::World;

/// Logs with a flipped bit each, in a campaign of scale 1.
const LOGS: u32 = 60;
/// Bytes of the header of the log, and of a frame.
const HEADER: usize = 32;
const FRAME: usize = 24 + 4096;

/// How many bytes the log has before its last transaction.
fn before_the_last(log: &[u8]) -> usize {
    let salts = &log[16..24];
    let frames = log[HEADER..].chunks_exact(FRAME).take_while(|frame| &frame[8..16] == salts);
    let ends: Vec<_> = frames.enumerate().filter(|(_, frame)| frame[4..8] != [0; 4]).collect();
    assert!(ends.len() > 2, "{} transactions", ends.len());
    HEADER + (ends[ends.len() - 2].0 + 1) * FRAME
}

/// What SQLite would drop without a word keeps the server from its start, and any command from the database.
#[tokio::test]
async fn a_flipped_bit_before_the_last_transaction_keeps_a_server_from_its_start() {
    let mut numbers = Numbers::from_seed(seed("flips-wal"));
    let world = World::new().await;
    let questions = live(&world).await;
    let folder = tempfile::tempdir().unwrap();
    let [sound, base] = ["sound.db", "base.db"].map(|name| folder.path().join(name));
    copied_with_log(&world.database, &sound);
    copied_with_log(&world.database, &base);
    world.store.close();
    assert_eq!(trial(&world, &sound, &questions).await, (0, Vec::new()), "an undamaged copy");
    let log = fs::read(log_of(&base)).unwrap();
    let bytes = before_the_last(&log);
    for number in 0..LOGS * scale() {
        // The first ones are flipped in the header.
        let place = numbers.below(if number < 8 { HEADER } else { bytes });
        let mut log = log.clone();
        log[place] ^= 1 << numbers.below(8);
        let own = tempfile::tempdir().unwrap();
        let damaged = own.path().join("damaged.db");
        fs::copy(&base, &damaged).unwrap();
        fs::write(log_of(&damaged), &log).unwrap();
        let database = format!("sqlite://{}", damaged.display());
        let opened = apart::open(&database, Arc::clone(&world.engine) as _).map(|store| store.close());
        let read = apart::snapshot(&database, |_| Ok(()));
        let operated = apart::run_once(&database, |_| Ok(())).map(|_| ());
        let migrated = apart::migrate(&database, "2026-06-15T12:00:00Z").map(|_| ());
        let copied = upkeep::copy(&database, &own.path().join("copy.db"), &mut |_, _| {});
        for (what, result) in
            [("open", opened), ("read", read), ("operate", operated), ("migrate", migrated), ("copy", copied)]
        {
            let kind = result.as_ref().map_err(Fault::kind);
            assert_eq!(kind, Err("corrupt"), "{what}, byte {place}");
        }
        assert!(fs::read(log_of(&damaged)).unwrap() == log, "byte {place}: the log is left as it was");
    }
}

/// The log of a database.
fn log_of(database: &Path) -> String {
    format!("{}-wal", database.display())
}
