//! A client in TypeScript that a stranger's generator makes of docs/openapi.yaml: it compiles, and does the main job.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{Ran, TestServer};
use crate::strangers::installed;
use crate::tidy::root;

/// Runs a program in the folder of the client.
fn run(folder: &Path, program: &Path, script: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(program);
    command.current_dir(folder).arg(script).args(args).env("NO_COLOR", "1");
    Ran::from(command.output().unwrap()).code(0)
}

#[test]
fn a_generated_client_does_the_main_job() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, node) = (folder.path(), PathBuf::from("node"));
    std::fs::copy(root().join("tests/generated/job.ts"), folder.join("job.ts")).unwrap();

    // The generator wants a newer Node than Debian has.
    let contract = root().join("docs/openapi.yaml");
    let generator = installed("node_modules/@hey-api/openapi-ts/bin/run.js");
    let newer = installed("node_modules/node-linux/bin/node");
    run(folder, &newer, &generator, &["-i", contract.to_str().unwrap(), "-o", "client"]);

    let types =
        ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2023,dom,dom.iterable", "--module"];
    let types = [&types[..], &["esnext", "--moduleResolution", "bundler", "job.ts"]].concat();
    run(folder, &node, &installed("node_modules/typescript/bin/tsc"), &types);
    let bundle = ["job.ts", "--bundle", "--platform=node", "--format=esm", "--outfile=job.mjs"];
    let esbuild = installed("node_modules/esbuild/bin/esbuild");
    Ran::from(Command::new(esbuild).current_dir(folder).args(bundle).output().unwrap()).code(0);

    let server = TestServer::start();
    let organization = server.demo();
    let api = server.ready("base_url").trim_end_matches("/v1");
    let found = run(folder, &node, Path::new("job.mjs"), &[api, organization.client.key()]).json();
    assert_eq!(
        found,
        json!({
            "mandate": "active",
            "verdicts": ["allow", "review", "allow"],
            "token": 3,
            "request": {
                "agent": "agt_generated", "amount": 300, "currency": "USD", "recipient": "vendor:acme", "category": "software",
            },
            "supersedes": true,
            "listed": 2,
            "more": "string",
            "refused": "invalid_request",
            "export": ["ready", 3],
            "lines": [
                "export", "mandate", "governing", "governing", "governing", "decision", "decision", "decision", "trailer",
            ],
        })
    );
}
