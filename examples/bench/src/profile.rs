//! Where the instructions of one authorization go, as callgrind counts them.
//!
//! Instructions are the same on a busy machine and on an idle one. What the kernel does is not among them: sockets and disks
//! cost processor time that only `perf` shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::Failure;
use crate::contender::{Load, Running};
use crate::output::{Measured, Series};
use crate::template::Template;

/// How many agents ask, once before the counting begins.
const AGENTS: usize = 400;
/// How many requests are counted.
const REQUESTS: u32 = 2_000;

/// The layer with more instructions under valgrind than elsewhere: valgrind lacks some instructions of the processor.
const SIGNATURE: &str = "signature, hashes";
/// Parts of function names that identify a library of cryptography.
const CRYPTOGRAPHY: [&str; 9] =
    ["aws_lc", "ecp_nistz256", "ecp_nistp", "bignum", "sha2::", "sha512", "hmac::", "p256", "es256"];
/// Prefixes of its functions in C.
const CRYPTOGRAPHY_IN_C: [&str; 11] = [
    "bn_",
    "ecdsa_",
    "pkey_ec",
    "evp_",
    "cbb_",
    "rand_bytes",
    "ctr_drbg",
    "entropy_",
    "sha256_",
    "hmac_",
    "ec_",
];
/// The layer of the allocator, of the compiler's own functions, and of everything outside the program.
const MEMORY: &str = "memory, system library";
/// Parts of Rust's function names that identify their layer. The first layer that matches counts.
const LAYERS: [(&str, &[&str]); 5] = [
    ("store, rusqlite", &["rusqlite", "mandate_server::store"]),
    (
        "policy",
        &[
            "mandate_core::policy",
            "mandate_core::usage",
            "mandate_core::amount",
            "mandate_core::mandate",
            "rust_decimal",
        ],
    ),
    ("JSON, names, tokens", &["serde", "mandate_core", "itoa", "ryu", "base64", "from_utf8", "core::fmt"]),
    (
        "HTTP, tasks",
        &[
            "axum",
            "tower",
            "hyper",
            "httparse",
            "http::",
            "bytes::",
            "matchit",
            "tokio",
            "mio::",
            "futures",
            "lru",
            "parking_lot",
            "std::sys::net",
            "std::sync",
        ],
    ),
    ("service", &["mandate_server"]),
];
/// The function that compiles a statement.
const PREPARE: &str = "sqlite3LockAndPrepare";

/// The counts of callgrind.
#[derive(Debug, Default)]
struct Counted {
    /// Instructions by layer, without those of called functions.
    layers: BTreeMap<&'static str, u64>,
    /// Calls of [`PREPARE`], and the instructions below them.
    prepared: (u64, u64),
}

/// Runs the server under callgrind. Returns the table.
pub(crate) fn measure(template: &Template, directory: &Path) -> Result<Measured, Failure> {
    let own = directory.join("profile");
    template.copy_to(&own)?;
    let out = own.join("callgrind.out");
    let file = format!("--callgrind-out-file={}", out.display());
    let server = Running::mandate(&own, &["valgrind", "--tool=callgrind", "--quiet", &file])?;
    let keys = own.join("keys");
    let all = std::fs::read_to_string(template.keys(0))?;
    std::fs::write(&keys, all.lines().take(AGENTS).collect::<Vec<_>>().join("\n"))?;
    let pid = server.pid().to_string();
    let load = |requests: u32, idempotent: &str| {
        let requests = requests.to_string();
        let args = ["--connections", "64", "--requests", &requests, "--idempotent", idempotent];
        let report = server.load(&Load { keys: &keys, seconds: 120, warm_up: 0, args: &args })?;
        if report.errors > 0 { Err("some answers were wrong".into()) } else { Ok::<_, Failure>(()) }
    };
    load(u32::try_from(AGENTS)?, "0")?;
    control(&["--zero", &pid])?;
    load(REQUESTS, "0")?;
    control(&["--dump", &pid])?;
    drop(server);
    // Each dump has a file of its own, numbered from 1; the first is that of the request.
    let counted = Counted::read(&std::fs::read_to_string(out.with_extension("out.1"))?);
    Ok(Measured { text: render(&counted)?, series: counted.series()? })
}

fn control(args: &[&str]) -> Result<(), Failure> {
    let done = Command::new("callgrind_control").args(args).output()?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into()) }
}

impl Counted {
    /// Reads a file of callgrind: <https://valgrind.org/docs/manual/cl-format.html>. `callgrind_annotate` will not do: it
    /// counts functions that have not returned yet for all that they have called.
    fn read(text: &str) -> Self {
        let (mut counted, mut names) = (Self::default(), BTreeMap::new());
        let (mut object, mut layer, mut callee) = ("", "", "");
        let mut calls = None;
        for line in text.lines() {
            if let Some((kind, name)) = line.split_once('=') {
                match kind {
                    "ob" => object = named(&mut names, 'o', name),
                    "cob" => _ = named(&mut names, 'o', name),
                    "fn" => layer = layer_of(object, named(&mut names, 'f', name)),
                    "cfn" => callee = named(&mut names, 'f', name),
                    "calls" => calls = name.split(' ').next().and_then(|calls| calls.parse::<u64>().ok()),
                    _ => {}
                }
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
                // The line after `calls` has the whole cost of the call.
                match calls.take() {
                    None => *counted.layers.entry(layer).or_default() += cost,
                    Some(calls) if callee == PREPARE => {
                        counted.prepared = (counted.prepared.0 + calls, counted.prepared.1 + cost);
                    }
                    Some(_) => {}
                }
            }
        }
        counted
    }

    /// There is one round: instructions do not depend on what else goes on.
    fn series(&self) -> Result<Vec<Series>, Failure> {
        let requests = u64::from(REQUESTS);
        let layers = self.layers.iter().map(|(layer, count)| {
            Series::of(layer, "mandate", [json!({ "instructions_per_authorization": count / requests })])
        });
        let mut series = layers.collect::<Result<Vec<_>, _>>()?;
        let (calls, cost) = self.prepared;
        let prepared = json!({ "statements": calls, "instructions_per_authorization": cost / requests });
        series.push(Series::of("of these, preparing statements", "mandate", [prepared])?);
        Ok(series)
    }
}

/// A name is written once, after its number, and later referred to by the number.
fn named<'a>(names: &mut BTreeMap<(char, &'a str), &'a str>, kind: char, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((number, name)) => names.entry((kind, number)).or_insert(name),
        None => names.get(&(kind, text)).copied().unwrap_or(text),
    }
}

fn layer_of(object: &str, function: &str) -> &'static str {
    if CRYPTOGRAPHY.iter().any(|part| function.contains(part)) {
        return SIGNATURE;
    }
    if !object.ends_with("mandate-server") {
        return MEMORY;
    }
    if !function.contains("::") && !function.contains("rust") {
        return layer_in_c(function);
    }
    let layer = LAYERS.iter().find(|(_, names)| names.iter().any(|name| function.contains(name)));
    layer.map_or("rest", |(layer, _)| layer)
}

/// Of the libraries in C, SQLite names its functions in many ways, and the others do not.
fn layer_in_c(function: &str) -> &'static str {
    if function.starts_with("__") || function.trim_start_matches('_').starts_with("mi_") {
        MEMORY
    } else if CRYPTOGRAPHY_IN_C.iter().any(|beginning| function.starts_with(beginning)) {
        SIGNATURE
    } else {
        "SQLite"
    }
}

fn render(counted: &Counted) -> Result<String, Failure> {
    let requests = u64::from(REQUESTS);
    let total: u64 = counted.layers.values().sum();
    let mut sorted: Vec<_> = counted.layers.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut text = String::new();
    writeln!(text, "| Layer | Instructions an authorization | Share |\n|---|---|---|")?;
    let mut row = |layer: &str, count: u64| {
        writeln!(text, "| {layer} | {} | {} % |", count / requests, (count * 100 + total / 2) / total.max(1))
    };
    for (layer, count) in sorted {
        row(layer, *count)?;
    }
    row("all", total)?;
    let (calls, cost) = counted.prepared;
    row(&format!("of these, preparing {calls} statements"), cost)?;
    row("all but the signature", total - counted.layers.get(SIGNATURE).copied().unwrap_or_default())?;
    Ok(text)
}
