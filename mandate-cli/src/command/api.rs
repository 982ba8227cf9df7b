//! `mandate api`: any request to the API, with the key, the retries and the idempotency key of all commands.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::collections::BTreeMap;

use mandate_core::json::Object;
use reqwest::Method;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::client::{Call, Client};
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::mistake;
use crate::output::Output;
use crate::service::Change;
use crate::style::{BOLD, printable};
use crate::value::source;

/// The longest body that the service takes, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Send any request to the API, and print the response
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate api get /agents -f limit=100
  mandate api post /mandates --input mandate.json
  mandate api post /webhooks -f url=https://hooks.example.com/a \\
      -f 'events=[\"ping\"]' -i
  mandate api delete /webhooks/whk_01hf7yat000000000000000007")]
pub(crate) struct Api {
    /// GET, POST or DELETE
    #[arg(value_parser = method)]
    method: Method,
    /// The path behind /v1, for example /decisions
    #[arg(value_parser = path)]
    path: String,
    /// A field of the body, or of the query of a GET. JSON values are sent as JSON; a.b=1 means {"a": {"b": 1}}
    #[arg(short, long = "field", value_name = "NAME=VALUE", value_parser = field)]
    field: Vec<(String, String)>,
    /// The body, sent unchanged; `-` reads standard input
    #[arg(long, value_name = "FILE|-", value_parser = source, conflicts_with = "field")]
    input: Option<Source>,
    /// Also print the status and the headers of the response
    #[arg(short, long)]
    include: bool,
    #[command(flatten)]
    change: Change,
}

fn method(text: &str) -> Result<Method, &'static str> {
    match text.to_ascii_uppercase().as_str() {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "DELETE" => Ok(Method::DELETE),
        _ => Err("must be GET, POST or DELETE"),
    }
}

fn path(text: &str) -> Result<String, &'static str> {
    let path = text.strip_prefix('/').unwrap_or(text);
    let path = path.strip_prefix("v1/").unwrap_or(path);
    let sound = !path.is_empty() && path.bytes().all(|b| b.is_ascii_graphic() && !b"#\\".contains(&b));
    if sound {
        Ok(format!("/{path}"))
    } else {
        Err("must be a path such as /decisions, without spaces or `#`")
    }
}

fn field(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE"),
    }
}

impl Api {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let reads = self.method == Method::GET;
        let client = if reads {
            Client::new(&self.change.service, global, None)?
        } else {
            Client::for_change(&self.change, global, None)?
        };
        if !reads {
            client.confirm(&format!("{} {}", self.method, self.path))?;
        }
        let query: Vec<(&str, String)> =
            self.field.iter().filter(|_| reads).map(|(name, value)| (name.as_str(), value.clone())).collect();
        let body = match &self.input {
            Some(source) => Some(read(source)?),
            None if reads || self.field.is_empty() => None,
            None => Some(body(&self.field)?),
        };
        let call = Call::new(self.method.clone(), &self.path, &query, body.as_deref());
        let reply = client.exchange(&call)?;
        if !reads {
            client.note_if_lost(output);
        }
        if self.include {
            output.text(&format!("{BOLD}HTTP {}{BOLD:#}\n", reply.status));
            for (name, value) in &reply.headers {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                output.text(&format!("{name}: {}\n", printable(&value)));
            }
            output.text("\n");
        }
        if !(200..300).contains(&reply.status) {
            // This command prints the answer itself, whatever it is.
            if !output.is_json() {
                output.text(&format!("{}\n", printable(&reply.body)));
            }
            return Err(client.failed(&call, &reply));
        }
        if !reply.body.is_empty() {
            output.body(&reply.body)?;
        }
        Ok(Exit::Success)
    }
}

/// The body in a file. What is not JSON is refused where it is wrong: the service would not say that.
fn read(source: &Source) -> Result<String, Failure> {
    let text = source.read("the body", MAX_BODY_BYTES, Exit::InvalidRequest)?;
    Object::parse_as("body", text.as_bytes()).map_err(|why| {
        mistake::refused("the body", source, &text, &why, Exit::InvalidRequest).note("sent", "nothing")
    })?;
    Ok(text)
}

/// An object made of fields.
type Members = BTreeMap<String, Member>;

/// A member of such an object.
#[derive(Serialize)]
#[serde(untagged)]
enum Member {
    Object(Members),
    /// A value as it was typed: numbers keep their digits, and objects all members.
    Typed(Box<RawValue>),
}

/// The object made of these fields.
fn body(fields: &[(String, String)]) -> Result<String, Failure> {
    let unsendable = |e: serde_json::Error| Failure::new(Exit::Usage, e.to_string());
    let mut body = Members::new();
    for (name, text) in fields {
        let value = serde_json::from_str(text).or_else(|_| to_raw_value(text)).map_err(unsendable)?;
        put(&mut body, name, value)
            .ok_or_else(|| Failure::new(Exit::Usage, format!("--field {name} contradicts another field")))?;
    }
    serde_json::to_string(&body).map_err(unsendable)
}

fn put(object: &mut Members, path: &str, value: Box<RawValue>) -> Option<()> {
    match path.split_once('.') {
        None => object.insert(path.to_owned(), Member::Typed(value)).is_none().then_some(()),
        Some((name, rest)) => {
            let member = object.entry(name.to_owned()).or_insert_with(|| Member::Object(Members::new()));
            if let Member::Typed(typed) = member {
                *member = Member::Object(members(typed)?);
            }
            match member {
                Member::Object(inner) => put(inner, rest, value),
                Member::Typed(_) => None,
            }
        }
    }
}

/// The members of a typed object. None if it is not an object, or has a name twice.
fn members(typed: &RawValue) -> Option<Members> {
    Object::parse(typed.get().as_bytes()).ok()?;
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(typed.get()).ok()?;
    Some(members.into_iter().map(|(name, value)| (name, Member::Typed(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(fields: &[&str]) -> Result<String, Failure> {
        body(&fields.iter().map(|text| field(text).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn fields_make_a_body() {
        assert_eq!(
            made(&["name=buyer", "limits.per_month=40.5", "limits.currency=USD", "events=[\"ping\"]", "n="])
                .unwrap(),
            r#"{"events":["ping"],"limits":{"currency":"USD","per_month":40.5},"n":"","name":"buyer"}"#
        );
        for contradiction in [["a=1", "a=2"], ["a=1", "a.b=2"]] {
            assert_eq!(made(&contradiction).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn values_reach_the_body_as_they_were_typed() {
        for value in [
            "0.10",
            "1e2",
            "40.00",
            "12345678901234567890.000000001",
            r#"{"b":1,"a":2.50,"b":3}"#,
            "\"\\u0061\"",
        ] {
            assert_eq!(made(&[&format!("a={value}")]).unwrap(), format!(r#"{{"a":{value}}}"#));
        }
        assert_eq!(made(&["a=a\"b"]).unwrap(), r#"{"a":"a\"b"}"#);
        assert_eq!(made(&[r#"a={"c":1.0}"#, "a.b=2.0"]).unwrap(), r#"{"a":{"b":2.0,"c":1.0}}"#);
        for contradiction in [[r#"a={"b":1}"#, "a.b=2"], [r#"a={"c":1,"c":2}"#, "a.b=2"]] {
            assert_eq!(made(&contradiction).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn paths_are_those_behind_the_version() {
        for text in ["/v1/agents", "v1/agents", "/agents", "agents"] {
            assert_eq!(path(text).unwrap(), "/agents");
        }
        assert!(path("").is_err() && path("/a b").is_err() && path("/a#b").is_err());
    }
}
