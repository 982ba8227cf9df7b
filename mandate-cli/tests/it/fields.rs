//! `--json=FIELDS`: what can be named, and what is said of what cannot.

use crate::harness::{Ran, Service, mandate, organization_key, private_file, run};

#[test]
fn the_way_into_a_list_is_named_where_a_field_is_looked_for_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mandate.json").display().to_string();
    std::fs::write(&path, run(&["mandate", "template"]).code(0).out).unwrap();
    let lint = run(&["mandate", "lint", &path, "--json=findings.message"]).code(2);
    lint.says("`findings` is a list: --jq '.findings[]' reads what is in it");
    run(&["inspect", "e30.e30.AA", "--json=verified.x"])
        .code(2)
        .says("claims, header, signature_bytes, verified");
}

#[test]
fn the_example_of_fields_can_be_copied() {
    let options = run(&["help", "options"]).code(0).out;
    let example = options.split_whitespace().find(|word| word.starts_with("--json=")).unwrap();
    let list = r#"{"data":[{"jti":"dec_1","request":{"amount":40.50}}],"has_more":false}"#;
    let service = Service::new(&[("200 OK", list)]);
    let ran = service.organization(&["decision", "list", example]).output().unwrap();
    let shown = Ran::from(ran).code(0).json();
    assert_eq!(shown, serde_json::json!([{"jti": "dec_1", "request.amount": 40.50}]));
    service.request();
}

#[test]
fn a_profile_is_listed_with_its_issuer() {
    let folder = tempfile::tempdir().unwrap();
    let key = organization_key();
    let profile = serde_json::json!({
        "base_url": "http://127.0.0.1:9/v1", "issuer": "https://verdicts.example.com", "key": key
    });
    let kept = serde_json::json!({"current": "one", "profiles": {"one": profile, "two": profile}});
    private_file(&folder.path().join("profiles.json"), &kept.to_string());
    for (words, filter) in [(&["profile", "list"][..], ".[].issuer"), (&["switch", "two"], ".issuer")] {
        let mut command = mandate(&[words, &["--jq", filter]].concat());
        let ran = Ran::from(command.env("MANDATE_CONFIG_DIR", folder.path()).output().unwrap()).code(0);
        assert!(ran.out.lines().all(|line| line == "https://verdicts.example.com"), "{ran:?}");
        assert!(!ran.out.is_empty());
    }
}
