//! The keys of logs: shown, pinned, and refused when they change.

use super::*;

#[test]
fn a_pinned_key_is_used_and_never_replaced_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new();
    let (mut test, token) = (TestLog::at(&site), token_of(&site, 1));
    test.push(&decision(&token));
    test.publish(&site);
    test.publish_proof(&site, &token);
    let at = ["--issuer", site.address(), "--sandbox"];
    let key = |args: &[&str]| ran(log(folder.path(), &[&["key"], args].concat()));
    let shown = key(&[&["show"], &at[..], &["--json"]].concat()).code(0).json();
    assert_eq!(shown["key"], test.verifier());
    let print = shown["fingerprint"].as_str().unwrap().to_owned();
    assert_eq!(print.len(), 43);
    key(&[&["pin"], &at[..]].concat()).code(2).says("without a terminal");
    // One of 64 begins with a hyphen.
    for other in ["A", "-A"] {
        key(&[&["pin"], &at[..], &["--fingerprint", other]].concat()).code(23).says(&print);
    }
    key(&[&["pin"], &at[..], &["--trust-on-first-use"]].concat()).code(0).shows(&print);
    key(&[&["pin"], &at[..], &["--trust-on-first-use"]].concat()).code(0);
    key(&["list"]).code(0).shows(&print).shows(&site.log());
    let fetched = ran(log(folder.path(), &["proof", &token, "--issuer", site.address()])).code(0);
    assert_eq!(fetched.err, "");
    ran(log(folder.path(), &[&["checkpoint"], &at[..]].concat())).code(0).shows("entries      1");

    // Another key of the same name, a second origin, and another site's key.
    let mut other = test.clone();
    other.key = SigningKey::new(test.key.verifier().name(), KeyKind::Note, &[8; 32]).unwrap();
    other.publish(&site);
    for option in ["--trust-on-first-use", "--json"] {
        key(&[&["pin"], &at[..], &[option]].concat())
            .code(23)
            .says("another key than the one that is pinned");
    }
    ran(log(folder.path(), &[&["checkpoint"], &at[..]].concat())).code(51).says("(unsigned)");
    let mut second = test.clone();
    second.key =
        SigningKey::new(&format!("{}/2", test.key.verifier().name()), KeyKind::Note, &[9; 32]).unwrap();
    second.publish(&site);
    site.add("/log/sandbox/next", format!("{}\n", second.verifier()).into_bytes());
    key(&[&["pin"], &at[..], &["--trust-on-first-use"]].concat()).code(23).says("/log/sandbox/2");
    let print = key(&[&["show"], &at[..], &["--jq", ".fingerprint"]].concat()).code(0).out;
    key(&[&["pin"], &at[..], &["--fingerprint", print.trim()]].concat()).code(0);
    let strange = TestLog::new("other.example/log/sandbox");
    strange.publish(&site);
    key(&[&["pin"], &at[..], &["--trust-on-first-use"]].concat()).code(51).says("which is not the log at");
    key(&[&["unpin"], &at[..]].concat()).code(0);
    key(&[&["unpin"], &at[..]].concat()).code(33);
    site.add("/log/sandbox/key", b"no key\n".to_vec());
    key(&[&["show"], &at[..]].concat()).code(51).says("is refused");
    site.add("/log/sandbox/key", format!("{}\n", witness(1).verifier()).into_bytes());
    key(&[&["show"], &at[..]].concat()).code(51).says("it is a witness's");
    site.flood("/log/sandbox/key");
    key(&[&["show"], &at[..]].concat()).code(38).says("longer than");
    site.remove("/log/sandbox/key");
    key(&[&["show"], &at[..]].concat()).code(33);
}

/// Three logs, of which the first two have ended.
#[test]
fn the_key_of_each_log_can_be_shown() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new();
    let first = TestLog::at(&site);
    let origin = first.key.verifier().name().to_owned();
    let numbered = |number: u8| {
        let mut log = first.clone();
        let name = format!("{origin}/{number}");
        log.key = SigningKey::new(&name, KeyKind::Note, &[number; 32]).unwrap();
        log.push(&strange(1));
        log
    };
    let logs = [first.clone(), numbered(2), numbered(3)];
    for log in &logs {
        log.publish(&site);
    }
    let next = |log: &TestLog| format!("{}\n", log.verifier()).into_bytes();
    site.add("/log/sandbox/next", next(&logs[1]));
    site.add("/log/sandbox/2/next", next(&logs[2]));
    let show = |args: &[&str]| ran(log(folder.path(), &[&["key", "show", "--jq", ".key"], args].concat()));
    let base = site.log();
    let of = |shown: Ran, log: &TestLog| assert_eq!(shown.out.trim_end(), log.verifier());
    for (number, log) in ["1", "2", "3"].into_iter().zip(&logs) {
        let shown = show(&["--log", &base, "--number", number]).code(0);
        assert_eq!(shown.err.contains("has ended"), number != "3", "{number}");
        of(shown, log);
    }
    of(show(&["--log", &base]).code(0), &logs[2]);
    // An address with a number has that log.
    of(show(&["--log", &format!("{base}/2")]).code(0).says(&format!("goes on as {origin}/3")), &logs[1]);
    of(show(&["--log", &format!("{base}/3")]).code(0), &logs[2]);
    show(&["--log", &base, "--number", "4"]).code(33).says("has no key");
    show(&["--log", &base, "--number", "0"]).code(2);
    // So has a folder.
    let copy = folder.path().join("copy");
    logs[1].write(&copy);
    std::fs::write(copy.join("next"), next(&logs[2])).unwrap();
    let copy = copy.to_str().unwrap();
    of(show(&["--log", copy]).code(0), &logs[1]);
    show(&["--log", copy, "--number", "2"]).code(2).says("is a copy of one log");
}
