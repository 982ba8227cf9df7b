//! Checks the trailer: that it is there, at the end, signed, and that it matches the lines before it.

use mandate_core::export::{Difference, Trailer as Signed};

use super::Finding;
use super::auditor::Auditor;
use crate::export::Header;

/// Whether the trailer was read, and what came after it.
#[derive(Debug, Default)]
pub(super) struct Trailer {
    at: Option<u64>,
    last: u64,
}

/// The claims of a verified trailer, and the hash of the file.
#[derive(Debug)]
pub(super) struct Sealed {
    said: Option<Signed>,
    sha256: String,
}

impl Trailer {
    /// Notes a line.
    pub(super) fn passed(&mut self, line: u64, is_trailer: bool, findings: &mut Vec<Finding>) {
        self.last = line;
        if let Some(at) = self.at {
            findings.push(Finding::new(
                line,
                None,
                "trailer",
                format!("a line after that of line {at}"),
                "the end",
            ));
        }
        if is_trailer {
            self.at.get_or_insert(line);
        }
    }

    /// Reports a missing trailer at the end of the file.
    pub(super) fn end(&self, findings: &mut Vec<Finding>) {
        if self.at.is_none() {
            findings.push(Finding::new(self.last, None, "trailer", "the end of the file", "a trailer"));
        }
    }
}

impl Sealed {
    /// Verifies a trailer.
    pub(super) fn open(
        line: u64,
        token: &str,
        before: Option<&str>,
        auditor: &Auditor<'_>,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let opened = Signed::verify(token, auditor.keys, auditor.issuers).map_err(|e| e.to_string());
        let opened = opened.and_then(|(said, kind)| match auditor.header {
            Some(header) if header.environment != kind.as_str() => Err(format!("a key of the {kind}")),
            _ => Ok(said),
        });
        let said = opened.map_err(|why| {
            findings.push(Finding::new(line, None, "trailer", why, "a trailer that the issuer signed"));
        });
        Self { said: said.ok(), sha256: before.unwrap_or_default().to_owned() }
    }

    /// Compares its claims with the file.
    pub(super) fn compare(
        &self,
        line: u64,
        header: Option<&Header>,
        decisions: u64,
        findings: &mut Vec<Finding>,
    ) {
        let Some(signed) = &self.said else { return };
        for difference in signed.differences(header.map(|header| header.id), decisions, &self.sha256) {
            findings.push(match &difference {
                Difference::Export { said, found } => {
                    Finding::new(line, Some(said), "trailer", "the trailer of this export", found)
                }
                Difference::Rows { said, found } => {
                    Finding::new(line, None, "rows", format!("{found} decisions"), said)
                }
                Difference::Sha256 { said, found } => Finding::new(line, None, "sha256", found, said),
                other => Finding::new(line, None, "trailer", other, "what the file has"),
            });
        }
    }
}
