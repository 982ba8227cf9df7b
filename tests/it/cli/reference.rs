//! `docs/cli.md` is what the command says of itself.

use std::path::Path;

use crate::harness::{Ran, mandate};

/// With `MANDATE_WRITE_DOCS=1` the file is written instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "the caller of the tests decides whether to write")]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/cli.md");
    let printed = Ran::from(mandate(&["reference"]).output().unwrap()).code(0).out;
    assert!(printed.contains("### `mandate decision tail`") && !printed.contains("{commands}"));
    if std::env::var("MANDATE_WRITE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::write(path, printed).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(
        kept == printed,
        "docs/cli.md differs from the commands: run this test with MANDATE_WRITE_DOCS=1"
    );
}
