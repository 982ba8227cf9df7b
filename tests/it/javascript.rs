//! The npm package, as `tests/run` has built it: all vectors in Node and in a browser, its key sets and nonces, and its types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::Ran;
use crate::strangers::{built, installed};
use crate::tidy::root;

const MAX_GZIPPED_BYTES: usize = 250_000;

/// The package.
fn package() -> PathBuf {
    built("js/mandate-core", "tests/run builds it with mandate-core/js/build")
}

/// Runs a script of `tests/javascript`.
fn node(script: &str, args: &[&Path]) -> Ran {
    let mut command = Command::new("node");
    command.arg(root().join("tests/javascript").join(script)).args(args);
    Ran::from(command.output().expect("node is there: tests/run installs it")).code(0)
}

fn vectors() -> PathBuf {
    root().join("mandate-core/vectors")
}

/// What each vector's file says of it: the check that fails, by the name of the vector.
fn wanted() -> BTreeMap<&'static str, BTreeMap<String, Value>> {
    let of = |file: &'static str, list: &str| {
        let text = std::fs::read_to_string(vectors().join(file).with_extension("json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let checks = document[list].as_array().unwrap().iter().map(|vector| {
            let check = match (&vector["check"], file) {
                // These tokens are well-formed and signed, and no verdicts.
                (Value::Null, "tokens") => Value::from("kind"),
                (check, _) => check.clone(),
            };
            (vector["name"].as_str().unwrap().to_owned(), check)
        });
        (file, checks.collect())
    };
    [of("verdicts", "vectors"), of("events", "vectors"), of("tokens", "vectors"), of("log", "proofs")].into()
}

fn check(found: &Value) {
    for (file, checks) in wanted() {
        let found: BTreeMap<String, Value> = serde_json::from_value(found[file].clone()).unwrap();
        assert_eq!(found, checks, "{file}");
    }
}

#[test]
fn each_vector_has_its_result_in_node() {
    let found = node("node.mjs", &[&package(), &vectors()]).json();
    check(&found["platform"]);
    check(&found["alone"]);
}

#[test]
fn each_vector_has_its_result_in_a_browser() {
    let playwright = installed("node_modules/playwright-core/index.mjs");
    let found = node("chromium.mjs", &[&playwright, &package(), &vectors()]).json();
    for mode in ["platform", "alone", "worker"] {
        check(&found[mode]);
    }
    assert_eq!(found["messages"], Value::Array(vec![]));
}

#[test]
fn the_package_for_node_reads_key_sets_claims_nonces_and_names_errors() {
    node("key_sets.mjs", &[&package(), &vectors()]);
}

/// A caller in TypeScript: what is right compiles, and each line that is marked as wrong does not.
#[test]
fn the_package_has_types() {
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("node_modules");
    std::fs::create_dir(&modules).unwrap();
    std::os::unix::fs::symlink(package(), modules.join("mandate-core")).unwrap();
    std::fs::copy(root().join("tests/javascript/types.ts"), folder.path().join("types.ts")).unwrap();
    let mut tsc = Command::new("node");
    tsc.arg(installed("node_modules/typescript/bin/tsc")).current_dir(folder.path());
    tsc.args(["--noEmit", "--strict", "--skipLibCheck", "false", "--target", "es2022"]);
    tsc.args(["--module", "nodenext", "--lib", "es2023,dom", "types.ts"]);
    Ran::from(tsc.output().unwrap()).code(0);
}

#[test]
fn the_package_is_small() {
    let lib = package().join("lib");
    let names = std::fs::read_dir(&lib).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = names.filter(|path| path.extension().is_some_and(|e| e != "ts")).collect();
    files.sort();
    let mut gzip = Command::new("sh");
    gzip.args(["-c", "cat \"$@\" | gzip -9 | wc -c", "sh"]).args(&files);
    let bytes: usize = Ran::from(gzip.output().unwrap()).code(0).out.trim().parse().unwrap();
    assert!(bytes <= MAX_GZIPPED_BYTES, "the package has {bytes} bytes gzipped");
}

/// The errors' names and numbers are those of the command's exit codes.
#[test]
fn errors_are_named_as_exit_codes() {
    let errors = std::fs::read_to_string(root().join("mandate-core/js/lib/errors.js")).unwrap();
    let exits = std::fs::read_to_string(root().join("mandate-cli/src/exit.rs")).unwrap();
    let types = std::fs::read_to_string(root().join("mandate-core/js/lib/index.d.ts")).unwrap();
    let mut count = 0;
    for line in errors.lines().filter(|line| line.contains(" extends MandateError")) {
        let (name, rest) = line.strip_prefix("export class ").unwrap().split_once(" extends").unwrap();
        let number = rest.split("exitCode = ").nth(1).unwrap().split(';').next().unwrap();
        let exit = name.strip_suffix("Error").unwrap();
        assert!(exits.contains(&format!("    {exit} = {number},")), "{exit} = {number} is no exit code");
        assert!(
            types.contains(&format!("export class {name} extends MandateError {{}}")),
            "{name} has no type"
        );
        assert!(errors.contains(&format!("  {exit}: {name},")), "{name} is never thrown by name");
        count += 1;
    }
    assert_eq!(count, 16);
}
