//! The pages of the public listener, and the one that verifies as one file too, in a real browser: what a person does, how they
//! look, and what they never do.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mandate_core::log::{KeyKind, SigningKey, token_hash};
use serde_json::json;

use crate::harness::{TestServer, mandate};
use crate::strangers::{built, installed, run_with};
use crate::tidy::root;

/// The largest picture in the documents, in bytes.
const MAX_PICTURE: u64 = 150_000;

/// Where the pictures of the pages are kept: below the target directory.
pub(crate) fn screenshots(name: &str) -> PathBuf {
    let folder = built("js/verify.html", "tests/run builds it").with_file_name("screenshots").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A picture of the documents is small. With `MANDATE_WRITE_DOCS=1` this one becomes it.
#[expect(clippy::disallowed_methods, reason = "the caller of the tests decides whether to write")]
pub(crate) fn documented(picture: &Path, document: &str) {
    let document = root().join(document);
    if std::env::var("MANDATE_WRITE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::copy(picture, &document).unwrap();
    }
    let bytes = std::fs::metadata(&document).unwrap().len();
    assert!(bytes <= MAX_PICTURE, "{} has {bytes} bytes", document.display());
}

/// A script of `tests/pages`, with what drives the browser.
pub(crate) fn script(name: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(root().join("tests/pages").join(name));
    command.arg(installed("node_modules/playwright-core/index.mjs"));
    command.arg(installed("node_modules/axe-core/axe.min.js"));
    command
}

/// By what the log finds a token, in hexadecimal digits.
fn hash(token: &str) -> String {
    let hash = token_hash(token).unwrap();
    hash.as_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A witness of a server's log of sandboxes, killed when dropped.
struct Witness(Child);

impl Witness {
    /// Has the server ask it, and another one that is away.
    fn of(server: &TestServer, folder: &Path) -> Self {
        let log = server.stranger("verdicts_url").get("/log/sandbox/key").body;
        let (key, state) = (folder.join("witness.key"), folder.join("witness"));
        let [key, state] = [&key, &state].map(|path| path.to_str().unwrap());
        let made = mandate(&["log", "key", "create", "w1.example", "-o", key]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let arguments = ["--key", key, "--state", state, "--log-key", log.trim(), "--listen", "127.0.0.1:0"];
        let mut command = mandate(&["log", "witness"]);
        let mut child = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let [verifier, url] = ["witness ", " on "]
            .map(|before| line.split(before).nth(1).unwrap().split([' ', ';']).next().unwrap());
        let away = SigningKey::new("w2.example", KeyKind::Cosignature, &[7; 32]).unwrap();
        for (key, url) in [(verifier, url), (&away.verifier().to_string(), "http://127.0.0.1:9")] {
            server.operate(&["log", "witness", "add", key, url]).code(0);
        }
        Self(child)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a person does on the page that verifies at `page`. Gives where its pictures are.
fn person(server: &TestServer, page: &str, name: &str) -> PathBuf {
    let issuer = server.ready("verdicts_url");
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let token = buyer.ask(40).text("/verdict_token");
    let denied = buyer.ask(900).text("/decision");
    let denied = organization.client.get(&format!("/decisions/{denied}")).text("/verdict_token");
    let part = |token: &str, place: usize| token.split('.').nth(place).unwrap().to_owned();
    let changed = [part(&token, 0), part(&denied, 1), part(&token, 2)].join(".");

    let pictures = screenshots(name);
    let mut command = script("verify.mjs");
    command.arg(page).arg(issuer).arg(&pictures);
    let given = json!({"token": token, "denied": denied, "changed": changed, "hash": hash(&token)});
    let found = run_with(&mut command, &given.to_string()).code(0).json();
    assert_eq!(found["screenshots"], 12);
    let checks = [
        "algorithm",
        "signature",
        "kind",
        "issuer",
        "environment",
        "issued_at",
        "expiry",
        "verdict",
        "amount",
        "currency",
        "recipient",
        "mandate",
    ];
    assert_eq!(found["checks"], json!(checks));
    pictures
}

/// The page is opened from a file, so that the issuer is another origin. With `MANDATE_WRITE_DOCS=1` the picture of the
/// documents is made again.
#[test]
fn a_person_verifies_on_the_page_in_one_file() {
    let page = built("js/verify.html", "tests/run builds it");
    let pictures = person(&TestServer::start(), &format!("file://{}", page.display()), "file");
    documented(&pictures.join("picture.png"), "docs/images/verify.png");
}

#[test]
fn a_person_verifies_on_the_page_of_a_server() {
    let server = TestServer::start();
    person(&server, &format!("{}/verify", server.ready("verdicts_url")), "server");
}

#[test]
fn a_person_finds_the_way_on_the_public_listener() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let _witness = Witness::of(&server, folder.path());
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let asked = buyer.ask(40);
    let token = asked.text("/verdict_token");
    let terms = json!({
        "decision": asked.text("/decision"),
        "arbiter": "O’Hara & Co",
        "condition": "<b>goods</b> received & \"signed\"",
        "refund_after": "2099-12-31T00:00:00Z",
    });
    let opened = organization.client.post("/escrows", &terms);
    let transitions = format!("/escrows/{}/transitions", opened.text("/escrow"));
    for (to, note) in [("delivered", "left at the door"), ("disputed", "empty box")] {
        let moved = organization.client.post(&transitions, &json!({"to": to, "note": note}));
        assert_eq!(moved.status, 200, "{moved:?}");
    }
    let mut command = script("public.mjs");
    command.arg(server.ready("verdicts_url")).arg(screenshots("public"));
    let given = json!({"token": token, "hash": hash(&token), "contract": opened.text("/contract")});
    let found = run_with(&mut command, &given.to_string()).code(0).json();
    assert_eq!(found["screenshots"], 16);
}

/// What the server embeds is what the sources give. With `MANDATE_WRITE_DOCS=1` it is replaced instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "the caller of the tests decides whether to write")]
fn what_pages_run_in_the_server_is_up_to_date() {
    let (built, embedded) =
        (built("js/built", "tests/run builds it"), root().join("mandate-server/templates/built"));
    let write = std::env::var("MANDATE_WRITE_DOCS").is_ok_and(|value| value == "1");
    for name in ["contract.js", "core.wasm", "verify.js"] {
        let wanted = std::fs::read(built.join(name)).unwrap();
        if write {
            std::fs::write(embedded.join(name), wanted).unwrap();
            continue;
        }
        assert!(
            std::fs::read(embedded.join(name)).unwrap() == wanted,
            "{name} of the server is another than the sources give: run mandate-core/js/build, \
             then this test with MANDATE_WRITE_DOCS=1"
        );
    }
}
