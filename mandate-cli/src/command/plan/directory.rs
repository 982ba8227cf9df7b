//! A directory of mandates: one JSON file for each agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mandate_core::json::Object;
use mandate_core::{AgentId, Terms};

use crate::command::mandate::MAX_BODY_BYTES;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::mistake::{self, Located};

/// A mandate in a file.
#[derive(Debug, Clone)]
pub(super) struct Written {
    /// The file's name within the directory.
    pub(super) file: String,
    pub(super) terms: Terms,
}

/// Why a file is refused.
struct Refused {
    why: String,
    /// The lines that show the place.
    excerpt: Option<String>,
}

impl From<&str> for Refused {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), excerpt: None }
    }
}

/// Reads each `*.json` of the directory, which holds one mandate. Folders in it are not entered. What is a mandate by its name and
/// cannot be read is refused: its agent would count as one without a file.
pub(super) fn read(directory: &Path) -> Result<BTreeMap<AgentId, Written>, Failure> {
    let mut written = BTreeMap::new();
    let (mut refused, mut excerpts) = (Vec::new(), String::new());
    for path in files(directory)? {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_one(&path) {
            Ok(None) => {}
            Err(Refused { why, excerpt }) => {
                refused.push(format!("{file}: {why}"));
                excerpts.extend(excerpt);
            }
            Ok(Some(terms)) => {
                let agent = terms.agent.clone();
                if let Some(Written { file: other, .. }) = written.get(&agent) {
                    refused.push(format!("{file}: {agent} has a mandate in {other} already"));
                } else {
                    written.insert(agent, Written { file, terms });
                }
            }
        }
    }
    if refused.is_empty() {
        return Ok(written);
    }
    let (number, directory) = (refused.len(), directory.display());
    let what = match number {
        1 => format!("1 file in {directory} is refused"),
        _ => format!("{number} files in {directory} are refused"),
    };
    let failure = Failure::new(Exit::InvalidRequest, what).excerpt(excerpts);
    let failure = refused.iter().fold(failure, |failure, why| failure.note("refused", why));
    Err(failure.next("mandate mandate lint FILE shows every problem of a file at once"))
}

/// Reads the mandate in a file. None if it holds none by its name.
fn read_one(path: &Path) -> Result<Option<Terms>, Refused> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if ["yaml", "yml"].iter().any(|yaml| ending.eq_ignore_ascii_case(yaml)) {
        return Err("this is YAML by its name; a mandate is JSON, in a file *.json".into());
    }
    if !ending.eq_ignore_ascii_case("json") {
        return Ok(None);
    }
    if !path.is_file() {
        return Err(
            "this is no file that can be read; a mandate is in a regular file, or a link to one".into()
        );
    }
    let source = Source::File(path.to_owned());
    let text = source.read("the mandate", MAX_BODY_BYTES, Exit::InvalidRequest);
    let text = text.map_err(|failure| Refused::from(failure.message()))?;
    Object::parse_as("mandate", text.as_bytes()).and_then(Terms::read).map(Some).map_err(|why| {
        let Located { message, excerpt, meant, next } = mistake::located(&source, &text, &why);
        let meant = meant.map(|name| format!("; did you mean {name}?"));
        let advice = meant.or_else(|| next.map(|next| format!("; {next}"))).unwrap_or_default();
        Refused { why: format!("{message}{advice}"), excerpt }
    })
}

/// What is in the directory, by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e: std::io::Error| {
        Failure::new(Exit::Io, format!("the directory {} cannot be read: {e}", directory.display()))
            .next("name the folder that holds the mandates, a file *.json for each agent")
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    Ok(files)
}
