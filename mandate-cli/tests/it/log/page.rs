//! The commands of docs/proof.md are commands of this program, with options that it has.

use super::*;

/// The commands in the page, each in one line.
fn commands(page: &str) -> Vec<String> {
    let page = page.replace("\\\n", " ");
    let lines = page.lines().filter_map(|line| line.trim_start().strip_prefix("$ mandate "));
    lines.map(str::to_owned).collect()
}

/// The words of a command as a shell would give them, for a service that is not there.
fn words(command: &str) -> Vec<String> {
    let command = command.split(" > ").next().unwrap();
    let command = command
        .replace("\"$(mandate export create --jq .export)\"", "exp_01hf7yat000000000000000007")
        .replace("\"$TOKEN\"", "a.b.c")
        .replace("https://verdicts.example.com", "http://127.0.0.1:1");
    command.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_pages_commands_are_understood() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/proof.md");
    let commands = commands(&std::fs::read_to_string(page).unwrap());
    assert!(commands.len() > 10, "{commands:#?}");
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &str| {
        let words = words(command);
        let mut run = mandate(&words.iter().map(String::as_str).collect::<Vec<_>>());
        run.current_dir(folder.path()).env("MANDATE_CONFIG_DIR", folder.path());
        ran(run)
    };
    // Clap has a usage for what it does not understand; a command of ours that ends has none.
    for command in &commands {
        let ended = run(command);
        assert!(!ended.err.contains("Usage:"), "{command}: {ended:?}");
    }
    assert!(run("log proof \"$TOKEN\" --no-such-option").err.contains("Usage:"));
}
