//! `mandate agent create`, `mandate mandate create`, `mandate mandate revoke`; keys, retries and errors.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{Service, agent_key, mandate, organization_key, private_file, run_with_stdin};

const AGENT: &str = r#"{"id":"agt_buyer","name":"buyer","agent_key":"ak_sandbox_given"}"#;
const CREATED: &str = "201 Created";
const MANDATE: &str = r#"{
  "principal": "role:finance_lead", "agent": "agt_buyer",
  "limits": {"per_transaction": 500.50, "currency": "USD"},
  "categories": ["software"], "expires": "2999-12-31"
}
"#;
const WRITTEN: &str = r#"{"id":"mnd_00000000000000000000000001","agent":"agt_buyer","status":"active","expires":"2999-12-31","later":1}"#;

fn error(code: &str, message: &str) -> String {
    format!(r#"{{"error":{{"code":"{code}","message":"{message}","request_id":"req_42"}}}}"#)
}

#[test]
fn an_agent_is_created_and_its_key_shown() {
    let service = Service::new(&[(CREATED, AGENT)]);
    let ran: crate::harness::Ran =
        service.organization(&["agent", "create", "buyer"]).output().unwrap().into();
    let ran = ran.code(0).says("shown this once");
    assert_eq!(ran.out, "agent        agt_buyer\nagent_key    ak_sandbox_given\n");
    let request = service.request();
    assert_eq!(request.line, "POST /v1/agents HTTP/1.1");
    assert_eq!(request.body, r#"{"name":"buyer"}"#);
    assert_eq!(request.header("authorization"), Some(format!("Bearer {}", organization_key()).as_str()));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert!(request.header("user-agent").unwrap().starts_with("mandate/"));
    let key = request.header("idempotency-key").unwrap();
    assert!(key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit()), "{key}");
}

#[test]
fn json_is_the_answer_as_it_came() {
    let body = "{ \"id\": \"agt_buyer\",\n \"agent_key\":\"k\", \"n\": 1.50 }";
    let service = Service::new(&[(CREATED, body)]);
    let output = service.organization(&["agent", "create", "buyer", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{body}\n"));
    service.request();
}

#[test]
fn a_mandate_is_checked_and_sent_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mandate.json");
    std::fs::write(&file, MANDATE).unwrap();
    for path in [file.to_str().unwrap(), "-"] {
        let service = Service::new(&[(CREATED, WRITTEN)]);
        let mut command = service.organization(&["mandate", "create", "-f", path]);
        let ran = run_with_stdin(&mut command, MANDATE.as_bytes()).code(0);
        assert_eq!(
            ran.out,
            "mandate      mnd_00000000000000000000000001\nagent        agt_buyer\nstatus       active\nper month    no limit\nreview above none\nexpires      2999-12-31\n"
        );
        let request = service.request();
        assert_eq!((request.line.as_str(), request.body.as_str()), ("POST /v1/mandates HTTP/1.1", MANDATE));
    }
}

#[test]
fn a_mandate_that_would_be_refused_is_not_sent() {
    for (from, to, message) in [
        ("\"currency\": \"USD\"", "\"currency\": \"usd\"", "limits.currency must be 3 to 8 characters"),
        (", \"currency\": \"USD\"", "", "limits.currency is required"),
        ("500.50", "\"500.50\"", "limits.per_transaction must be a number; got a string"),
        ("2999-12-31", "2020-01-01", "expires must not be in the past"),
        ("\"expires\"", "\"note\": 1, \"expires\"", "note is not a known field"),
        ("\"expires\"", "\"agent\": \"agt_x\", \"expires\"", "agent appears twice"),
        ("{", "{{", "body must be JSON"),
    ] {
        let text = MANDATE.replacen(from, to, 1);
        assert_ne!(text, MANDATE);
        let mut command = mandate(&["mandate", "create", "-f", "-", "--base-url", "http://127.0.0.1:1/v1"]);
        command.env("MANDATE_ORGANIZATION_KEY", organization_key());
        run_with_stdin(&mut command, text.as_bytes())
            .code(30)
            .says("error: the mandate is refused: ")
            .says(message)
            .says("sent            nothing");
    }
    let mut command = mandate(&["mandate", "create", "-f", "-"]);
    run_with_stdin(&mut command, " ".repeat(65_537).as_bytes()).code(30).says("longer than 65536 bytes");
    let mut command = mandate(&["mandate", "create", "-f", "-"]);
    run_with_stdin(&mut command, b"\xff").code(30).says("UTF-8");
    run_with_stdin(&mut mandate(&["mandate", "create", "-f", "/nowhere/mandate.json"]), b"")
        .code(3)
        .says("/nowhere/mandate.json");
    run_with_stdin(&mut mandate(&["mandate", "create", "-f", "-", "--key-file", "-"]), b"")
        .code(2)
        .says("cannot both");
}

#[test]
fn a_mandate_is_revoked() {
    let body =
        WRITTEN.replace("active", "revoked").replace("later\":1", "revoked_at\":\"2026-01-01T00:00:00Z\"");
    let service = Service::new(&[("200 OK", &body)]);
    let mut command = service.organization(&["mandate", "revoke", "mnd_00000000000000000000000001"]);
    run_with_stdin(&mut command, b"")
        .code(0)
        .shows("status       revoked\n")
        .shows("revoked_at   2026-01-01T00:00:00Z\n");
    let request = service.request();
    assert_eq!(request.line, "POST /v1/mandates/mnd_00000000000000000000000001/revoke HTTP/1.1");
    assert_eq!((request.body.as_str(), request.header("content-type")), ("", None));
    let service = Service::new(&[("404 Not Found", &error("not_found", "no such object"))]);
    let mut command = service.organization(&["mandate", "revoke", "mnd_00000000000000000000000001"]);
    run_with_stdin(&mut command, b"").code(33).says("check the id");
    service.request();
    for id in ["mnd_1", "../agents", "mnd_00000000000000000000000001/../x", "agt_buyer"] {
        run_with_stdin(&mut mandate(&["mandate", "revoke", id]), b"").code(2).says("must be `mnd_`");
    }
}

#[test]
fn refusals_have_their_codes_and_say_what_to_do() {
    for (status, code, exit, next) in [
        ("400 Bad Request", "invalid_request", 30, "correct what the message names"),
        ("401 Unauthorized", "unauthorized", 31, "its operator issues keys"),
        ("403 Forbidden", "forbidden", 32, "use a key of the other class"),
        (
            "404 Not Found",
            "not_found",
            33,
            "the API's base URL? there is no /agents; set --base-url or MANDATE_BASE_URL",
        ),
        ("409 Conflict", "idempotency_conflict", 34, "leave it out, or use a new one"),
        ("409 Conflict", "name_taken", 34, "choose another name"),
        ("418 Teapot", "teapot", 38, ""),
    ] {
        let body = error(code, "what \u{9b}is wrong");
        let service = Service::new(&[(status, &body)]);
        let mut command =
            service.organization(&["agent", "create", "buyer", "--idempotency-key", "mine", "--json"]);
        let ran = run_with_stdin(&mut command, b"")
            .code(exit)
            .says("error: what \\u{9b}is wrong\n")
            .says(&format!("code            {code} (HTTP {})\n", &status[..3]))
            .says("request id      req_42\n")
            .says(next);
        assert!(!(exit == 30 && ran.err.contains("idempotency")), "{}", ran.err);
        assert!(!ran.err.contains("idempotency key mine"), "another try would fare no better: {}", ran.err);
        assert_eq!(ran.out, format!("{body}\n"));
        assert_eq!(service.request().header("idempotency-key"), Some("mine"));
    }
}

#[test]
fn what_may_pass_is_tried_again_with_the_same_idempotency_key() {
    let service = Service::new(&[
        ("429 Too Many Requests\r\nretry-after: 0", &error("rate_limited", "slow down")),
        ("503 Service Unavailable\r\nretry-after: 0", "<html>"),
        ("500 Internal Server Error\r\nretry-after: 0", &error("server_error", "oh")),
        ("201 Created\r\nidempotency-replayed: true", AGENT),
    ]);
    let mut command = service.organization(&["agent", "create", "buyer"]);
    run_with_stdin(&mut command, b"").code(0).says("note: this is the answer to an earlier request");
    let requests = service.requests();
    let keys: Vec<_> = requests.iter().map(|r| r.header("idempotency-key").unwrap()).collect();
    assert!(keys.iter().all(|k| *k == keys[0]), "{keys:?}");
    assert!(requests.iter().all(|r| r.body == requests[0].body));
}

#[test]
fn patience_ends() {
    let busy = error("rate_limited", "slow down");
    let failing = error("server_error", "oh");
    for (status, body, times, exit, next) in [
        (
            "429 Too Many Requests\r\nretry-after: 3600",
            &busy,
            1,
            35,
            "wait 3600 s, then repeat the command with --idempotency-key \"k 1\"",
        ),
        ("429 Too Many Requests\r\nretry-after: 0", &busy, 4, 35, "wait 0 s"),
        (
            "502 Bad Gateway\r\nretry-after: 0",
            &failing,
            4,
            36,
            "repeat the command with --idempotency-key \"k 1\": it takes effect once",
        ),
    ] {
        let service = Service::new(&vec![(status, body.as_str()); times]);
        let mut command = service.organization(&["agent", "create", "buyer", "--idempotency-key", "k 1"]);
        let ran = run_with_stdin(&mut command, b"").code(exit).says(next).says("idempotency key k 1\n");
        assert_eq!(ran.out, "");
        service.requests();
    }
}

#[test]
fn a_service_that_is_not_there() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}/v1");
    let mut command = mandate(&["agent", "create", "buyer", "--base-url", &url]);
    command.env("MANDATE_ORGANIZATION_KEY", organization_key());
    run_with_stdin(&mut command, b"")
        .code(37)
        .says("cannot be reached")
        .says("check that the service runs there, then repeat the command")
        .says("idempotency key")
        .says("it takes effect once");
}

#[test]
fn answers_beyond_the_contract() {
    for (status, body, exit, message) in [
        (CREATED, "<html>", 38, "the service's answer is not understood"),
        (CREATED, "{}", 38, "id is required"),
        (CREATED, "", 38, "not understood"),
        ("404 Not Found", "<html>", 38, "answered HTTP 404, but not in the form of this API"),
        ("404 Not Found", "{\"error\":\"none\"}", 38, "check that --base-url"),
        (
            "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/v1/agents",
            "",
            38,
            "redirects are not followed",
        ),
    ] {
        let service = Service::new(&[(status, body)]);
        let mut command = service.organization(&["agent", "create", "buyer"]);
        let ran = run_with_stdin(&mut command, b"").code(exit).says(message);
        assert_eq!(ran.err.contains("idempotency key "), status == CREATED, "{}", ran.err);
        assert_eq!(ran.out, "");
        service.request();
    }
}

#[test]
fn keys_come_from_the_environment_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    private_file(&path, &format!("{}\n", organization_key()));
    let file = path.to_str().unwrap();
    for (args, variable, stdin) in [
        (vec![], Some(("MANDATE_ORGANIZATION_KEY", organization_key())), String::new()),
        (vec![], Some(("MANDATE_ORGANIZATION_KEY", format!("{}\n", organization_key()))), String::new()),
        (vec![], Some(("MANDATE_ORGANIZATION_KEY_FILE", file.to_owned())), String::new()),
        (vec!["--key-file", file], Some(("MANDATE_ORGANIZATION_KEY", "ignored".to_owned())), String::new()),
        (vec!["--key-file", "-"], None, format!("{}\r\n", organization_key())),
    ] {
        let service = Service::new(&[(CREATED, AGENT)]);
        let mut command = mandate(&["agent", "create", "buyer"]);
        command.args(args).env("MANDATE_BASE_URL", service.base_url()).envs(variable);
        let ran = run_with_stdin(&mut command, stdin.as_bytes()).code(0);
        assert!(!ran.err.contains("open to other users"), "{}", ran.err);
        assert!(service.request().header("authorization").unwrap().contains(&organization_key()));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let service = Service::new(&[(CREATED, AGENT)]);
    let mut command =
        mandate(&["agent", "create", "buyer", "--key-file", file, "--base-url", &service.base_url()]);
    run_with_stdin(&mut command, b"").code(0).says("is open to other users (mode 640); chmod 600");
    service.request();
}

#[test]
fn a_key_that_cannot_work_is_refused_before_anything_is_sent() {
    let good = organization_key();
    let mistyped = good.replace(&good[20..21], if &good[20..21] == "a" { "b" } else { "a" });
    for (variables, exit, message) in [
        (vec![], 31, "this command needs an organization key, and there is none"),
        (vec![("MANDATE_ORGANIZATION_KEY", String::new())], 31, "and there is none"),
        (vec![("MANDATE_ORGANIZATION_KEY", mistyped.clone())], 31, "mistyped: its checksum does not match"),
        (vec![("MANDATE_ORGANIZATION_KEY", format!("{good}\n\n"))], 31, "the API key is refused"),
        (vec![("MANDATE_ORGANIZATION_KEY", "secretish".to_owned())], 31, "an API key begins with"),
        (
            vec![("MANDATE_ORGANIZATION_KEY", agent_key())],
            32,
            "needs the key of an organization; this is one of an agent",
        ),
        (vec![("MANDATE_ORGANIZATION_KEY_FILE", "/nowhere/key".to_owned())], 3, "/nowhere/key"),
        (
            vec![
                ("MANDATE_ORGANIZATION_KEY", good.clone()),
                ("MANDATE_ORGANIZATION_KEY_FILE", "f".to_owned()),
            ],
            2,
            "are both set",
        ),
    ] {
        let mut command = mandate(&["agent", "create", "buyer", "--base-url", "http://127.0.0.1:1/v1"]);
        command.envs(variables.clone());
        let ran = run_with_stdin(&mut command, b"").code(exit).says(message);
        for (_, secret) in
            variables.iter().filter(|(name, secret)| name.ends_with("_KEY") && !secret.is_empty())
        {
            assert!(!ran.err.contains(secret.as_str()) && !ran.out.contains(secret.as_str()), "{ran:?}");
        }
    }
}

#[test]
fn the_presented_key_is_never_shown() {
    for (status, body) in [("401 Unauthorized", error("unauthorized", "no")), (CREATED, "{}".to_owned())] {
        let service = Service::new(&[(status, &body)]);
        let ran = run_with_stdin(&mut service.organization(&["agent", "create", "buyer"]), b"");
        assert!(!format!("{ran:?}").contains(&organization_key()[12..30]), "{ran:?}");
        service.request();
    }
}

#[test]
fn addresses_that_are_refused() {
    for (url, message) in [
        ("http://api.example.com/v1", "http is accepted for this machine only; use https"),
        ("http://127.0.0.1:8080", "it must end in /v1"),
        ("ftp://api.example.com/v1", "it must be a complete URL: https://"),
        ("api.example.com/v1", "--base-url `api.example.com/v1` is refused"),
    ] {
        let mut command = mandate(&["agent", "create", "buyer", "--base-url", url]);
        command.env("MANDATE_ORGANIZATION_KEY", organization_key());
        run_with_stdin(&mut command, b"").code(2).says(message);
    }
    run_with_stdin(&mut mandate(&["agent", "create", "buyer"]), b"")
        .code(2)
        .says("set MANDATE_BASE_URL, or pass --base-url");
}

#[test]
fn a_proxy_never_sees_what_is_meant_for_this_machine() {
    let service = Service::new(&[(CREATED, AGENT)]);
    let mut command = service.organization(&["agent", "create", "buyer"]);
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:1");
    }
    run_with_stdin(&mut command, b"").code(0);
    service.request();
}
