//! Tokens of the real server, verified by clients that others wrote, against the key set as it is published.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Agent, Ran, TestServer, binary, terms};

const PYJWT: &str = include_str!("../strangers/verify.py");
const NPM_JOSE: &str = include_str!("../strangers/verify.mjs");
/// Longer than a verdict lives.
const LATER_SECONDS: u32 = 400;

/// What `tests/run` has installed.
pub(crate) fn installed(path: &str) -> PathBuf {
    built(&format!("strangers/{path}"), "tests/run installs it")
}

/// What is below the target directory before the tests run.
pub(crate) fn built(path: &str, how: &str) -> PathBuf {
    let target = binary("mandate").parent().and_then(Path::parent).unwrap().to_owned();
    let path = target.join(path);
    assert!(path.exists(), "{} is missing: {how}", path.display());
    path
}

/// A server, a token of each environment with its claims as the API shows them, and a token with claims from another.
struct Scene {
    server: TestServer,
    tokens: Vec<(String, Value)>,
    tampered: String,
}

impl Scene {
    fn new() -> Self {
        let server = TestServer::start();
        let organization = server.demo();
        let mut tokens = Vec::new();
        for client in [&organization.client, &organization.live] {
            let agent = Agent::register(client, "buyer");
            assert_eq!(client.post("/mandates", &terms("agt_buyer")).status, 201);
            for amount in [40, 41, 900] {
                let decision =
                    agent.client.get(&format!("/decisions/{}", agent.ask(amount).text("/decision")));
                tokens.push((decision.text("/verdict_token"), claims(decision.json())));
            }
        }
        let parts = |place: usize| -> Vec<String> { tokens[place].0.split('.').map(str::to_owned).collect() };
        let (forty, forty_one) = (parts(0), parts(1));
        let tampered = format!("{}.{}.{}", forty[0], forty_one[1], forty[2]);
        Self { server, tokens, tampered }
    }

    fn issuer(&self) -> &str {
        self.server.ready("verdicts_url")
    }

    fn key_set_url(&self) -> String {
        format!("{}/.well-known/jwks.json", self.issuer())
    }

    /// What one client says of each token, of the tampered one, of an expired one, and of another issuer.
    fn check(&self, verify: impl Fn(&str, &str, u32) -> Ran, tampered: &str, expired: &str, issuer: &str) {
        for (token, claims) in &self.tokens {
            let verified = verify(self.issuer(), token, 0).code(0);
            assert_eq!(serde_json::from_str::<Value>(&verified.out).unwrap(), *claims);
        }
        let token = &self.tokens[0].0;
        assert_eq!(verify(self.issuer(), &self.tampered, 0).code(1).out.trim(), tampered);
        assert_eq!(verify(self.issuer(), token, LATER_SECONDS).code(1).out.trim(), expired);
        assert_eq!(verify("https://other.example", token, 0).code(1).out.trim(), issuer);
    }
}

/// The decision object without what is not signed.
fn claims(decision: Value) -> Value {
    let signed = ["iss", "jti", "iat", "exp", "verdict", "mandate", "policy_version", "nonce", "request"];
    let Value::Object(members) = decision else { panic!("{decision} is no object") };
    members.into_iter().filter(|(name, _)| signed.contains(&name.as_str())).collect()
}

pub(crate) fn run_with(command: &mut Command, stdin: &str) -> Ran {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}; tests/run installs it"));
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn pyjwt() {
    let scene = Scene::new();
    let python = installed("venv/bin/python");
    let verify = |issuer: &str, token: &str, early: u32| {
        let mut command = Command::new(&python);
        run_with(command.args(["-", &scene.key_set_url(), issuer, token, &early.to_string()]), PYJWT)
    };
    scene.check(verify, "InvalidSignatureError", "ExpiredSignatureError", "InvalidIssuerError");
}

#[test]
fn npm_jose() {
    let scene = Scene::new();
    let modules = installed("node_modules/jose");
    let verify = |issuer: &str, token: &str, early: u32| {
        let mut command = Command::new("node");
        command
            .current_dir(modules.parent().and_then(Path::parent).unwrap())
            .args(["--input-type=module", "-"]);
        run_with(command.args([&scene.key_set_url(), issuer, token, &early.to_string()]), NPM_JOSE)
    };
    scene.check(
        verify,
        "ERR_JWS_SIGNATURE_VERIFICATION_FAILED",
        "ERR_JWT_EXPIRED",
        "ERR_JWT_CLAIM_VALIDATION_FAILED",
    );
}

/// The command checks the signature alone; expiry and issuer are for its caller to compare.
#[test]
fn debian_jose() {
    let scene = Scene::new();
    let key_set = scene.server.stranger("verdicts_url").get("/.well-known/jwks.json").body;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    std::fs::write(&path, key_set).unwrap();
    let verify = |token: &str| {
        let mut command = Command::new("jose");
        run_with(command.args(["jws", "ver", "-i", "-", "-O", "-", "-k"]).arg(&path), token)
    };
    for (token, claims) in &scene.tokens {
        let verified: Value = serde_json::from_str(&verify(token).code(0).out).unwrap();
        assert_eq!(verified, *claims);
        assert_eq!(verified["exp"].as_i64().unwrap(), verified["iat"].as_i64().unwrap() + 300);
    }
    // It prints claims before it has checked them: only its exit code says whether they are signed.
    verify(&scene.tampered).code(1);
}
