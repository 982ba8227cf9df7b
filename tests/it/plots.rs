//! The plots below docs/ show the figures of the tables that they were made from.

#[path = "../../examples/bench/src/plot.rs"]
mod plot;

use std::path::Path;

use self::plot::{PLOTS, renew};

/// With `MANDATE_WRITE_DOCS=1` the plots are drawn again instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "the person who starts the tests says whether to write")]
fn the_plots_show_the_figures_of_the_tables() {
    let write = std::env::var("MANDATE_WRITE_DOCS").is_ok_and(|value| value == "1");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for plot in &PLOTS {
        if write {
            renew(root, plot.document, plot.marks).unwrap();
        }
        let page = std::fs::read_to_string(root.join(plot.document)).unwrap();
        let kept = std::fs::read_to_string(root.join(plot.path())).unwrap();
        let drawn = plot.draw(&page).unwrap();
        assert!(
            kept == drawn,
            "{} differs from its table: run this test with MANDATE_WRITE_DOCS=1",
            plot.path()
        );
    }
}
