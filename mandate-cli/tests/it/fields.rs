//! `--json=FIELDS`: what can be named, and what is said of what cannot.

use crate::harness::run;

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
