//! `mandate mandate`: write and revoke mandates.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::api_key::KeyClass;
use mandate_core::json::Object;
use mandate_core::{MandateId, Terms};

use super::Answer;
use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::output::{Output, printable};
use crate::service::Service;
use crate::value::source;

#[derive(Debug, Subcommand)]
pub(crate) enum Mandate {
    /// Write a mandate; it replaces the one that governs the agent so far
    #[command(after_help = MANDATE_CREATE_HELP)]
    Create {
        /// The mandate as JSON, or `-` to read it from standard input
        #[arg(short, long, value_name = "FILE|-", value_parser = source)]
        file: Source,
        #[command(flatten)]
        service: Service,
    },
    /// Revoke a mandate: the agent's next request is denied
    #[command(after_help = "\
Examples:
  mandate mandate revoke mnd_01hf7yat000000000000000007

Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.")]
    Revoke {
        /// The mandate's id, `mnd_...`
        #[arg(value_parser = MandateId::parse)]
        id: MandateId,
        #[command(flatten)]
        service: Service,
    },
}

const MANDATE_CREATE_HELP: &str = "\
Examples:
  mandate mandate create -f mandate.json
  mandate mandate create -f - <<'END'
  {
    \"principal\": \"role:finance_lead\",
    \"agent\": \"agt_buyer\",
    \"limits\": {\"per_transaction\": 500, \"per_month\": 2000, \"currency\": \"USD\"},
    \"categories\": [\"software\", \"cloud.compute\"],
    \"review_above\": 200,
    \"expires\": \"2027-12-31\"
  }
  END

The file is checked before it is sent, by the rules that the service applies.
Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.";

/// The longest body that the service takes, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

pub(super) fn run(args: Mandate, output: &mut Output) -> Result<Exit, Failure> {
    let (client, body) = match args {
        Mandate::Create { file, service } => create(&file, &service)?,
        Mandate::Revoke { id, service } => {
            let client = Client::new(&service, KeyClass::Organization)?;
            let body = client.post(&format!("/mandates/{id}/revoke"), None)?;
            (client, body)
        }
    };
    client.note_if_lost(output);
    if output.is_json() {
        output.body(&body);
    } else {
        tell(&body, output).map_err(|failure| client.told(failure))?;
    }
    Ok(Exit::Success)
}

/// Checks the mandate by the service's own rules, then sends it as it was written.
fn create(file: &Source, service: &Service) -> Result<(Client, String), Failure> {
    if *file == Source::Stdin && service.key_file == Some(Source::Stdin) {
        return Err(Failure::new(
            Exit::Usage,
            "the mandate and the key cannot both come from standard input",
        ));
    }
    let text = file.read("the mandate", MAX_BODY_BYTES, Exit::InvalidRequest)?;
    Object::parse(text.as_bytes())
        .and_then(Terms::read)
        .and_then(|terms| terms.must_hold_at(environment::now()))
        .map_err(|e| {
            Failure::new(Exit::InvalidRequest, format!("the mandate is refused: {e}"))
                .note("read from", file)
                .note("sent", "nothing")
        })?;
    let client = Client::new(service, KeyClass::Organization)?;
    let body = client.post("/mandates", Some(&text))?;
    Ok((client, body))
}

fn tell(body: &str, output: &mut Output) -> Result<(), Failure> {
    let mut mandate = Answer::read(body)?;
    for (label, name) in [("mandate", "id"), ("agent", "agent"), ("status", "status"), ("expires", "expires")]
    {
        output.line(label, printable(&mandate.text(name)?));
    }
    mandate.show("revoked_at", "revoked_at", output)
}
