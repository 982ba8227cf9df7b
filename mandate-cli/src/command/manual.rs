//! `completions` and `man`: shell completions and manual pages, generated from the command line.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::builder::Resettable;
use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// The variable with which a shell asks for completions.
pub(crate) const COMPLETING: &str = "MANDATE_COMPLETE";

/// What is made from the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Manual {
    /// Print shell completions
    ///
    /// The shell then asks this program: ids are completed, too, from the newest that the profile in use sees.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one per command
    #[command(after_help = "\
Examples:
  mandate man --out ~/.local/share/man/man1")]
    Man {
        /// The output directory
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  mandate completions bash > ~/.local/share/bash-completion/completions/mandate
  source <(mandate completions zsh)";

/// Writes the completions or pages of the command line `line`.
pub(super) fn run(manual: &Manual, line: Command, output: &mut Output) -> Result<Exit, Failure> {
    match manual {
        Manual::Completions { shell } => {
            let mut text = Vec::new();
            let shells = Shells::builtins();
            if let Some(completer) = shells.completer(&shell.to_string()) {
                completer
                    .write_registration(COMPLETING, "mandate", "mandate", "mandate", &mut text)
                    .map_err(|e| Failure::new(Exit::Io, format!("the completions cannot be written: {e}")))?;
            }
            output.text(&String::from_utf8_lossy(&text));
        }
        Manual::Man { out } => {
            let unusable = |e| Failure::new(Exit::Io, format!("{} cannot be written: {e}", out.display()));
            fs::create_dir_all(out)
                .and_then(|()| {
                    let mut line = line.disable_help_subcommand(true);
                    line.build();
                    write_pages(&line, out)
                })
                .map_err(unusable)?;
        }
    }
    Ok(Exit::Success)
}

/// Writes the page of `command`, and those of its subcommands that are not hidden.
fn write_pages(command: &Command, out: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, out)?;
    }
    let (name, text) = page(command)?;
    fs::write(out.join(name), text)
}

/// The file name and text of a command's page. The text after the options is written here: the renderer would
/// join its lines, and its hyphens could not be copied.
fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let behind = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone().after_help(Resettable::Reset));
    let mut text = Vec::new();
    man.render(&mut text)?;
    text.extend_from_slice(sections(&behind).as_bytes());
    Ok((man.get_filename(), text))
}

/// Examples and exit codes, line by line, and the notes around them, in roff.
fn sections(help: &str) -> String {
    let mut text = String::new();
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (heading, body) =
            match (paragraph.strip_prefix("Examples:"), paragraph.strip_prefix("Exit codes:")) {
                (Some(body), _) => ("EXAMPLES", body.lines().map(literal).collect::<Vec<_>>()),
                // In the help, several codes share a line.
                (_, Some(body)) => (
                    "EXIT CODES",
                    body.lines()
                        .flat_map(|line| line.trim().split("    "))
                        .map(|code| literal(code.trim()))
                        .collect(),
                ),
                _ => {
                    text.push_str(".SH NOTES\n");
                    paragraph.lines().for_each(|line| text.extend([literal(line), "\n".to_owned()]));
                    continue;
                }
            };
        text.extend([".SH \"", heading, "\"\n.nf\n"]);
        body.iter().filter(|line| !line.is_empty()).for_each(|line| text.extend([line, "\n"]));
        text.push_str(".fi\n");
    }
    text
}

/// A line of text in roff, shown character by character, without the help's indentation of two spaces.
fn literal(line: &str) -> String {
    let mut text = String::new();
    let line = line.strip_prefix("  ").unwrap_or(line).trim_end();
    // A roff request begins like that.
    if line.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    for character in line.chars() {
        match character {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            '`' => text.push_str("\\(ga"),
            '^' => text.push_str("\\(ha"),
            '~' => text.push_str("\\(ti"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory as _;

    #[test]
    fn examples_are_shown_line_by_line_with_their_hyphens() {
        let help = "Examples:\n  mandate a --b 'c' \\\n    ~/d\n  .e\n\n--b is `for` x.\n\nExit codes:\n  0 good    2 bad\n  3 no file";
        assert_eq!(
            sections(help),
            ".SH \"EXAMPLES\"\n.nf\nmandate a \\-\\-b \\(aqc\\(aq \\e\n  \\(ti/d\n\\&.e\n.fi\n\
             .SH NOTES\n\\-\\-b is \\(gafor\\(ga x.\n\
             .SH \"EXIT CODES\"\n.nf\n0 good\n2 bad\n3 no file\n.fi\n"
        );
        assert_eq!(literal("'tis"), "\\&\\(aqtis");
        assert_eq!(sections("Exit codes: 0 good    1 bad"), ".SH \"EXIT CODES\"\n.nf\n0 good\n1 bad\n.fi\n");
    }

    #[test]
    fn a_page_has_its_examples_in_a_section_of_their_own() {
        let mut line = Args::command().disable_help_subcommand(true);
        line.build();
        let doctor = line.find_subcommand("doctor").unwrap();
        let (name, text) = page(doctor).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(name, "mandate-doctor.1");
        assert!(
            text.contains(".SH \"EXAMPLES\"\n.nf\nmandate doctor\nmandate doctor \\-\\-issuer https://"),
            "{text}"
        );
        assert!(
            text.contains(".SH \"EXIT CODES\"\n.nf\n0 nothing failed\n25 a check failed\n2 usage\n.fi\n"),
            "{text}"
        );
        assert!(text.contains(".SH DESCRIPTION") && !text.contains(".SH EXTRA"), "{text}");
    }
}
