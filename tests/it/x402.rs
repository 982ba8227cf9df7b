//! The buyers and the seller of `examples/x402`, on a chain of this machine, before a real service.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Ran, TestServer};
use crate::strangers::{built, installed};
use crate::tidy::root;

/// A folder with the example, the scenes, and every package that they import.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("node_modules");
    std::fs::create_dir(&modules).unwrap();
    let link =
        |path: &Path| std::os::unix::fs::symlink(path, modules.join(path.file_name().unwrap())).unwrap();
    for entry in std::fs::read_dir(installed("node_modules")).unwrap() {
        link(&entry.unwrap().path());
    }
    link(&built("js/mandate-core", "tests/run builds it with mandate-core/js/build"));
    copy(&root().join("examples/x402"), folder.path());
    copy(&root().join("tests/x402"), folder.path());
    folder
}

/// Copies all files below a folder.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// The Node that runs TypeScript as it is.
fn node() -> PathBuf {
    installed("node_modules/node-linux/bin/node")
}

#[test]
fn what_is_signed_settled_and_spent() {
    let (folder, server) = (folder(), TestServer::start());
    let organization = server.demo();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let mut command = Command::new(node());
    command.current_dir(folder.path()).arg("scenes.mjs");
    command.args([server.ready("base_url"), server.ready("verdicts_url"), organization.client.key()]);
    command.arg(installed(&format!("node_modules/@foundry-rs/anvil-linux-{architecture}/bin/anvil")));
    command.arg(installed("venv/bin/python")).stdin(Stdio::null());
    let found = Ran::from(command.output().unwrap()).code(0).json();
    let wanted = std::fs::read_to_string(root().join("tests/x402/wanted.json")).unwrap();
    let wanted: Value = serde_json::from_str(&wanted).unwrap();
    for (scene, outcome) in wanted.as_object().unwrap() {
        assert_eq!(found[scene], *outcome, "{scene}");
    }
    assert_eq!(found.as_object().unwrap().len(), wanted.as_object().unwrap().len(), "{found}");
}

#[test]
fn the_example_has_types() {
    let folder = folder();
    let mut command = Command::new("node");
    command.current_dir(folder.path()).arg(installed("node_modules/typescript/bin/tsc"));
    command.args(["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck"]);
    command.args(["--allowImportingTsExtensions", "--erasableSyntaxOnly", "--types", "node"]);
    command.args(["buyer-typescript/index.ts", "seller-express/index.ts"]);
    Ran::from(command.output().unwrap()).code(0);
}

#[test]
fn the_glue_is_small() {
    for file in ["buyer-typescript/index.ts", "buyer-python/mandate_x402.py", "seller-express/index.ts"] {
        let text = std::fs::read_to_string(root().join("examples/x402").join(file)).unwrap();
        assert!(text.lines().count() <= 80, "{file} has {} lines", text.lines().count());
    }
}
