//! `completions` and `man`: what shells and people read about the command line, made from it.

use std::path::PathBuf;

use clap::{CommandFactory as _, Subcommand};
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// What is made from the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Manual {
    /// Print the completions for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    #[command(after_help = "\
Examples:
  mandate man --out ~/.local/share/man/man1")]
    Man {
        /// The directory that they are written to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

const COMPLETIONS_HELP: &str = "\
Examples:
  mandate completions bash > ~/.local/share/bash-completion/completions/mandate
  source <(mandate completions zsh)";

/// Writes what is asked for.
pub(super) fn run(manual: &Manual, output: &mut Output) -> Result<Exit, Failure> {
    let mut line = Args::command();
    match manual {
        Manual::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut line, "mandate", &mut text);
            output.text(&String::from_utf8_lossy(&text));
        }
        Manual::Man { out } => {
            let unusable = |e| Failure::new(Exit::Io, format!("{} cannot be written: {e}", out.display()));
            std::fs::create_dir_all(out)
                .and_then(|()| clap_mangen::generate_to(line, out))
                .map_err(unusable)?;
        }
    }
    Ok(Exit::Success)
}
