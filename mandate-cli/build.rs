//! Tells the program the commit that it is built from, and that commit's date.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = git(&["log", "-1", "--abbrev=12", "--format=%h of %cs"]).filter(|_| is_own_repository());
    println!("cargo::rustc-env=MANDATE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // Both change with each commit, whether a branch is checked out or not.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Whether git's repository is this project's, not one that holds a copy of it.
fn is_own_repository() -> bool {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(|folder| folder.canonicalize().ok());
    git(&["rev-parse", "--show-toplevel"]).is_some_and(|top| Path::new(&top).canonicalize().ok() == own)
}

/// What git says. None without git or a repository: a source archive has none.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
