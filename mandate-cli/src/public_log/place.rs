//! Where a log is: below its issuer's address, at another address, or in a folder of files.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use mandate_core::EnvironmentKind;

use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::http::Address;
use crate::key_set::in_use;

/// What an address has, and a folder's name does not.
const SCHEME: &str = "://";

/// The options that name a log.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Public log")]
pub(crate) struct LogArgs {
    /// The issuer, below whose address the log is [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,
    /// The log of the sandbox instead of production's; a token says which by itself
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// The log's address, or the folder that `mandate-server log export` has written [default: {issuer}/log/production]
    #[arg(long, value_name = "URL|FOLDER")]
    pub(crate) log: Option<String>,
}

/// Where a log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Url(Address),
    Folder(PathBuf),
}

impl LogArgs {
    /// Where the log is. `kind` is what a token says of itself.
    pub(crate) fn place(&self, kind: Option<EnvironmentKind>, global: &Global) -> Result<Place, Failure> {
        if let Some(named) = &self.log {
            return Place::read(named);
        }
        let issuer = in_use(self.issuer.as_deref(), global)?.ok_or_else(|| {
            Failure::new(Exit::Usage, "the log is not known")
                .next("pass --issuer URL, or the log's address with --log URL")
        })?;
        Place::read(&format!("{}/log/{}", issuer.trim_end_matches('/'), self.kind(kind)))
    }

    fn kind(&self, kind: Option<EnvironmentKind>) -> EnvironmentKind {
        let named = if self.sandbox { EnvironmentKind::Sandbox } else { EnvironmentKind::Production };
        kind.unwrap_or(named)
    }
}

impl Place {
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        if !text.contains(SCHEME) {
            return Ok(Self::Folder(text.into()));
        }
        text.parse()
            .map(Self::Url)
            .map_err(|why| Failure::new(Exit::Usage, format!("the log is not read from `{text}`: {why}")))
    }

    /// Where the log of this origin is: from the second on, a log is below the first one's address, under its number.
    pub(crate) fn of_origin(&self, origin: &str) -> Result<Self, Failure> {
        let Self::Url(address) = self else { return Ok(self.clone()) };
        let address = address.as_str().trim_end_matches('/');
        let bare = address.split_once(SCHEME).map_or(address, |(_, bare)| bare);
        match origin.strip_prefix(bare) {
            Some(number) if self.may_have(origin) => Self::read(&format!("{address}{number}")),
            _ => Ok(self.clone()),
        }
    }

    /// Where the log of the origin `other` is, beside the one of the origin `own` that is here: the first one's place has the
    /// others below it, under their numbers. None: nothing says where it is.
    pub(crate) fn beside(&self, own: &str, other: &str) -> Option<Self> {
        let ((base, own), (other_base, other)) = (number_of(own), number_of(other));
        if base != other_base {
            return None;
        }
        let first = match (self, own) {
            (_, 1) => self.clone(),
            (Self::Folder(folder), own) => {
                let is_numbered = folder.file_name().is_some_and(|name| name == own.to_string().as_str());
                Self::Folder(folder.parent().filter(|_| is_numbered)?.to_owned())
            }
            (Self::Url(address), own) => {
                let address = address.as_str().trim_end_matches('/');
                Self::read(address.strip_suffix(&format!("/{own}"))?).ok()?
            }
        };
        match (first, other) {
            (first, 1) => Some(first),
            (Self::Folder(folder), other) => Some(Self::Folder(folder.join(other.to_string()))),
            (first, other) => first.numbered(u64::from(other)).ok(),
        }
    }

    /// Where the log with this number is, of those that have followed one another here.
    pub(crate) fn numbered(&self, number: u64) -> Result<Self, Failure> {
        match self {
            Self::Url(_) if number == 1 => Ok(self.clone()),
            Self::Url(address) => Self::read(&format!("{}/{number}", address.as_str().trim_end_matches('/'))),
            Self::Folder(folder) => Err(Failure::new(
                Exit::Usage,
                format!("{} is a copy of one log, which has no others by number", folder.display()),
            )
            .next("leave --number out, or pass the log's address with --log URL")),
        }
    }

    /// Whether the log of this origin is below this place.
    pub(crate) fn leads_to(&self, origin: &str) -> bool {
        matches!(self, Self::Url(_)) && self.may_have(origin)
    }

    /// Whether a log at this place may have this origin: the address without its scheme, with a number behind it from the
    /// second origin on. A folder can be a copy of any log.
    pub(crate) fn may_have(&self, origin: &str) -> bool {
        let Self::Url(address) = self else { return true };
        is_origin_below(origin, address.as_str())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(address) => address.fmt(f),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

/// Whether `origin` is one that a log at this address has.
pub(crate) fn is_origin_below(origin: &str, address: &str) -> bool {
    let bare = address.split_once(SCHEME).map_or(address, |(_, bare)| bare).trim_end_matches('/');
    match origin.strip_prefix(bare) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('/').is_some_and(|number| later_number(number).is_some()),
        None => false,
    }
}

/// The number of a log from the second on, in its one spelling.
fn later_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| *number >= 2 && number.to_string() == text)
}

/// The origin of the first log of those that follow one another, and which of them this origin is.
fn number_of(origin: &str) -> (&str, u32) {
    let parts = origin.rsplit_once('/').and_then(|(base, number)| Some((base, later_number(number)?)));
    parts.unwrap_or((origin, 1))
}

/// The kind of environments whose log has this origin. None: it is not below an issuer's address.
pub(crate) fn kind_of(origin: &str) -> Option<EnvironmentKind> {
    EnvironmentKind::ALL.into_iter().find(|kind| {
        let issuer = origin.rsplit_once(&format!("/log/{kind}")).map(|(issuer, _)| issuer);
        issuer.is_some_and(|issuer| is_origin_of(origin, issuer, *kind))
    })
}

/// Whether `origin` is one of the issuer's logs of this kind.
pub(crate) fn is_origin_of(origin: &str, issuer: &str, kind: EnvironmentKind) -> bool {
    is_origin_below(origin, &format!("{}/log/{kind}", issuer.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_follow_from_the_address() {
        let address = "https://verdicts.example/log/production";
        for origin in ["verdicts.example/log/production", "verdicts.example/log/production/2"] {
            assert!(is_origin_below(origin, address), "{origin}");
        }
        for origin in [
            "verdicts.example/log/sandbox",
            "verdicts.example/log/production/",
            "verdicts.example/log/production/1",
            "verdicts.example/log/production/02",
            "verdicts.example/log/production/+2",
            "verdicts.example/log/production2",
            "https://verdicts.example/log/production",
            "other.example/log/production",
        ] {
            assert!(!is_origin_below(origin, address), "{origin}");
        }
        let place = Place::read(address).unwrap();
        let of = |origin| place.of_origin(origin).unwrap().to_string();
        assert_eq!(of("verdicts.example/log/production/2"), format!("{address}/2"));
        assert_eq!(of("verdicts.example/log/production"), address);
        assert_eq!(of("other.example/log/production/2"), address);
        let kinds =
            ["v.example/log/sandbox/7", "v.example/log/production", "v.example/log/other"].map(kind_of);
        assert_eq!(kinds, [Some(EnvironmentKind::Sandbox), Some(EnvironmentKind::Production), None]);
        assert!(is_origin_of("v.example/log/sandbox/7", "https://v.example/", EnvironmentKind::Sandbox));
    }

    #[test]
    fn logs_that_follow_one_another_are_beside_each_other() {
        let [first, second, third] =
            ["v.example/log/sandbox", "v.example/log/sandbox/2", "v.example/log/sandbox/3"];
        let beside = |place: &str, own, other| {
            Place::read(place).unwrap().beside(own, other).map(|place| place.to_string())
        };
        for base in ["https://v.example/log/sandbox", "https://mirror.example/x", "/srv/log"] {
            let [two, three] = ["2", "3"].map(|number| format!("{base}/{number}"));
            assert_eq!(beside(base, first, third), Some(three.clone()));
            assert_eq!(beside(&three, third, second), Some(two.clone()));
            assert_eq!(beside(&two, second, first), Some(base.to_owned()));
            assert_eq!(beside(&two, second, "other.example/log/sandbox"), None);
            // The place of the second one does not say that it is.
            assert_eq!(beside(base, second, first), None);
        }
    }
}
