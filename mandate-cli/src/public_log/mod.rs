//! The public log as a reader has it: where it is, which key it is trusted by, and reads that are checked against a signed
//! checkpoint. No byte of a tile is relied on before the hashes lead to a verified root.

pub(crate) mod entries;
pub(crate) mod evidence;
pub(crate) mod older;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod proof;
pub(crate) mod source;
pub(crate) mod trust;
pub(crate) mod watch_key;

use std::fmt;

use crate::exit::{Exit, Failure};

/// A refusal by the log's own rules: the name of the check, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The name of the check, as in the core.
    pub(crate) check: &'static str,
    why: String,
}

impl Refused {
    #[expect(clippy::needless_pass_by_value, reason = "so that texts are formatted where they are needed")]
    pub(crate) fn new(check: &'static str, why: impl ToString) -> Self {
        Self { check, why: why.to_string() }
    }

    /// The same as the end of a command.
    pub(crate) fn of(&self, what: &str) -> Failure {
        Failure::new(Exit::NotProved, format!("{what} is refused ({}): {}", self.check, self.why))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
