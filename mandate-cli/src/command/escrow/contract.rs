//! `mandate escrow contract`: the signed contract of an escrow, which anyone with its address can read.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::EscrowId;
use mandate_core::json::Object;
use mandate_core::jwt::Unverified;

use crate::command::verify::SANDBOX;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::http::{self, Address, REQUEST_TIMEOUT};
use crate::key_set::Issuer;
use crate::output::{Output, warn};
use crate::resource::Resource;

/// The length of an address: 32 bytes in hexadecimal digits.
const ADDRESS_DIGITS: usize = 64;
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;

/// It shows what the escrow shows, except for what only its parties may see.
const CONTRACT: Resource = Resource {
    path: "",
    class: None,
    id: None,
    columns: &[],
    lines: super::ESCROWS.lines,
    tables: super::ESCROWS.tables,
};

/// Show a signed escrow contract; no API key is needed
///
/// The issuer's signature is verified before anything is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate escrow contract \"$ADDRESS\" --issuer https://verdicts.example.com
  mandate escrow contract \"$ADDRESS\" --issuer https://verdicts.example.com \\
      --jq .state

Exit codes:
  0 shown    10 malformed    11 signature or key    14 issuer    22 of a sandbox
  33 no such contract    37 cannot be reached")]
pub(crate) struct Contract {
    /// The contract's address, 64 hexadecimal digits
    #[arg(value_parser = address)]
    address: String,
    /// The expected issuer [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The issuer's key set [default: {issuer}/.well-known/jwks.json] [env: MANDATE_JWKS]
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    /// Accept sandbox keys, which sign contracts about no real money
    #[arg(long)]
    allow_sandbox: bool,
}

fn address(text: &str) -> Result<String, &'static str> {
    if EscrowId::parse(text).is_ok() {
        return Err(
            "this is an escrow's id; its contract has an address: mandate escrow show ID --jq .contract",
        );
    }
    if text.len() == ADDRESS_DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        Ok(text.to_owned())
    } else {
        Err(
            "must be 64 hexadecimal digits, in lower case: the member `contract` of an escrow, or the last part of its page's address",
        )
    }
}

impl Contract {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let issuer = Issuer::find(self.issuer.as_deref(), self.jwks.as_deref(), global)?;
        let host: Address = issuer.name.parse().map_err(|why| {
            Failure::new(Exit::Usage, format!("contracts are not read from `{}`: {why}", issuer.name))
        })?;
        let token = fetch(&host.join(&format!("/contracts/{}", self.address)))?;
        let claims = self.verified(&token, &issuer)?;
        let contract = fields::at(&claims, "contract").ok_or_else(|| malformed("contract is required"))?;
        if fields::text(contract, "contract").as_deref() != Some(&self.address) {
            return Err(malformed("it belongs to another address"));
        }
        CONTRACT.show(contract, output)
    }

    /// The claims of the token, after signature, issuer and environment were checked.
    fn verified(&self, token: &str, issuer: &Issuer) -> Result<String, Failure> {
        let keys = issuer.keys_for(token)?;
        let unverified = Unverified::parse(token).map_err(|e| malformed(&e.to_string()))?;
        let verified = unverified.verify(&keys).map_err(|e| {
            Failure::new(Exit::Signature, format!("the contract's signature is refused: {e}"))
                .next("do not rely on it; tell the issuer")
        })?;
        let claims = std::str::from_utf8(verified.claims()).map_err(|e| malformed(&e.to_string()))?;
        Object::parse_as("claims", verified.claims())
            .and_then(|claims| claims.strict())
            .map_err(|e| malformed(&e.to_string()))?;
        let iss = fields::text(claims, "iss").ok_or_else(|| malformed("iss is required"))?;
        if iss != issuer.name {
            let what = format!("the contract is signed by {iss}, and not by {}", issuer.name);
            return Err(Failure::new(Exit::Issuer, what));
        }
        match (verified.kid().is_sandbox(), self.allow_sandbox) {
            (true, false) => {
                Err(Failure::new(Exit::Sandbox, "the contract is from a sandbox: no money is real")
                    .next("pass --allow-sandbox to show it"))
            }
            (true, true) => {
                warn(SANDBOX);
                Ok(claims.to_owned())
            }
            (false, _) => Ok(claims.to_owned()),
        }
    }
}

/// The signed contract at `place`.
fn fetch(place: &Address) -> Result<String, Failure> {
    let unreachable = |e: http::Error| {
        Failure::new(Exit::Unreachable, format!("{place} cannot be reached{}", place.why(&e))).next(
            place
                .advice(&e)
                .unwrap_or_else(|| "check the issuer's address, and repeat the command".to_owned()),
        )
    };
    let request = place.transport()?.get(place.as_str());
    let sent =
        request.and_then(|request| http::send(request.header("accept", "application/jwt"), REQUEST_TIMEOUT));
    let response = sent.map_err(unreachable)?;
    match response.status() {
        200 => response.text(MAX_ANSWER_BYTES).map_err(unreachable),
        404 => Err(Failure::new(Exit::NotFound, "there is no contract at this address")
            .next("check address and issuer: it is the member contract of an escrow")),
        status => Err(Failure::new(Exit::UnknownAnswer, format!("{place} answered HTTP {status}"))
            .next("is this the issuer's address?")),
    }
}

fn malformed(why: &str) -> Failure {
    Failure::new(Exit::MalformedToken, format!("the contract is not understood: {why}"))
        .next("is this the issuer's address, and is this program not older than its service?")
}
