//! Evidence: a token with its proof and the key that signed it with the proof of its own entry, in one file, for years later.
//!
//! The file is a JSON object: `evidence` is 1, `token` the token, `proof` a `tlog-proof` of its decision, `key_entry` the
//! log's entry of the signing key in base64, and `key_proof` a `tlog-proof` of that entry.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, VerificationKey};
use mandate_core::log::{Entry, Hash, KeyChange, KeyEvent, LogProof};
use mandate_core::verify::{AuditedVerdict, audit_verdict_ignoring_expiry};
use mandate_core::{EnvironmentKind, Invalid};
use serde::Serialize;

use super::Refused;
use super::place::is_origin_of;
use super::proof::{self, Proved, Unproved};
use super::trust::Trust;

/// The longest file that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// The version of the form.
const VERSION: i64 = 1;

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Evidence {
    #[serde(rename = "evidence")]
    version: i64,
    token: String,
    proof: String,
    key_entry: String,
    key_proof: String,
}

/// What evidence proves.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) verdict: AuditedVerdict,
    pub(crate) key: KeyEvent,
    /// The key's entry.
    pub(crate) published: Proved,
    /// The decision's entry.
    pub(crate) logged: Proved,
}

impl Evidence {
    pub(crate) fn new(token: &str, proof: &[u8], key_entry: &[u8], key_proof: &LogProof) -> Self {
        Self {
            version: VERSION,
            token: token.to_owned(),
            proof: String::from_utf8_lossy(proof).into_owned(),
            key_entry: STANDARD.encode(key_entry),
            key_proof: key_proof.to_string(),
        }
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads the text of a file.
    pub(crate) fn read(text: &str) -> Result<Self, Invalid> {
        let mut file = Object::parse_as("evidence", text.as_bytes())?;
        let version = file.require("evidence")?.integer()?;
        if version != VERSION {
            return Err(Invalid::new("evidence", format!("must be {VERSION}; got {version}")));
        }
        let mut member = |name| Ok::<_, Invalid>(file.require(name)?.string()?.into_owned());
        let read = Self {
            version,
            token: member("token")?,
            proof: member("proof")?,
            key_entry: member("key_entry")?,
            key_proof: member("key_proof")?,
        };
        file.finish()?;
        Ok(read)
    }

    /// Checks everything, whatever the time: the key's entry and its proof, the token's signature under that key, its issuer,
    /// and its proof. Without `issuer` the token's issuer must be the one whose log this is.
    pub(crate) fn check(&self, issuer: Option<&str>, trust: &Trust) -> Result<Shown, Unproved> {
        let refused = |check, why: &dyn ToString| Unproved::Refused(Refused::new(check, why.to_string()));
        let bytes = STANDARD.decode(&self.key_entry).map_err(|e| refused("key_entry", &e))?;
        let entry = Entry::parse(&bytes).map_err(|e| refused(e.name(), &e))?;
        let Entry::Key(key) = entry else {
            return Err(refused("key_entry", &"the key's entry must be of type 3"));
        };
        if key.change == KeyChange::Revoked {
            return Err(refused("key_change", &"the key's entry says that it was revoked"));
        }
        let proof = LogProof::parse(self.key_proof.as_bytes()).map_err(|e| refused(e.name(), &e))?;
        let accepted = proof
            .verify(&Hash::of_leaf(&bytes), trust.key.as_ref(), &trust.policy)
            .map_err(|e| refused(e.name(), &format!("the entry of the signing key: {e}")))?;
        let published = Proved { index: proof.index, accepted };
        let verdict = self.verdict(&key, issuer)?;
        let logged = proof::check(&self.token, self.proof.as_bytes(), trust)?;
        let origin = logged.accepted.checkpoint.origin();
        let (one, other) = (&published.accepted.checkpoint, &logged.accepted.checkpoint);
        if one.origin() != origin {
            return Err(refused("origin", &"the two proofs are of different logs"));
        }
        if one.size() == other.size() && one.root() != other.root() {
            let size = one.size();
            let why =
                format!("the two proofs name different roots of the log's {size} entries: it has forked");
            return Err(refused("fork", &why));
        }
        let kind = if key.kid.is_sandbox() { EnvironmentKind::Sandbox } else { EnvironmentKind::Production };
        if issuer.is_none() && !is_origin_of(origin, &verdict.claims().iss, kind) {
            let iss = &verdict.claims().iss;
            return Err(refused(
                "issuer",
                &format!("the log {origin} is not that of the issuer {iss}; name it with --issuer"),
            ));
        }
        Ok(Shown { verdict, key, published, logged })
    }

    /// The verdict, if this key signed it.
    fn verdict(&self, key: &KeyEvent, issuer: Option<&str>) -> Result<AuditedVerdict, Unproved> {
        let refused = |check, why: String| Unproved::Refused(Refused::new(check, why));
        let keys = VerificationKey::new(key.kid.clone(), key.public)
            .map_err(|e| refused("public_key", e.to_string()))?;
        let keys = KeySet::new(vec![keys]).map_err(|e| refused("public_key", e.to_string()))?;
        let said = mandate_core::jwt::Unverified::parse(&self.token)
            .map_err(|e| refused(e.name(), e.to_string()))?
            .unverified_claims()
            .to_vec();
        // Without an expected issuer it is compared with the log's origin later, once it is known to be signed.
        let said = mandate_core::VerdictClaims::read(&said).map_err(|e| refused("claims", e.to_string()))?;
        audit_verdict_ignoring_expiry(&self.token, &keys, issuer.unwrap_or(&said.iss))
            .map_err(|e| refused(e.name(), e.to_string()))
    }
}
