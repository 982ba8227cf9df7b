//! `mandate-core` as an embedder gets it: its package builds outside this workspace, and its public interface changes only
//! on purpose.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::Ran;

/// Where the public interface is recorded, one item a line.
const RECORD: &str = "mandate-core/public-api.txt";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The target directory that this test was built in.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Cargo in a folder, without network.
fn cargo(folder: &Path, output: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(folder).env("CARGO_TARGET_DIR", output).env("CARGO_NET_OFFLINE", "true").args(args);
    // The lints of this workspace are not those of an embedder.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

fn run(command: &mut Command) -> Ran {
    Ran::from(command.output().unwrap()).code(0)
}

#[test]
fn the_package_builds_in_an_empty_folder() {
    // Dependencies that are built already are not built again.
    let (output, profiles) = (target(), root().join(".cargo/config.toml"));
    run(&mut cargo(
        root(),
        &output,
        &["package", "--package", "mandate-core", "--allow-dirty", "--no-verify"],
    ));
    let folder = tempfile::tempdir().unwrap();
    let name = concat!("mandate-core-", env!("CARGO_PKG_VERSION"));
    let archive = output.join("package").join(format!("{name}.crate"));
    // `m`: all files in the archive are of 2006, which cargo would take for built already.
    run(Command::new("tar").arg("xzmf").arg(&archive).arg("-C").arg(folder.path()));

    let package = folder.path().join(name);
    for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        assert!(package.join(file).is_file(), "the package has no {file}");
    }
    let profiles = format!("--config={}", profiles.display());
    run(&mut cargo(&package, &output, &["check", &profiles]));
    run(&mut cargo(&package, &output, &["test", "--no-run", &profiles]));
}

#[test]
fn the_public_interface_is_the_recorded_one() {
    let rustdoc = ["rustdoc", "--package", "mandate-core", "--lib", "--all-features", "--"];
    let json = ["-Zunstable-options", "--output-format", "json"];
    let mut rustdoc = cargo(root(), &target(), &[&rustdoc[..], &json].concat());
    run(rustdoc.env("RUSTDOC", root().join("tests/rustdoc-json")));
    let api = public_api::Builder::from_rustdoc_json(target().join("doc/mandate_core.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .expect("the JSON of this rustdoc has another format than that of Rust 1.95, which tests/run uses");
    let found: Vec<_> = api.items().map(ToString::to_string).collect();

    let record = root().join(RECORD);
    if option_env!("MANDATE_WRITE_PUBLIC_API").is_some() {
        std::fs::write(record, found.join("\n") + "\n").unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(record).unwrap();
    let recorded: BTreeSet<_> = recorded.lines().collect();
    let found: BTreeSet<_> = found.iter().map(String::as_str).collect();
    let gone = recorded.difference(&found).map(|item| format!("- {item}"));
    let new = found.difference(&recorded).map(|item| format!("+ {item}"));
    let changes: Vec<_> = gone.chain(new).collect();
    assert!(
        changes.is_empty(),
        "the public interface of mandate-core is not that of {RECORD}:\n{}\nIf that is intended, write the file anew:\n    \
         MANDATE_WRITE_PUBLIC_API=1 cargo test -p mandate-tests --test it the_public_interface",
        changes.join("\n")
    );
}

/// The crates that an embedder names with the core, by the default features.
const DIRECT: [&str; 12] = [
    "base64",
    "hmac",
    "mandate-core",
    "p256",
    "primeorder",
    "rust_decimal",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "time",
    "zeroize",
];

/// The crates that the core is built from.
fn crates(more: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--package", "mandate-core", "--edges", "normal", "--prefix", "none", "--locked"];
    let ran = run(&mut cargo(root(), &target(), &[&tree, more].concat()));
    ran.out.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_log_adds_nothing_to_an_embedder_that_does_not_ask_for_it() {
    assert_eq!(crates(&["--depth", "1"]).into_iter().collect::<Vec<_>>(), DIRECT);
    let (without, with) = (crates(&[]), crates(&["--features", "log"]));
    assert!(without.is_subset(&with));
    let added: Vec<_> = with.difference(&without).collect();
    assert_eq!(added, ["curve25519-dalek", "curve25519-dalek-derive", "ed25519", "ed25519-dalek"]);
}

/// The form in which authenticators write signatures, DER, is read by a crate that `p256` has for it.
#[test]
fn people_add_one_crate_to_an_embedder_that_asks_for_them() {
    let (without, with) = (crates(&[]), crates(&["--features", "people"]));
    assert!(without.is_subset(&with));
    let added: Vec<_> = with.difference(&without).collect();
    assert_eq!(added, ["pkcs8"]);
}

/// WebAssembly has no clock, no files and no random generator, and the log needs none.
#[test]
fn the_log_builds_for_webassembly() {
    const TARGET: &str = "wasm32-unknown-unknown";
    let mut libraries = Command::new("rustc");
    let libraries = run(libraries.args(["--print", "target-libdir", "--target", TARGET]));
    if !Path::new(libraries.out.trim()).is_dir() {
        println!(
            "the target {TARGET} is not installed, so nothing was built for it: rustup target add {TARGET}"
        );
        return;
    }
    let features = ["--no-default-features", "--features", "p256,log,people"];
    let check = ["check", "--package", "mandate-core", "--lib", "--target", TARGET];
    run(&mut cargo(root(), &target(), &[&check[..], &features].concat()));
}
