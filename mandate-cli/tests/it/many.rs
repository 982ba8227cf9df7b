//! `mandate verify --tokens`: a line in, a line out.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Ran, mandate, run_with_stdin};
use crate::issuer::{IAT, ISSUER, PAYMENT, jwks_file, live_token};

/// `mandate verify --tokens -`, which compares with nothing but the issuer.
fn verify(jwks: &str) -> Command {
    mandate(&["verify", "--tokens", "-", "--issuer", ISSUER, "--jwks", jwks, "--at", &IAT.to_string()])
}

/// The same for the payment of every token.
fn settle(jwks: &str) -> Command {
    let mut command = verify(jwks);
    command.args(PAYMENT);
    command
}

/// A command that gets a text on its standard input.
trait OutputOf {
    fn output_of(&mut self, text: &str) -> Ran;
}

impl OutputOf for Command {
    fn output_of(&mut self, text: &str) -> Ran {
        run_with_stdin(self, text.as_bytes())
    }
}

fn answers(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbered(n: usize) -> String {
    live_token(json!({ "nonce": format!("n_{n:026}") }))
}

#[test]
fn each_line_has_its_answer_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let token = numbered(1);
    let object = |members: Value| {
        let mut object = json!({ "token": &token });
        object.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        object.to_string()
    };
    let lines = [
        (token.clone(), 0, Value::Null),
        (String::new(), 0, Value::Null),
        (
            object(json!({"id": "order 7", "amount": 40.00, "currency": "USD", "recipient": "vendor:acme"})),
            0,
            Value::Null,
        ),
        (object(json!({"amount": "40.0"})), 0, Value::Null),
        (object(json!({"amount": 41})), 17, json!("amount")),
        (object(json!({"currency": "EUR"})), 17, json!("currency")),
        (object(json!({"recipient": "vendor:other"})), 17, json!("recipient")),
        (object(json!({"amuont": 40})), 10, json!("input")),
        (object(json!({"amount": "40,0"})), 10, json!("input")),
        (r#"{"token":"#.to_owned(), 10, json!("input")),
        ("a.b".to_owned(), 10, json!("parts")),
        (format!("Bearer {token}"), 10, json!("input")),
        (object(json!({"id": "order 8", "token": format!("bearer {token}")})), 10, json!("input")),
        ("a".repeat(300_000), 10, json!("input")),
        (live_token(json!({"iss": "https://other.example"})), 14, json!("issuer")),
        (crate::issuer::token(json!({})), 22, json!("environment")),
    ];
    let text: String = lines.iter().fold(String::new(), |mut text, (line, ..)| {
        let _ = writeln!(text, "{line}");
        text
    });
    let ran = run_with_stdin(settle(&jwks).arg("--nonce-elsewhere"), text.as_bytes()).code(17);
    let answers = answers(&ran);
    let asked: Vec<_> = lines.iter().enumerate().filter(|(_, (line, ..))| !line.is_empty()).collect();
    assert_eq!(answers.len(), asked.len());
    for (answer, (place, (_, code, check))) in answers.iter().zip(asked) {
        assert_eq!(answer["line"], place + 1);
        assert_eq!(answer["valid"], *code == 0, "{answer}");
        assert_eq!(answer["error"]["check"], *check, "{answer}");
        assert_eq!(answer["error"]["exit_code"].as_i64().unwrap_or(0), *code, "{answer}");
        assert_eq!(answer["claims"].is_object(), *code == 0, "{answer}");
    }
    assert_eq!(answers[1]["id"], "order 7");
    let copied: Vec<_> = answers
        .iter()
        .filter(|a| a["error"]["message"].to_string().contains("begins with `Bearer `"))
        .collect();
    assert_eq!((copied.len(), &copied[1]["id"]), (2, &json!("order 8")));
    // What an object does not say, the options do.
    let other = verify(&jwks).args(["--amount", "41", "--nonce-elsewhere"]).output_of(&text).code(17);
    assert_eq!(self::answers(&other)[0]["error"]["check"], "amount");
    assert_eq!(self::answers(&other)[1]["valid"], true);
    // A line with a part of the payment alone is valid in its signature alone.
    let part = &self::answers(&other)[2];
    assert_eq!((&part["valid"], &part["error"]["exit_code"]), (&json!(false), &json!(26)));
    assert_eq!(
        (&part["compared"], &part["not_compared"]),
        (&json!(["amount"]), &json!(["currency", "recipient"]))
    );
    let order = folder.path().join("order.json");
    std::fs::write(&order, r#"{"amount": 40, "currency": "USD", "recipient": "vendor:acme"}"#).unwrap();
    let ordered = verify(&jwks).arg("--order").arg(&order).arg("--nonce-elsewhere").output_of(&text).code(17);
    assert_eq!(ordered.out, ran.out);
    let explained =
        settle(&jwks).args(["--nonce-elsewhere", "--explain"]).output_of(&object(json!({"amount": 40})));
    let answer = explained.code(0).json();
    let amount = answer["checks"].as_array().unwrap().iter().find(|c| c["check"] == "amount").unwrap();
    assert_eq!(amount["compared"], "the signed value with --amount 40");
}

#[test]
fn fields_and_expressions_are_applied_to_each_answer() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let text = format!("{}\nrubbish\n", numbered(1));
    let checked = |more: &[&str]| settle(&jwks).args(more).output_of(&text);
    let read = |more: &[&str]| checked(&[&["--nonce-elsewhere"], more].concat());
    let fields = read(&["--json=line,valid,claims.request.amount,error.check"]).code(10);
    assert_eq!(
        fields.out,
        "{\"line\":1,\"valid\":true,\"claims.request.amount\":40,\"error.check\":null}\n\
         {\"line\":2,\"valid\":false,\"claims.request.amount\":null,\"error.check\":\"parts\"}\n"
    );
    assert_eq!(read(&["--jq", "select(.valid | not) | .line"]).code(10).out, "2\n");
    assert_eq!(read(&["--json"]).out, read(&[]).out);
    assert_eq!(read(&["--format", "ndjson"]).out, read(&[]).out);
    read(&["--format", "table"]).code(2).says("no table");

    // An expression that fails costs the nonces that were claimed, and says so.
    let nonces = folder.path().join("nonces");
    let store = ["--nonce-store", nonces.to_str().unwrap()];
    checked(&[&store[..], &["--jq", ".valid | keys"]].concat()).code(3).says("the nonces of the lines 1");
    checked(&store).code(18);
}

#[test]
fn thousands_keep_their_order_and_a_nonce_passes_once() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let tokens: Vec<_> = (0..300).map(numbered).collect();
    let text: String = (0..1500).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, r#"{{"id":"{n}","token":"{}"}}"#, tokens[n % tokens.len()]);
        text
    });
    let nonces = folder.path().join("nonces");
    let run = || settle(&jwks).arg("--nonce-store").arg(&nonces).output_of(&text).code(18);
    let first = answers(&run());
    assert!(first.iter().enumerate().all(|(n, a)| a["id"] == json!(n.to_string())));
    assert!(first.iter().enumerate().all(|(n, a)| a["valid"] == (n < tokens.len())));
    assert!(answers(&run()).iter().all(|a| a["error"]["check"] == "replay"));
}

#[test]
fn of_many_processes_one_passes_each_nonce() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, (0..200).map(|n| numbered(n) + "\n").collect::<String>()).unwrap();
    let mut command = mandate(&["verify", "--issuer", ISSUER, "--jwks", &jwks, "--at", &IAT.to_string()]);
    command.args(PAYMENT).arg("--tokens").arg(&tokens).arg("--nonce-store").arg(folder.path().join("nonces"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let racing: Vec<_> = (0..4).map(|_| command.spawn().unwrap()).collect();
    let ran: Vec<Ran> = racing.into_iter().map(|child| child.wait_with_output().unwrap().into()).collect();
    let all: Vec<_> = ran.iter().map(answers).collect();
    for n in 0..200 {
        assert_eq!(all.iter().filter(|answers| answers[n]["valid"] == true).count(), 1, "{n}");
    }
}

#[test]
fn answers_come_while_the_input_is_open() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let folder = tempfile::tempdir().unwrap();
    let mut child = verify(&jwks_file(folder.path()))
        .arg("--signature-only")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for n in 0..20 {
        writeln!(stdin, "{}", numbered(n)).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["line"], n + 1);
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_answer_that_is_lost_has_used_the_nonce_up() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let mut command = mandate(&["verify", &numbered(1), "--issuer", ISSUER, "--jwks", &jwks]);
    command.args(PAYMENT).args(["--at", &IAT.to_string(), "--nonce-store"]).arg(folder.path().join("nonces"));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let lost = Ran::from(command.stdout(full).stderr(Stdio::piped()).output().unwrap()).code(3);
    lost.says("used up         n_00000000000000000000000001: ask for a new verdict");
    Ran::from(command.stdout(Stdio::piped()).output().unwrap()).code(18);
}
