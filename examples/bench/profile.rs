//! Where the instructions of one authorization go, as callgrind counts them.
//!
//! Instructions are the same on a busy machine and on an idle one. What the kernel does is not among them: sockets and disks
//! cost processor time that only `perf` shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::contender::{Load, Running};
use crate::template::Template;

/// How many agents ask, once before the counting begins.
const AGENTS: usize = 400;
/// How many requests are counted.
const REQUESTS: u32 = 2_000;

/// What a function belongs to, by what its name contains: the first that fits.
const LAYERS: [(&str, &[&str]); 7] = [
    (
        "signature and hashes",
        &[
            "aws_lc",
            "p256",
            "ecp_nistz",
            "ecdsa",
            "sha256",
            "sha2",
            "SHA256",
            "EVP_",
            "BN_",
            "bn_",
            "EC_",
            "ec_",
            "ECDSA",
            "RAND_",
            "CTR_DRBG",
            "aes_",
            "bcm_",
            "hmac",
        ],
    ),
    (
        "SQLite",
        &[
            "sqlite3",
            "rusqlite",
            "btree",
            "Btree",
            "pager",
            "pcache",
            "vdbe",
            "Vdbe",
            "wal",
            "mandate_server::store",
        ],
    ),
    (
        "policy",
        &["mandate_core::policy", "mandate_core::usage", "mandate_core::amount", "mandate_core::mandate"],
    ),
    ("JSON, names and tokens", &["serde", "mandate_core", "itoa", "ryu", "base64"]),
    (
        "HTTP and tasks",
        &[
            "hyper",
            "httparse",
            "tokio",
            "mio",
            "http::",
            "bytes::",
            "matchit",
            "futures",
            "mandate_server::http",
            "std::sys::net",
            "lru",
        ],
    ),
    (
        "memory",
        &["malloc", "free", "calloc", "realloc", "memcpy", "memmove", "memset", "memcmp", "bcmp", "alloc::"],
    ),
    ("the service", &["mandate_server"]),
];

/// Runs the server under callgrind, and gives the table.
pub(crate) fn measure(template: &Template, directory: &Path) -> Result<String, Failure> {
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
    let annotated = Command::new("callgrind_annotate")
        .args(["--threshold=100", "--auto=no"])
        .arg(out.with_extension("out.1"))
        .output()?;
    render(&split(&String::from_utf8_lossy(&annotated.stdout)))
}

fn control(args: &[&str]) -> Result<(), Failure> {
    let done = Command::new("callgrind_control").args(args).output()?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into()) }
}

/// Instructions by layer: of each function its own, without those that it calls.
fn split(annotated: &str) -> BTreeMap<&'static str, u64> {
    let mut layers = BTreeMap::new();
    for line in annotated.lines() {
        let Some((count, function)) = line.trim_start().split_once(' ') else { continue };
        let Ok(count) = count.replace(',', "").parse::<u64>() else { continue };
        let Some((_, function)) = function.split_once(':') else { continue };
        let layer = LAYERS.iter().find(|(_, names)| names.iter().any(|name| function.contains(name)));
        *layers.entry(layer.map_or("the rest", |(layer, _)| *layer)).or_default() += count;
    }
    layers
}

fn render(layers: &BTreeMap<&'static str, u64>) -> Result<String, Failure> {
    let total: u64 = layers.values().sum();
    let mut sorted: Vec<_> = layers.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut text = String::new();
    writeln!(text, "| Layer | Instructions an authorization | Share |\n|---|---|---|")?;
    for (layer, count) in sorted {
        let share = count * 100 / total.max(1);
        writeln!(text, "| {layer} | {} | {share} % |", count / u64::from(REQUESTS))?;
    }
    writeln!(text, "| all | {} | |", total / u64::from(REQUESTS))?;
    Ok(text)
}
