//! Where the issuer's public keys come from: its published address, another one, or a file.

use std::path::PathBuf;

use mandate_core::jwks::{KeySet, MAX_KEY_SET_BYTES};

use crate::environment::variable;
use crate::exit::{Exit, Failure};
use crate::http::Address;
use crate::input::Source;

/// Where an issuer publishes its keys, behind its own address.
const WELL_KNOWN: &str = "/.well-known/jwks.json";

/// An issuer, and where its keys are read.
pub(crate) struct Issuer {
    /// What `iss` must be.
    pub(crate) name: String,
    keys: Place,
}

enum Place {
    Url(Address),
    File(PathBuf),
}

impl Issuer {
    /// Puts together what was given. A command-line option goes before the environment, and an issuer's own key set
    /// before that of a variable.
    pub(crate) fn find(issuer: Option<&str>, jwks: Option<&str>) -> Result<Self, Failure> {
        let name = match issuer {
            Some(name) => Some(name.to_owned()),
            None => variable("MANDATE_ISSUER")?.map(|text| text.to_string()),
        };
        let keys = match (jwks, issuer) {
            (Some(text), _) => Some(Place::read(text)?),
            (None, Some(_)) => None,
            (None, None) => variable("MANDATE_JWKS")?.map(|text| Place::read(&text)).transpose()?,
        };
        match (name, keys) {
            (Some(name), Some(keys)) => Ok(Self { name, keys }),
            (Some(name), None) => {
                let keys = Place::Url(address(&name)?.join(WELL_KNOWN));
                Ok(Self { name, keys })
            }
            (None, Some(keys)) => match keys.publisher() {
                Some(name) => Ok(Self { name, keys }),
                None => Err(Failure::new(Exit::Usage, "the issuer that the token must name is not known")
                    .next("pass --issuer URL, or set MANDATE_ISSUER")),
            },
            (None, None) => Err(Failure::new(Exit::Usage, "neither the issuer nor its key set is known")
                .next("pass --issuer URL (its keys are then fetched), or --issuer URL and --jwks FILE to stay offline")),
        }
    }

    /// Reads the key set.
    pub(crate) fn load(&self) -> Result<KeySet, Failure> {
        let (document, place) = match &self.keys {
            Place::File(path) => {
                let source = Source::File(path.clone());
                let text = source
                    .read("the key set", MAX_KEY_SET_BYTES, Exit::KeySet)
                    .map_err(|failure| failure.of_kind(Exit::KeySet))?;
                (text.as_bytes().to_vec(), source.to_string())
            }
            Place::Url(address) => (fetch(address)?, address.to_string()),
        };
        KeySet::parse(&document).map_err(|e| {
            Failure::new(Exit::KeySet, format!("the key set is refused: {e}")).note("read from", place)
        })
    }
}

impl Place {
    fn read(text: &str) -> Result<Self, Failure> {
        if text.contains("://") { address(text).map(Self::Url) } else { Ok(Self::File(text.into())) }
    }

    /// The issuer that publishes its keys here, when this is such an address.
    fn publisher(&self) -> Option<String> {
        match self {
            Self::Url(address) => address.as_str().strip_suffix(WELL_KNOWN).map(str::to_owned),
            Self::File(_) => None,
        }
    }
}

fn address(text: &str) -> Result<Address, Failure> {
    text.parse().map_err(|why| {
        Failure::new(Exit::Usage, format!("keys are not read from `{text}`: {why}"))
            .next("pass an https address, or the key set's file with --jwks FILE")
    })
}

fn fetch(address: &Address) -> Result<Vec<u8>, Failure> {
    let unreachable = |e: ureq::Error| {
        Failure::new(Exit::KeySet, format!("the key set cannot be fetched from {address}: {e}"))
            .next("try again, or pass a key set that you have with --jwks FILE")
    };
    let mut response = address.agent().get(address.as_str()).call().map_err(unreachable)?;
    let status = response.status();
    if status.is_success() {
        let limit = u64::try_from(MAX_KEY_SET_BYTES).unwrap_or(u64::MAX);
        return response.body_mut().with_config().limit(limit).read_to_vec().map_err(unreachable);
    }
    let failure =
        Failure::new(Exit::KeySet, format!("the key set cannot be fetched from {address}: HTTP {status}"));
    match response.headers().get("location").and_then(|v| v.to_str().ok()) {
        Some(location) => {
            let advice = "redirects are not followed; if you trust that address, pass it with --jwks";
            Err(failure.note("points to", location).next(advice))
        }
        None => Err(failure.next("check the address, or pass a key set that you have with --jwks FILE")),
    }
}
