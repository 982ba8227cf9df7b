//! What a network does to a command: pauses that are asked for, answers that are lost, connections that end before their time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread::JoinHandle;

use mandate_core::EnvironmentKind;
use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::export::Content;
use serde_json::json;

use crate::harness::{Ran, Service, mandate, organization_key, private_file, run, run_with_stdin};

const AGENT: &str = r#"{"id":"agt_buyer","name":"buyer","agent_key":"mk_agent_secret","created_at":"2026-01-01T00:00:00.000Z"}"#;

fn error(code: &str) -> String {
    json!({"error": {"code": code, "message": "why", "request_id": "req_42"}}).to_string()
}

fn ran(mut command: std::process::Command) -> Ran {
    command.output().unwrap().into()
}

#[test]
fn a_pause_can_be_asked_for_by_its_end() {
    let busy = error("rate_limited");
    let over = "429 Too Many Requests\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT";
    let service = Service::new(&[(over, &busy), (over, &busy), ("200 OK", r#"{"mode":"observe"}"#)]);
    ran(service.organization(&["enforcement", "get"])).code(0);
    assert_eq!(service.requests().len(), 3);
    let far = "429 Too Many Requests\r\nretry-after: Tue, 31 Dec 2999 23:59:59 GMT";
    let service = Service::new(&[(far, &busy)]);
    ran(service.organization(&["enforcement", "get"])).code(35).says("then repeat the command");
    assert_eq!(service.requests().len(), 1);
}

#[test]
fn a_deletion_whose_answer_was_lost_is_one() {
    let delete = ["webhook", "delete", "whk_01hf7yat000000000000000007"];
    let gone = error("not_found");
    let service = Service::new(&[("502 Bad Gateway\r\nretry-after: 0", "<html>"), ("404 Not Found", &gone)]);
    ran(service.organization(&delete)).code(0).shows("deleted");
    service.requests();
    let service = Service::new(&[("404 Not Found", &gone)]);
    ran(service.organization(&delete)).code(33);
    let busy = error("rate_limited");
    let service =
        Service::new(&[("429 Too Many Requests\r\nretry-after: 0", &busy), ("404 Not Found", &gone)]);
    ran(service.organization(&delete)).code(33);
}

/// Gives each connection one of these answers, as they are, and then ends it; keeps the ranges that were asked for.
fn cutting(answers: Vec<String>) -> (String, JoinHandle<Vec<Option<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let each = answers.iter().map(|answer| {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let mut range = None;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(asked) = line.to_lowercase().strip_prefix("range: ") {
                    range = Some(asked.trim().to_owned());
                }
                if line.trim_end().is_empty() {
                    break;
                }
            }
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            range
        });
        each.collect()
    });
    (address, thread)
}

#[test]
fn a_download_goes_on_over_connections_that_end_before_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.csv");
    let text = "id,verdict\na,allow\nb,review\n";
    let mut content = Content::default();
    content.take(text.as_bytes());
    let export = "exp_01hf7yat000000000000000007";
    let record =
        json!({"export": export, "status": "ready", "format": "csv", "rows": 2, "sha256": content.sha256()})
            .to_string();
    let whole = |head: &str, length: usize, body: &str| {
        format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let rest = |from: usize, to: usize| whole("206 Partial Content", text.len() - from, &text[from..to]);
    let download = |answers: Vec<String>| {
        let (base_url, service) = cutting(answers);
        let mut command = mandate(&["export", "download", export, "-o", file.to_str().unwrap()]);
        command.env("MANDATE_BASE_URL", base_url).env("MANDATE_ORGANIZATION_KEY", organization_key());
        (ran(command), service.join().unwrap())
    };
    let (ended, ranges) = download(vec![
        whole("200 OK", record.len(), &record),
        whole("503 Service Unavailable\r\nretry-after: 0", 0, ""),
        whole("200 OK", text.len(), &text[..5]),
        rest(5, 12),
        rest(12, text.len()),
    ]);
    ended.code(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert_eq!(ranges[2..], [None, Some("bytes=5-".to_owned()), Some("bytes=12-".to_owned())]);

    // One that brings nothing more ends it, and what has come is kept.
    std::fs::remove_file(&file).unwrap();
    let (ended, _) = download(vec![
        whole("200 OK", record.len(), &record),
        whole("200 OK", text.len(), &text[..5]),
        rest(5, 5),
    ]);
    ended.code(37).says("the download has stopped").says("it continues from there");
    assert!(!file.exists());
    assert_eq!(std::fs::read_to_string(folder.path().join("all.csv.part")).unwrap(), text[..5]);
}

#[test]
fn a_closed_pipe_does_not_stop_sending() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.ndjson");
    let line = r#"{"event":"evt_01hf7yat000000000000000007","type":"ping","token":"a.b.c"}"#;
    std::fs::write(&file, format!("{line}\n").repeat(3)).unwrap();
    let service = Service::new(&[("204 No Content", ""); 3]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = mandate(&["replay", file.to_str().unwrap(), "--forward-to", service.address()]);
    let status = command.stdout(Stdio::from(writer)).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(service.requests().len(), 3);
    std::fs::write(&file, format!("{}\n", "x".repeat(2 * 1024 * 1024))).unwrap();
    run(&["replay", file.to_str().unwrap(), "--forward-to", "http://127.0.0.1:1"])
        .code(30)
        .says("it is too long");
}

#[test]
fn a_failing_expression_shows_no_secret_and_says_that_the_change_was_made() {
    let service = Service::new(&[("201 Created", AGENT)]);
    let command = service.organization(&["agent", "create", "buyer", "--jq", ".agent_key|tonumber"]);
    let ran =
        ran(command).code(3).says("the change was made").says("repeat the command with --idempotency-key");
    assert!(ran.out.is_empty() && !ran.err.contains("secret"), "{ran:#?}");
    service.request();
}

#[test]
fn a_key_that_is_still_good_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let key = |byte| {
        let key = ApiKey::from_random(KeyClass::Organization, EnvironmentKind::Sandbox, &[byte; 32]);
        let path = folder.path().join(byte.to_string());
        if !path.exists() {
            private_file(&path, key.expose());
        }
        (path, key.expose().to_owned())
    };
    let mode = ("200 OK", r#"{"mode":"observe"}"#);
    let refused = error("unauthorized");
    let refused = ("401 Unauthorized", refused.as_str());
    // The service names no issuer.
    let issuer = ("404 Not Found", "");
    // All logins are to one address, so that they are about one service.
    let service =
        Service::new(&[mode, issuer, mode, issuer, mode, mode, issuer, refused, mode, issuer, mode, issuer]);
    let login = |byte, more: &[&str]| {
        let (path, _) = key(byte);
        let mut command = mandate(&[&["login", "--key-file", path.to_str().unwrap()], more].concat());
        command.env("MANDATE_CONFIG_DIR", folder.path()).env("MANDATE_BASE_URL", service.base_url());
        ran(command)
    };
    let holds = |byte| {
        let kept = std::fs::read_to_string(folder.path().join("profiles.json")).unwrap();
        kept.contains(&key(byte).1)
    };
    login(1, &[]).code(0);
    login(1, &[]).code(0);
    login(2, &[]).code(2).says("another key, which is still valid").says("give this one another name");
    assert!(holds(1) && !holds(2));
    login(2, &["--profile", "other"]).code(0);
    assert!(holds(1) && holds(2));
    login(3, &[]).code(0);
    assert!(!holds(1) && holds(2) && holds(3));
    login(4, &["third"]).code(0);
    assert_eq!(service.requests().len(), 12);
}

#[test]
fn of_logins_at_a_time_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    private_file(&path, &organization_key());
    let count = 8;
    // Each asks for the mode, and for the issuer.
    let service = Service::new(&vec![("200 OK", r#"{"mode":"observe"}"#); 2 * count]);
    let logins: Vec<_> = (0..count)
        .map(|number| {
            let name = format!("p{number}");
            let mut command = mandate(&["login", &name, "--key-file", path.to_str().unwrap()]);
            command.env("MANDATE_CONFIG_DIR", folder.path()).env("MANDATE_BASE_URL", service.base_url());
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut login in logins {
        assert!(login.wait().unwrap().success());
    }
    let kept = std::fs::read(folder.path().join("profiles.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["profiles"].as_object().unwrap().len(), count);
    service.requests();
}

#[test]
fn a_dash_is_standard_input_and_never_a_file() {
    let keys = r#"{"keys":[]}"#;
    run_with_stdin(&mut mandate(&["jwks", "show", "--jwks", "-"]), keys.as_bytes()).code(0);
    let both = ["verify", "-", "--issuer", "https://issuer.example", "--jwks", "-"];
    run(&both).code(2).says("cannot both come from standard input");
    let export = ["audit", "-", "--issuer", "https://issuer.example", "--jwks", "-"];
    run(&export).code(2).says("cannot both come from standard input");
    let folder = tempfile::tempdir().unwrap();
    let mut download = mandate(&["export", "download", "exp_01hf7yat000000000000000007", "-o", "-"]);
    download.current_dir(folder.path());
    ran(download).code(2).says("name a file with -o");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    run(&["jwks", "pin", "https://issuer.example/", "--jwks", "-"]).code(2).says("ends with a slash");
}

#[test]
fn verbose_shows_requests_and_answers_and_no_key() {
    let secret = crate::harness::agent_key();
    let answer = format!(r#"{{"id":"agt_buyer","agent_key":"{secret}"}}"#);
    let service = Service::new(&[("201 Created", answer.as_str())]);
    let ran = ran(service.organization(&["agent", "create", "buyer", "--verbose"])).code(0);
    for line in [
        &format!("> POST {}/agents", service.base_url())[..],
        "> authorization: ***",
        "> content-type: application/json",
        r#"> {"name":"buyer"}"#,
        "< HTTP 201 Created",
        "< x-request-id: req_1",
    ] {
        assert!(ran.err.lines().any(|shown| shown == line), "{line} is not in {}", ran.err);
    }
    assert!(
        ran.err.contains("> idempotency-key: ") && ran.err.contains(r#"< {"id":"agt_buyer","agent_key":""#)
    );
    for key in [secret, crate::harness::organization_key()] {
        assert!(!ran.err.contains(&key), "{}", ran.err);
    }
    assert!(ran.out.starts_with("agent        agt_buyer\n"), "{ran:?}");
    service.requests();
}
