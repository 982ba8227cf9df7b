//! How lists are walked: retries, and cursors that expire on the way; and how an export is fetched.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::harness::{Ran, Service};

const REFUSED: &str =
    r#"{"error":{"code":"invalid_request","message":"cursor expired or malformed","request_id":"req_1"}}"#;

fn page(ids: &[&str], cursor: Option<&str>) -> String {
    let data: Vec<String> = ids.iter().map(|id| format!(r#"{{"id":"{id}"}}"#)).collect();
    let next = cursor.map(|cursor| format!(r#","next_cursor":"{cursor}""#)).unwrap_or_default();
    format!(r#"{{"data":[{}],"has_more":{}{next}}}"#, data.join(","), cursor.is_some())
}

#[test]
fn a_walk_outlives_its_cursor() {
    let (first, empty, last) =
        (page(&["agt_c", "agt_b"], Some("cur_1")), page(&[], Some("cur_2")), page(&["agt_a"], None));
    let service = Service::new(&[
        ("200 OK", &first),
        ("200 OK", &empty),
        ("400 Bad Request", REFUSED),
        ("200 OK", &last),
    ]);
    let mut command = service.organization(&["agent", "list", "--all", "--jq", ".[].id"]);
    let ran = Ran::from(command.output().unwrap()).code(0);
    assert_eq!(ran.out, "agt_c\nagt_b\nagt_a\n");
    let lines: Vec<String> = service.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/agents?limit=100 HTTP/1.1",
            "GET /v1/agents?limit=100&cursor=cur_1 HTTP/1.1",
            "GET /v1/agents?limit=100&cursor=cur_2 HTTP/1.1",
            "GET /v1/agents?limit=100&starting_after=agt_b HTTP/1.1",
        ]
    );
}

#[test]
fn a_read_is_tried_again_and_carries_no_idempotency_key() {
    let last = page(&["agt_a"], None);
    let service = Service::new(&[
        ("429 Too Many Requests\r\nretry-after: 0", "{}"),
        ("503 Service Unavailable\r\nretry-after: 0", "{}"),
        ("200 OK", &last),
    ]);
    let mut command = service.organization(&["agent", "list", "--format", "ndjson"]);
    assert_eq!(Ran::from(command.output().unwrap()).code(0).out, "{\"id\":\"agt_a\"}\n");
    let requests = service.requests();
    assert!(requests.iter().all(|request| request.header("idempotency-key").is_none()));
}

#[test]
fn a_read_that_fails_is_to_be_repeated_and_nothing_else() {
    let body = r#"{"error":{"code":"server_error","message":"it failed","request_id":"req_7"}}"#;
    let service = Service::new(&[("500 Internal Server Error\r\nretry-after: 100", body)]);
    let mut command = service.organization(&["agent", "list"]);
    let ran = Ran::from(command.output().unwrap()).code(36).says("req_7").says("repeat the command");
    assert!(!ran.err.contains("idempotency"), "{ran:?}");
    service.request();
}

#[test]
fn a_download_whose_issuer_cannot_be_had_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let export = "exp_01hf7yat000000000000000007";
    let content = "{\"export\":{}}\n{\"trailer\":\"a.b.c\"}\n";
    let sha256 = Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let record = format!(r#"{{"export":"{export}","status":"ready","format":"ndjson","sha256":"{sha256}"}}"#);
    let elsewhere = "308 Permanent Redirect\r\nlocation: http://127.0.0.1:1/.well-known/jwks.json";
    for (name, key_set, content, code, message) in [
        ("none", "404 Not Found", content, 0, "the issuer is not known"),
        ("silent", elsewhere, content, 0, "http://127.0.0.1:1/.well-known/jwks.json"),
        ("changed", elsewhere, "{\"export\":{}}\n{\"trailer\":\"a.b.d\"}\n", 17, "its SHA-256 is not that"),
    ] {
        let service = Service::new(&[("200 OK", &record), (key_set, ""), ("200 OK", content)]);
        let file = folder.path().join(name);
        let mut command = service.organization(&["export", "download", export, "-o"]);
        Ran::from(command.arg(&file).output().unwrap()).code(code).says(message);
        assert_eq!(file.exists(), code == 0, "{name}");
        let asked = service.requests();
        assert_eq!(asked[1].line, "GET /.well-known/jwks.json HTTP/1.1");
        assert!(asked[1].header("authorization").is_none(), "{asked:?}");
    }
}

#[test]
fn two_downloads_write_no_file_together() {
    let folder = tempfile::tempdir().unwrap();
    let export = "exp_01hf7yat000000000000000007";
    let content = "decision\ndec_1\n";
    let sha256 = Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let record = format!(r#"{{"export":"{export}","status":"ready","format":"csv","sha256":"{sha256}"}}"#);
    let download = |service: &Service, name: &str| {
        let mut command = service.organization(&["export", "download", export, "-o"]);
        Ran::from(command.arg(folder.path().join(name)).output().unwrap())
    };
    let part = folder.path().join("june.csv.part");
    std::fs::write(&part, "of another").unwrap();
    let held = std::fs::File::open(&part).unwrap();
    held.lock().unwrap();
    let service = Service::new(&[("200 OK", &record)]);
    download(&service, "june.csv").code(3).says("another download is writing").says("june.csv.part");
    service.request();
    // A name that differs in its end alone is another file.
    for name in ["june", "june.ndjson"] {
        let service = Service::new(&[("200 OK", &record), ("200 OK", content)]);
        download(&service, name).code(0);
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), content);
        assert_eq!(service.requests().len(), 2);
    }
    assert_eq!(std::fs::read_to_string(&part).unwrap(), "of another");
    drop(held);
    let service = Service::new(&[("200 OK", &record), ("200 OK", content)]);
    download(&service, "june.csv").code(0);
    assert!(!part.exists());
    service.requests();
    // What has not begun leaves nothing behind.
    let error = r#"{"error":{"code":"not_found","message":"no such export","request_id":"req_7"}}"#;
    let service = Service::new(&[("200 OK", &record), ("404 Not Found", error)]);
    download(&service, "july.csv").code(33);
    assert!(!folder.path().join("july.csv.part").exists());
    service.requests();
}

#[test]
fn an_export_that_may_lack_decisions_says_so_when_it_is_shown_and_downloaded() {
    let folder = tempfile::tempdir().unwrap();
    let (export, since) = ("exp_01hf7yat000000000000000007", "2026-06-15T12:00:10.000Z");
    // The hash of nothing.
    let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (name, member) in [("whole", String::new()), ("lacking", format!(r#","incomplete_since":"{since}""#))]
    {
        let record =
            format!(r#"{{"export":"{export}","status":"ready","format":"csv","sha256":"{sha256}"{member}}}"#);
        let is_lacking = !member.is_empty();
        let service = Service::new(&[("200 OK", &record)]);
        let shown = Ran::from(service.organization(&["export", "show", export]).output().unwrap()).code(0);
        assert_eq!(shown.out.contains(&format!("lacks from   {since}\n")), is_lacking, "{shown:?}");
        service.request();
        let service = Service::new(&[("200 OK", &record), ("200 OK", "")]);
        let mut command = service.organization(&["export", "download", export, "-o"]);
        let downloaded = Ran::from(command.arg(folder.path().join(name)).output().unwrap()).code(0);
        let warns = downloaded.err.contains(&format!("it may lack decisions from {since} on"));
        assert_eq!(warns, is_lacking, "{downloaded:?}");
        service.requests();
    }
}

#[test]
fn a_mandate_is_shown_with_the_sequences_that_it_governs() {
    let mandate = r#"{"id":"mnd_01hf7yat000000000000000007","agent":"agt_a","status":"revoked",
        "revoked_at":"2026-06-15T12:00:10.000Z","governs_from":3,"revoked_after":7,"governed_until":9}"#;
    let service = Service::new(&[("200 OK", mandate)]);
    let mut command = service.organization(&["mandate", "show", "mnd_01hf7yat000000000000000007"]);
    let shown = Ran::from(command.output().unwrap()).code(0).out;
    let lines = "governs from 3\nuntil        9\nrevoked_at   2026-06-15T12:00:10.000Z\nafter        7\n";
    assert!(shown.contains(lines), "{shown}");
    service.request();
}
