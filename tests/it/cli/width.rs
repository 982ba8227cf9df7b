//! Commands that people copy fit a terminal of 80 columns: longer ones are broken with a backslash.

use super::page::text;

/// The pages whose commands are copied.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/agents.md",
    "docs/cli.md",
    "docs/mandates-as-code.md",
    "docs/proof.md",
    "docs/verify.md",
    "examples/README.md",
];
const COLUMNS: usize = 80;
/// The languages of blocks in which commands are. In a text, they are its examples.
const SHELL: [&str; 4] = ["", "console", "sh", "text"];

/// The lines of commands in a page: in a block with prompts, those with one; and what a backslash continues.
fn commands(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, body) = block.split_once('\n').unwrap_or_default();
        let body = match language {
            "text" => body.split_once("Examples:\n").map_or("", |(_, rest)| rest),
            _ if SHELL.contains(&language) => body,
            _ => "",
        };
        let examples = body.split("\n\n").next().unwrap_or_default();
        let body = if language == "text" { examples } else { body };
        let has_prompts = body.lines().any(|line| line.starts_with("$ "));
        let mut is_continued = false;
        for line in body.lines() {
            if is_continued || !has_prompts || line.starts_with("$ ") {
                found.push(line);
                is_continued = line.ends_with('\\');
            }
        }
    }
    found
}

#[test]
fn commands_to_copy_fit_80_columns() {
    let mut count = 0;
    for name in PAGES {
        let page = text(name);
        let commands = commands(&page);
        count += commands.len();
        let long: Vec<_> = commands.into_iter().filter(|line| line.chars().count() > COLUMNS).collect();
        assert!(long.is_empty(), "{name}:\n{}", long.join("\n"));
    }
    assert!(count > 200, "{count}");
}
