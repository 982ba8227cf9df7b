//! `completions` and `man`: shell completions and manual pages, generated from the command line.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap_complete::Shell;
use clap_mangen::Man;

use super::Failure;

/// What is made from the command line.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Print the completions for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    #[command(after_help = MAN_HELP)]
    Man {
        /// The directory that they are written to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  mandate-server completions bash \\
      > /usr/share/bash-completion/completions/mandate-server
  source <(mandate-server completions zsh)";

const MAN_HELP: &str = "\
Examples:
  mandate-server man --out /usr/local/share/man/man1";

impl Command {
    /// Writes the completions or pages of this command line.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn run(self, mut line: clap::Command) -> Result<(), Failure> {
        match self {
            Self::Completions { shell } => {
                let name = line.get_name().to_owned();
                clap_complete::generate(shell, &mut line, name, &mut std::io::stdout().lock());
                Ok(())
            }
            Self::Man { out } => {
                let unusable = |e| Failure::failed(format!("{} cannot be written: {e}", out.display()));
                let mut line = line.disable_help_subcommand(true);
                line.build();
                fs::create_dir_all(&out).and_then(|()| write_pages(&line, &out)).map_err(unusable)
            }
        }
    }
}

/// Writes the page of `command`, and those of its subcommands that are not hidden.
fn write_pages(command: &clap::Command, out: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, out)?;
    }
    let (name, text) = page(command)?;
    fs::write(out.join(name), text)
}

/// The file name and text of a command's page. The examples have a section of their own, whose lines are not
/// joined.
fn page(command: &clap::Command) -> io::Result<(String, String)> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n");
    Ok((man.get_filename(), text))
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;

    #[test]
    fn a_page_shows_its_examples_line_by_line() {
        let line = Command::augment_subcommands(clap::Command::new("mandate-server"));
        let mut line = line.disable_help_subcommand(true);
        line.build();
        let (name, text) = page(line.find_subcommand("completions").unwrap()).unwrap();
        assert_eq!(name, "mandate-server-completions.1");
        let examples = ".SH EXAMPLES\n.nf\n  mandate\\-server completions bash ";
        assert!(text.contains(examples) && !text.contains(".SH EXTRA"), "{text}");
    }
}
