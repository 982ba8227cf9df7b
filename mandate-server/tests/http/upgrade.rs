//! A server that starts on a database of an earlier version.

use std::sync::Arc;

use mandate_core::Timestamp;
use mandate_server::app::App;
use mandate_server::clock::SystemEntropy;
use mandate_server::config::{Config, Settings};
use mandate_server::model::database::SQLITE;
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit;
use mandate_server::store::{self, upkeep};
use refinery::{Migration, Runner};
use serde_json::{Value, json};

use crate::world::noon;

const MIGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/migrations/sqlite");

/// Makes a database whose schema has this version, as a program of that time did.
fn make(path: &std::path::Path, version: i32) {
    let files = std::fs::read_dir(MIGRATIONS).unwrap().map(|entry| entry.unwrap().path());
    let mut migrations: Vec<_> = files
        .map(|file| {
            let name = file.file_stem().unwrap().to_str().unwrap();
            Migration::unapplied(name, &std::fs::read_to_string(&file).unwrap()).unwrap()
        })
        .filter(|migration| migration.version() <= version)
        .collect();
    migrations.sort();
    let mut database = rusqlite::Connection::open(path).unwrap();
    Runner::new(&migrations).run(&mut database).unwrap();
}

#[tokio::test]
async fn a_migration_at_the_start_leaves_a_record_and_the_making_of_a_database_none() {
    let folder = tempfile::tempdir().unwrap();
    let newest = upkeep::newest();
    let (old, new) = (folder.path().join("old.db"), folder.path().join("new.db"));
    make(&old, i32::try_from(newest - 1).unwrap());
    for (file, records) in [(&old, 1), (&new, 0)] {
        let any = "127.0.0.1:0".parse().unwrap();
        let settings = Settings {
            database: format!("{SQLITE}{}", file.display()),
            api_address: any,
            public_address: any,
            ops_address: any,
            ..Settings::default()
        };
        // The second start finds the newest schema.
        for _ in 0..2 {
            let config = Config { settings: settings.clone(), master_key: MasterKey::from_bytes([7; 32]) };
            App::start(config, noon(), Arc::new(SystemEntropy)).await.unwrap().stop().await;
            let all = store::run_once(&settings.database, |tx| {
                Ok(audit::newest(tx, None, Timestamp::from_millis(0), 9)?)
            });
            let all = all.unwrap().unwrap().into_iter();
            let told: Vec<_> = all.filter(|record| record.action == "migrate").collect();
            assert_eq!(told.len(), records, "{}", file.display());
            for record in told {
                let details: Value = serde_json::from_str(record.details.get()).unwrap();
                assert_eq!(details, json!({ "from": newest - 1, "to": newest }));
                assert_eq!(record.operator, "server, at its start");
                assert_eq!(record.subject, file.canonicalize().unwrap().to_str().unwrap());
            }
        }
    }
}
