//! The commands that a page shows, and what it says that they print.

use std::path::PathBuf;

/// A command of a page, and what the page says that it prints.
#[derive(Debug)]
pub(super) struct Example {
    pub(super) section: String,
    pub(super) command: String,
    pub(super) printed: Vec<String>,
}

/// A page of this project, by its path.
pub(super) fn text(path: &str) -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path);
    std::fs::read_to_string(page).unwrap()
}

/// The commands in the console blocks of a page, in its order.
pub(super) fn examples(page: &str) -> Vec<Example> {
    let (mut section, mut indent) = (String::new(), None);
    let mut found: Vec<Example> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let (within, text) = (line.trim_start(), line.get(indent.unwrap_or(0)..).unwrap_or_default());
        match within {
            "```console" => indent = Some(line.len() - within.len()),
            "```" => indent = None,
            _ if line.starts_with("## ") => line[3..].clone_into(&mut section),
            _ if indent.is_none() => {}
            _ => match text.strip_prefix("$ ") {
                Some(first) => {
                    let mut command = first.to_owned();
                    let heredoc = first.ends_with("<<'END'");
                    while command.ends_with('\\') || (heredoc && !command.ends_with("\nEND")) {
                        command = command + "\n" + lines.next().unwrap();
                    }
                    found.push(Example { section: section.clone(), command, printed: Vec::new() });
                }
                None => found.last_mut().unwrap().printed.push(text.to_owned()),
            },
        }
    }
    found
}

/// What a line of a page says that a line begins with, whatever ids and moments are.
pub(super) fn begins(line: &str) -> String {
    match line.split([' ', ':', ',']).next().unwrap_or_default() {
        // A moment.
        word if word.starts_with("2026-03-01T") => "20".to_owned(),
        id if id.contains("_01kjmr9s") => id.split('_').next().unwrap().to_owned(),
        word => word.to_owned(),
    }
}
