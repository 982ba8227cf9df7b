//! `mandate mandate`: write and revoke mandates.

use mandate_core::Terms;
use mandate_core::api_key::KeyClass;
use mandate_core::json::Object;

use super::Answer;
use crate::args::{Mandate, Service};
use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::output::{Output, printable};

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
