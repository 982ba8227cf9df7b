//! The watch key of an environment, which finds the environment's entries among all others.

use std::path::Path;

use mandate_core::log::WatchKey;

use crate::exit::{Exit, Failure};
use crate::input::{Source, without_line_break};

/// The longest file of a watch key.
const MAX_BYTES: usize = 128;

/// Reads the file that `mandate-server log watch-key` printed.
pub(crate) fn read(path: &Path) -> Result<WatchKey, Failure> {
    let source = Source::File(path.to_owned());
    let text = source.read_secret("the watch key", MAX_BYTES, Exit::Usage)?;
    WatchKey::parse(without_line_break(&text)).map_err(|e| {
        Failure::new(Exit::Usage, format!("{source} holds no watch key: {e}"))
            .next("ask the operator for the output of mandate-server log watch-key")
    })
}
