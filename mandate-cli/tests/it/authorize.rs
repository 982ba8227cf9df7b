//! `mandate authorize`: verdicts, modes, exit codes.

use crate::harness::{Service, agent_key, mandate, organization_key, run_with_stdin};

const ASK: [&str; 7] = ["authorize", "40.50", "USD", "--to", "vendor:acme", "--category", "software"];
const CREATED: &str = "201 Created";

fn answer(verdict: &str, mode: &str, rest: &str) -> String {
    format!(r#"{{"decision":"dec_1","verdict":"{verdict}","mode":"{mode}"{rest},"later":{{}}}}"#)
}

#[test]
fn an_allow_comes_with_its_token() {
    let service = Service::new(&[(CREATED, &answer("allow", "enforce", r#","verdict_token":"a.b.c""#))]);
    let ran = run_with_stdin(&mut service.agent(&ASK), b"").code(0);
    assert_eq!(ran.out, "verdict      allow\ndecision     dec_1\nmode         enforce\ntoken        a.b.c\n");
    assert_eq!(ran.err, "");
    let request = service.request();
    assert_eq!(request.line, "POST /v1/authorizations HTTP/1.1");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {}", agent_key()).as_str()));
    assert_eq!(
        request.body,
        r#"{"amount":40.50,"currency":"USD","recipient":"vendor:acme","category":"software"}"#
    );
}

#[test]
fn the_amount_is_sent_as_it_was_typed() {
    for amount in ["40", "40.00", "1e2", "0.00000001", "999999999999999"] {
        let service = Service::new(&[(CREATED, &answer("allow", "enforce", ""))]);
        let mut args = ASK;
        args[1] = amount;
        run_with_stdin(&mut service.agent(&args), b"").code(0);
        assert!(service.request().body.starts_with(&format!(r#"{{"amount":{amount},"#)), "{amount}");
    }
}

#[test]
fn verdicts_have_their_codes_and_observe_mode_blocks_nothing() {
    let reason = r#","reason":"amount 900 exceeds per_transaction limit 500""#;
    let review = r#","review":{"id":"rev_1","waits_for":"role:lead","expires_at":"2026-01-02T00:00:00Z"}"#;
    for (verdict, mode, more, strict, exit) in [
        ("allow", "enforce", "", false, 0),
        ("allow", "observe", "", true, 0),
        ("deny_limit", "enforce", reason, false, 20),
        ("deny_no_mandate", "enforce", reason, true, 20),
        ("deny_limit", "observe", reason, false, 0),
        ("deny_limit", "observe", reason, true, 20),
        ("review", "enforce", review, false, 21),
        ("review", "observe", review, false, 0),
        ("review", "observe", review, true, 21),
        ("deny_limit", "some_new_mode", reason, false, 20),
    ] {
        for json in [false, true] {
            let body = answer(verdict, mode, more);
            let service = Service::new(&[(CREATED, &body)]);
            let mut command = service.agent(&ASK);
            command.args(strict.then_some("--strict")).args(json.then_some("--json"));
            let ran = run_with_stdin(&mut command, b"").code(exit);
            assert_eq!(ran.err.contains("warning: "), exit == 0 && verdict != "allow", "{ran:?}");
            if json {
                assert_eq!(ran.out, format!("{body}\n"));
            } else {
                let ran =
                    ran.shows(&format!("verdict      {verdict}\n")).shows(&format!("mode         {mode}\n"));
                assert_eq!(
                    ran.out.contains("reason       amount 900 exceeds per_transaction limit 500\n"),
                    more == reason
                );
                assert_eq!(
                    ran.out.contains(
                        "review       rev_1\nwaits for    role:lead\nexpires      2026-01-02T00:00:00Z\n"
                    ),
                    more == review
                );
            }
            service.request();
        }
    }
}

#[test]
fn a_decision_that_is_made_is_not_lost_while_its_review_is_followed() {
    let waiting = answer("review", "enforce", r#","review":{"id":"rev_1"}"#);
    let pending = r#"{"jti":"dec_1","verdict":"review","review":{"status":"pending"}}"#;
    let approved = r#"{"jti":"dec_1","verdict":"review","review":{"status":"approved","decision":"dec_2"}}"#;
    let fresh = r#"{"jti":"dec_2","verdict":"allow","mode":"enforce","verdict_token":"a.b.c"}"#;
    // Longer than a client waits: the look has failed.
    let busy = |status: &str| format!("{status}\r\nretry-after: 100");
    let (failing, limited) = (busy("503 Service Unavailable"), busy("429 Too Many Requests"));
    let wait = |service: &Service, more: &[&str]| {
        let mut command = service.agent(&ASK);
        command.args(["--wait", "--json", "--idempotency-key", "order-1"]).args(more);
        run_with_stdin(&mut command, b"")
    };
    let ok = "200 OK";
    let service = Service::new(&[
        (CREATED, &waiting),
        (&failing, ""),
        (ok, pending),
        (ok, approved),
        (&limited, ""),
        (ok, approved),
        (ok, fresh),
    ]);
    let ran = wait(&service, &[]).code(0).says("going on");
    assert_eq!(ran.out, format!("{fresh}\n"));
    assert_eq!(service.requests().len(), 7);

    let error = r#"{"error":{"code":"not_found","message":"no such decision","request_id":"req_7"}}"#;
    let nothing: &[&str] = &[];
    for (look, more, code) in
        [(("404 Not Found", error), nothing, 33), ((failing.as_str(), ""), &["--timeout", "0"], 36)]
    {
        let service = Service::new(&[(CREATED, &waiting), look]);
        let ran = wait(&service, more).code(code).says("mandate decision show dec_1");
        for (label, value) in [("decision", "dec_1"), ("review", "rev_1"), ("idempotency key", "order-1")] {
            assert!(ran.err.contains(&format!("  {label:<16}{value}\n")), "{label}: {ran:?}");
        }
        assert!(!ran.err.contains("repeat the command"), "{ran:?}");
        assert_eq!(service.requests().len(), 2);
    }
}

#[test]
fn a_verdict_that_is_not_known_is_never_taken_for_an_allow() {
    for body in [
        answer("allowed", "enforce", ""),
        answer("ALLOW", "enforce", ""),
        r#"{"verdict":"deny_limit","verdict":"allow","mode":"enforce","decision":"dec_1"}"#.to_owned(),
        r#"{"mode":"enforce","decision":"dec_1"}"#.to_owned(),
        r#"{"verdict":"allow","decision":"dec_1"}"#.to_owned(),
        r#"[{"verdict":"allow"}]"#.to_owned(),
    ] {
        let service = Service::new(&[(CREATED, &body)]);
        run_with_stdin(&mut service.agent(&ASK), b"").code(38).says("not understood");
        service.request();
    }
}

#[test]
fn bad_arguments_are_refused_before_anything_is_sent() {
    for (place, value, message) in [
        (1, "0", "amount must be greater than 0"),
        (1, "-5", "amount must be greater than 0; got `-5`"),
        (1, "40,50", "amount must be a number"),
        (1, "1e400", "at most 15 digits"),
        (2, "usd", "currency must be 3 to 8 characters"),
        (4, "acme", "recipient must be `vendor:`"),
        (6, "Software", "category must match"),
    ] {
        let mut args = ASK;
        args[place] = value;
        run_with_stdin(&mut mandate(&args), b"").code(2).says(message);
    }
    let mut command = mandate(&ASK);
    command.env("MANDATE_BASE_URL", "http://127.0.0.1:1/v1").env("MANDATE_AGENT_KEY", organization_key());
    run_with_stdin(&mut command, b"").code(32).says("this command needs the key of an agent");
}
