//! `completions` and `man`: what shells and people read about the command line, made from it.

use std::path::PathBuf;

use clap_complete::Shell;

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
  mandate-server completions bash > /usr/share/bash-completion/completions/mandate-server
  source <(mandate-server completions zsh)";

const MAN_HELP: &str = "\
Examples:
  mandate-server man --out /usr/local/share/man/man1";

impl Command {
    /// Writes what is asked for, of this command line.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn run(self, mut line: clap::Command) -> Result<(), Failure> {
        match self {
            Self::Completions { shell } => {
                let name = line.get_name().to_owned();
                clap_complete::generate(shell, &mut line, name, &mut std::io::stdout().lock());
                Ok(())
            }
            Self::Man { out } => {
                let unusable = |e| Failure::failed(format!("{} cannot be written: {e}", out.display()));
                std::fs::create_dir_all(&out)
                    .and_then(|()| clap_mangen::generate_to(line, &out))
                    .map_err(unusable)
            }
        }
    }
}
