//! A log that lacks what was committed is told from one whose last transaction was cut short.

use std::path::Path;

use rusqlite::Connection;

use super::*;

const FRAME: usize = FRAME_HEADER + 4096;

/// A database with a log that is not checkpointed by itself.
fn database(folder: &Path) -> Connection {
    let connection = Connection::open(folder.join("test.db")).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)")
        .unwrap();
    connection
}

/// Transactions of so many pages each, and a bit.
fn write(connection: &Connection, pages: &[u32]) {
    for pages in pages {
        connection.execute("INSERT INTO t VALUES (randomblob(4000 * $1))", [pages]).unwrap();
    }
}

fn log(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("test.db-wal")).unwrap()
}

/// The frames that end a transaction, numbered from 0.
fn ends(log: &[u8]) -> Vec<usize> {
    let pages = |frame: &[u8]| u32::from_be_bytes(frame[4..8].try_into().unwrap());
    let frames = log[HEADER..].chunks_exact(FRAME).enumerate();
    frames.filter(|(_, frame)| pages(frame) != 0).map(|(number, _)| number).collect()
}

/// The frame that is found, or 0 for the header.
fn found(log: &[u8]) -> Option<u64> {
    damage(log).unwrap().map(|damage| damage.frame.unwrap_or_default())
}

#[test]
fn each_bit_before_the_last_transaction_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database(folder.path());
    write(&connection, &[1, 3, 1, 2]);
    let mut log = log(folder.path());
    let ends = ends(&log);
    let pages: Vec<_> = ends.iter().map(|end| log[HEADER + end * FRAME + 7]).collect();
    assert!(pages.iter().any(|pages| pages.is_power_of_two()), "one bit makes no end of it: {pages:?}");
    assert_eq!(found(&log), None);
    let last = ends[ends.len() - 2] + 1;
    let heads = (0..last).flat_map(|frame| (0..FRAME_HEADER).map(move |byte| HEADER + frame * FRAME + byte));
    let pages = (HEADER..HEADER + last * FRAME).step_by(509);
    for place in (0..HEADER).chain(heads).chain(pages) {
        for bit in 0..8 {
            log[place] ^= 1 << bit;
            let frame =
                place.checked_sub(HEADER).map_or(0, |place| u64::try_from(place / FRAME + 1).unwrap());
            assert_eq!(found(&log), Some(frame), "byte {place}, bit {bit}");
            log[place] ^= 1 << bit;
        }
    }
}

#[test]
fn a_last_transaction_that_was_cut_short_is_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database(folder.path());
    write(&connection, &[2, 1, 4]);
    let log = log(folder.path());
    let ends = ends(&log);
    let (first, last) = (ends[ends.len() - 2] + 1, ends[ends.len() - 1]);
    assert!(first + 2 < last);
    for length in 0..=log.len() {
        if length < HEADER + FRAME || length % 97 == 0 {
            assert_eq!(found(&log[..length]), None, "{length} bytes");
        }
    }
    // Any of its blocks may have reached the disk without the others.
    for place in (HEADER + first * FRAME..log.len()).step_by(512) {
        let mut torn = log.clone();
        let end = torn.len().min(place + 512);
        torn[place..end].fill(0);
        assert_eq!(found(&torn), None, "byte {place}");
    }
}

/// Frames with the salts of the log may follow its end, and a log that begins anew is followed by older ones.
#[test]
fn what_is_left_over_behind_the_log_is_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let connection = database(folder.path());
    connection.execute_batch("PRAGMA cache_size = 10; BEGIN").unwrap();
    write(&connection, &[20, 20, 20]);
    connection.execute_batch("ROLLBACK").unwrap();
    let spilled = log(folder.path());
    assert!(spilled.len() > HEADER + 30 * FRAME, "{} bytes", spilled.len());
    assert_eq!(found(&spilled), None);
    write(&connection, &[1, 4]);
    let mut torn = log(folder.path());
    let last = ends(&torn)[2];
    assert!(torn.len() == spilled.len() && HEADER + (last + 2) * FRAME < torn.len());
    torn[HEADER + (last - 1) * FRAME + 512..][..512].fill(0);
    assert_eq!(found(&torn), None, "cut short before what is left over");
    assert_eq!(connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)), Ok(0));
    write(&connection, &[1]);
    let anew = log(folder.path());
    assert!(anew.len() == spilled.len() && ends(&anew).len() > 1);
    assert_eq!(found(&anew), None);
}

#[test]
fn a_log_that_is_not_there_or_empty_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db").to_str().unwrap().to_owned();
    must_be_whole(&path).unwrap();
    std::fs::write(format!("{path}-wal"), "").unwrap();
    must_be_whole(&path).unwrap();
    std::fs::write(format!("{path}-wal"), [7; 100]).unwrap();
    let fault = must_be_whole(&path).unwrap_err();
    assert_eq!(fault.kind(), "corrupt");
    assert!(fault.to_string().contains("test.db-wal is damaged: its header does not"), "{fault}");
}
