//! `mandate mcp`: the agent's own operations as tools, over the Model Context Protocol on standard input and output.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod answer;
mod decided;
mod input;
mod server;
mod session;
mod token_dir;
mod tool;
mod trouble;

use std::path::PathBuf;
use std::sync::Arc;

use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use tokio::runtime::Builder;

use self::server::Server;
use self::session::Session;
use self::token_dir::TokenDir;
use crate::credential::Access;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::service::Service;
use crate::value::source;

/// Let a model ask before it pays: an MCP server on standard input and output, for one agent
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  MANDATE_BASE_URL=https://api.example.com/v1 \\
      MANDATE_AGENT_KEY_FILE=purchaser.key mandate mcp
  mandate mcp --base-url https://api.example.com/v1 --key-file purchaser.key \\
      --token-dir tokens

The host of the model starts this command. Its tools are authorize_spend, get_decision, list_my_mandates and \
my_usage. It takes an agent's key only, from MANDATE_AGENT_KEY, MANDATE_AGENT_KEY_FILE or --key-file, reads no \
profile, and refuses to start with an organization's key in its environment. docs/agents.md has the configuration \
of the usual hosts.")]
pub(crate) struct Mcp {
    /// Also write each token into a file of this directory, named by its decision
    #[arg(long, value_name = "DIR")]
    token_dir: Option<PathBuf>,

    /// The API's base URL, which ends in /v1 [env: MANDATE_BASE_URL]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,

    /// Read the agent's key from this file [env: MANDATE_AGENT_KEY_FILE]
    #[arg(long, value_name = "FILE", value_parser = source)]
    key_file: Option<Source>,
}

impl Mcp {
    /// Serves until standard input ends.
    pub(super) fn run(&self, global: &Global) -> Result<Exit, Failure> {
        if global.profile.is_some() {
            return Err(Failure::new(Exit::Usage, "--profile is refused: this command reads no profile")
                .next("give it an agent's key: MANDATE_AGENT_KEY, MANDATE_AGENT_KEY_FILE or --key-file"));
        }
        let token_dir = self.token_dir.clone().map(TokenDir::open).transpose()?;
        let service = Service { base_url: self.base_url.clone(), key_file: self.key_file.clone() };
        let session = Session::new(Access::of_tools(&service)?, token_dir)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Failure::new(Exit::Io, format!("the event loop cannot be started: {e}")))?;
        let served = runtime.block_on(serve(Server::new(Arc::new(session))));
        // What still waits for the service decides nothing by its end: the process need not wait for it.
        runtime.shutdown_background();
        served
    }
}

async fn serve(server: Server) -> Result<Exit, Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::InvalidRequest, format!("standard input is not an MCP client's: {why}"))
            .next("this command is started by the host of a model; docs/agents.md shows its configuration")
    };
    match server.serve(rmcp::transport::stdio()).await {
        Ok(running) => running.waiting().await.map(|_| Exit::Success).map_err(|e| refused(&e)),
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(Exit::Success),
        // The library's error would repeat the message.
        Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
            Err(refused(&"its first message is no request"))
        }
        Err(e) => Err(refused(&e)),
    }
}
