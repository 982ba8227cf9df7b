//! Has a service export its log, and holds it against all that can be computed again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use mandate_tests::oracle;
use serde_json::json;

use super::client::{Client, admitted};
use super::command::Ran;

pub(crate) use mandate_tests::oracle::run;

/// How long an export may take to be built.
const PATIENCE_SECONDS: u64 = 60;

/// Holds a database and the log of an environment against all that can be computed again: `check` is sound, and so is the
/// export. It was signed as `issuers`, and `keys` is where their keys are. Gives how many decisions there are.
pub(crate) fn holds(
    operate: impl Fn(&[&str]) -> Ran,
    organization: &Client,
    (issuers, keys): (&[String], &str),
) -> usize {
    let checked = operate(&["check"]);
    assert_eq!(checked.code(0).out, "sound\n");
    let folder = tempfile::tempdir().unwrap();
    oracle::holds(&export(organization, folder.path()), issuers, keys)
}

/// Has all decisions exported, and downloads them.
pub(crate) fn export(organization: &Client, folder: &Path) -> PathBuf {
    let id = organization.post("/exports", &json!({"format": "ndjson"})).text("/export");
    let path = format!("/exports/{id}");
    let start = Instant::now();
    while admitted(|| organization.send("GET", &path, &[], "")).unwrap().text("/status") != "ready" {
        assert!(start.elapsed().as_secs() < PATIENCE_SECONDS);
        std::thread::yield_now();
    }
    let answer = organization.send("GET", &path, &[("accept", "application/x-ndjson")], "").unwrap();
    let file = folder.join("export.ndjson");
    std::fs::write(&file, answer.body).unwrap();
    file
}
