//! Finds the API key: in a file that was named, or in the environment. Never on the command line.

use std::path::Path;

use mandate_core::api_key::{ApiKey, KeyClass};

use crate::environment;
use crate::exit::{Exit, Failure};
use crate::input::{Source, without_line_break};
use crate::output::{printable, warn};

/// The longest key file, in bytes: more than any key with its line break.
const MAX_KEY_FILE_BYTES: usize = 256;

/// The names of the two variables that may hold a key of `class`, and the path of a file with one.
fn variables(class: KeyClass) -> (&'static str, &'static str) {
    match class {
        KeyClass::Organization => ("MANDATE_ORGANIZATION_KEY", "MANDATE_ORGANIZATION_KEY_FILE"),
        KeyClass::Agent => ("MANDATE_AGENT_KEY", "MANDATE_AGENT_KEY_FILE"),
    }
}

/// The key of `class`: from `key_file` if one was given, otherwise from the environment.
pub(crate) fn find(key_file: Option<&Source>, class: KeyClass) -> Result<ApiKey, Failure> {
    if let Some(source) = key_file {
        return read(source, class);
    }
    let (direct, file) = variables(class);
    match (environment::variable(direct)?, environment::variable(file)?) {
        (Some(_), Some(_)) => {
            Err(Failure::new(Exit::Usage, format!("{direct} and {file} are both set"))
                .next("unset one of them"))
        }
        (Some(text), None) => parse(without_line_break(&text), direct, class),
        (None, Some(path)) => read(&Source::File(Path::new(path.as_str()).to_owned()), class),
        (None, None) => {
            let article = if class == KeyClass::Agent { "an agent key" } else { "an organization key" };
            Err(Failure::new(Exit::Unauthorized, format!("this command needs {article}, and there is none"))
                .next(format!("set {direct} or {file}, or pass --key-file FILE (- for standard input)")))
        }
    }
}

fn read(source: &Source, class: KeyClass) -> Result<ApiKey, Failure> {
    let text = source.read("the API key", MAX_KEY_FILE_BYTES, Exit::Unauthorized)?;
    if let Source::File(path) = source {
        warn_if_exposed(path);
    }
    parse(without_line_break(&text), &source.to_string(), class)
}

fn parse(text: &str, place: &str, class: KeyClass) -> Result<ApiKey, Failure> {
    let key = ApiKey::parse(text).map_err(|e| {
        Failure::new(Exit::Unauthorized, format!("the API key is refused: {e}"))
            .note("read from", place)
            .note("sent", "nothing")
    })?;
    if key.class() == class {
        return Ok(key);
    }
    Err(Failure::new(
        Exit::Forbidden,
        format!("this command needs the key of an {class}; this is one of an {}", key.class()),
    )
    .note("read from", place)
    .note("sent", "nothing"))
}

/// Warns of a key that other users of the machine can read.
#[cfg(unix)]
fn warn_if_exposed(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    /// Read, write and execute for group and others.
    const OTHERS: u32 = 0o077;
    let mode = std::fs::metadata(path).map_or(0, |m| m.permissions().mode());
    if mode & OTHERS != 0 {
        let path = path.display().to_string();
        let path = printable(&path);
        warn(format!(
            "the key file {path} is open to other users (mode {:03o}); chmod 600 {path}",
            mode & 0o777
        ));
    }
}

#[cfg(not(unix))]
fn warn_if_exposed(_: &Path) {}
