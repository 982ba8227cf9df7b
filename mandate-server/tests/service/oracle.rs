//! Holds a database against all that can be computed again, whatever servers have done with it.
#![allow(dead_code, reason = "each of the binaries of tests that have this file uses a part of it")]

use std::path::Path;

use mandate_core::{EnvironmentKind, ExportId, PolicyVersion, Timestamp};
use mandate_server::error::Fault;
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::check::{self, Finding};
use mandate_server::service::exports::{self, Build, Filter, Format};
use mandate_server::service::signing::{self, Keyring};
use mandate_server::store::sql;
use mandate_server::store::sql::exports::{Export, ExportStatus};
use mandate_server::store::tx::Tx;
use mandate_tests::oracle;

use crate::apart;

/// The master key of all servers in these tests.
pub(crate) const MASTER_KEY: [u8; 32] = [7; 32];
const ENVIRONMENTS: &str = "SELECT environment, kind, policy_version FROM environments ORDER BY environment";
const ISSUERS: &str = "SELECT url FROM issuers ORDER BY issuer";
const DECISIONS: &str = "SELECT count(*) FROM decisions WHERE environment = $1";

struct Found(Vec<Finding>);

impl check::Listener for Found {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    fn looked_at(&mut self, decisions: i64, of: i64) {
        assert!(decisions <= of);
    }
}

/// `check` is sound, and the log of each environment is an honest one. Gives how many decisions there are.
pub(crate) fn holds(database: &str) -> usize {
    let found = apart::snapshot(database, |tx| {
        let mut found = Found(Vec::new());
        check::full(tx, Some(&MasterKey::from_bytes(MASTER_KEY)), &mut found)?;
        Ok(found.0)
    });
    assert_eq!(found.unwrap(), []);
    let issuers = apart::snapshot(database, |tx| {
        tx.query(ISSUERS, &[])?.into_iter().map(|mut row| row.text()).collect::<Result<Vec<_>, _>>()
    });
    let issuers = issuers.unwrap();
    let Some(issuer) = issuers.first() else { return 0 };
    let keyring =
        apart::run_once(database, |tx| Ok(Keyring::load(tx, &MasterKey::from_bytes(MASTER_KEY), issuer)?));
    let keyring = keyring.unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, apart::snapshot(database, signing::archive).unwrap()).unwrap();
    let written = apart::snapshot(database, |tx| write_all(tx, &keyring, folder.path())).unwrap();
    let audited = (0..written)
        .map(|number| oracle::holds(&file(folder.path(), number), &issuers, keys.to_str().unwrap()));
    audited.sum()
}

fn file(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("{number}.ndjson"))
}

/// Writes an export of each environment that has decisions, each into a file of its own; gives how many.
fn write_all(tx: &mut Tx<'_>, keyring: &Keyring, folder: &Path) -> Result<usize, Fault> {
    let now = sql::clock::mark(tx)?;
    let mut written = 0;
    for mut row in tx.query(ENVIRONMENTS, &[])? {
        let (environment, kind) = (row.integer()?, EnvironmentKind::parse(&row.text()?).unwrap());
        let policy_version = PolicyVersion::parse(&row.text()?)?;
        if tx.row(DECISIONS, &[environment.into()])?.unwrap().integer()? == 0 {
            continue;
        }
        let export = whole(environment, kind, policy_version, now);
        let out = std::fs::File::create(file(folder, written)).unwrap();
        exports::write(tx, &Build { export: &export, keyring, now }, out, &|| true)?;
        written += 1;
    }
    Ok(written)
}

/// An export of everything.
fn whole(environment: i64, kind: EnvironmentKind, policy_version: PolicyVersion, now: Timestamp) -> Export {
    Export {
        environment,
        kind,
        policy_version,
        id: ExportId::new(now, 1),
        format: Format::Ndjson,
        filter: Filter::default(),
        status: ExportStatus::Pending,
        content: None,
        expires_at: now,
        incomplete_since: None,
    }
}
