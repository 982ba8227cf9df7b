//! The trailer: that there is one, at the end, signed, and that it counts and hashes what stands before it.

use mandate_core::json::Object;
use mandate_core::{ExportId, Invalid};

use super::Finding;
use super::row::{Auditor, opened};
use crate::directory::hex;
use crate::export::Header;

/// Whether the trailer has passed, and what came after it.
#[derive(Debug, Default)]
pub(super) struct Trailer {
    at: Option<u64>,
    last: u64,
}

/// What a trailer says, once its signature holds, and the hash that the file has.
#[derive(Debug)]
pub(super) struct Sealed {
    said: Option<Said>,
    sha256: String,
}

#[derive(Debug)]
struct Said {
    export: ExportId,
    rows: i64,
    sha256: String,
}

impl Trailer {
    /// Takes note of a line.
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

    /// The end of the file.
    pub(super) fn end(&self, findings: &mut Vec<Finding>) {
        if self.at.is_none() {
            findings.push(Finding::new(self.last, None, "trailer", "the end of the file", "a trailer"));
        }
    }
}

impl Sealed {
    /// Opens a trailer.
    pub(super) fn open(
        line: u64,
        token: &str,
        before: Option<[u8; 32]>,
        auditor: &Auditor<'_>,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let said = opened(token, auditor.keys).and_then(|(sandbox, claims)| {
            let (issuer, said) = Said::read(&claims).map_err(|e| e.to_string())?;
            if !auditor.issuers.contains(&issuer) {
                return Err(format!("the issuer {issuer}"));
            }
            let environment = if sandbox { "sandbox" } else { "production" };
            match auditor.header {
                Some(header) if header.environment != environment => {
                    Err(format!("a key of the {environment}"))
                }
                _ => Ok(said),
            }
        });
        let said = said
            .map_err(|why| {
                findings.push(Finding::new(line, None, "trailer", why, "a trailer that the issuer signed"));
            })
            .ok();
        Self { said, sha256: before.map(|hash| hex(&hash)).unwrap_or_default() }
    }

    /// Compares what it says with what was read.
    pub(super) fn compare(
        &self,
        line: u64,
        header: Option<&Header>,
        decisions: u64,
        findings: &mut Vec<Finding>,
    ) {
        let Some(said) = &self.said else { return };
        if let Some(header) = header.filter(|header| header.id != said.export) {
            findings.push(Finding::new(
                line,
                Some(&said.export),
                "trailer",
                "the trailer of this export",
                header.id,
            ));
        }
        if i64::try_from(decisions) != Ok(said.rows) {
            findings.push(Finding::new(line, None, "rows", format!("{decisions} decisions"), said.rows));
        }
        if self.sha256 != said.sha256 {
            findings.push(Finding::new(line, None, "sha256", &self.sha256, &said.sha256));
        }
    }
}

impl Said {
    fn read(claims: &[u8]) -> Result<(String, Self), Invalid> {
        let mut claims = Object::parse_as("trailer", claims)?;
        let issuer = claims.require("iss")?.string()?.into_owned();
        Ok((
            issuer,
            Self {
                export: ExportId::parse(&claims.require("export")?.string()?)?,
                rows: claims.require("rows")?.integer()?,
                sha256: claims.require("sha256")?.string()?.into_owned(),
            },
        ))
    }
}
