//! What a registration and an assertion have in common: the client data, and the head of the authenticator's data.

use sha2::{Digest as _, Sha256};

use super::party::RelyingParty;
use crate::base64url;
use crate::error::{Invalid, echo};
use crate::json::Object;

/// The longest client data that is read, in bytes. Browsers write some 200.
pub const MAX_CLIENT_DATA_BYTES: usize = 4096;

/// The longest data of an authenticator that is read, in bytes: room for the longest credential id, its key and extensions.
pub const MAX_AUTHENTICATOR_DATA_BYTES: usize = 4096;

/// The user was there: bit 0 of the flags (`WebAuthn`, section 6.1).
const USER_PRESENT: u8 = 1;
/// The user was verified, by a PIN or a finger: bit 2.
const USER_VERIFIED: u8 = 1 << 2;
/// The passkey may be copied to other devices: bit 3.
const BACKUP_ELIGIBLE: u8 = 1 << 3;
/// The passkey has been copied: bit 4.
const BACKED_UP: u8 = 1 << 4;
/// A key follows: bit 6.
const HAS_KEY: u8 = 1 << 6;
/// Extensions follow: bit 7.
const HAS_EXTENSIONS: u8 = 1 << 7;
/// The size of the signature counter behind the flags, in bytes.
const COUNTER_BYTES: usize = 4;

/// Which of the two ceremonies the client data is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ceremony {
    Registration,
    Assertion,
}

/// Why the data of a registration or an assertion is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CeremonyError {
    /// A part is larger than any authenticator makes it.
    #[error("{part} must have at most {most} bytes; it has {bytes}")]
    Size {
        /// Which part.
        part: &'static str,
        /// How many bytes are read.
        most: usize,
        /// How many bytes there are.
        bytes: usize,
    },
    /// The client data is not JSON with the members of `WebAuthn`.
    #[error("clientDataJSON is refused: {0}")]
    ClientData(Invalid),
    /// The client data is of the other ceremony.
    #[error("the type of the client data must be `{wanted}`; got `{got}`")]
    Type {
        /// What is accepted.
        wanted: &'static str,
        /// What was there, shortened.
        got: String,
    },
    /// The challenge is another: the answer is to another question.
    #[error("the challenge of the client data must be `{wanted}`; got `{got}`")]
    Challenge {
        /// What is accepted.
        wanted: String,
        /// What was there, shortened.
        got: String,
    },
    /// Another site asked.
    #[error("the origin of the client data must be `{wanted}`; got `{got}`")]
    Origin {
        /// What is accepted.
        wanted: String,
        /// What was there, shortened.
        got: String,
    },
    /// The site was in a frame of another.
    #[error("the client data must not be cross-origin: the page was in a frame of another site")]
    CrossOrigin,
    /// The authenticator's data is cut off, has something behind its end, or flags that contradict each other.
    #[error("authenticatorData {0}")]
    AuthenticatorData(&'static str),
    /// The passkey belongs to another site.
    #[error("authenticatorData must begin with the SHA-256 of the relying party's id, `{0}`")]
    RelyingParty(String),
    /// No user touched the authenticator.
    #[error("authenticatorData must say that the user was present")]
    UserPresence,
    /// The authenticator did not check who was there.
    #[error("authenticatorData must say that the user was verified, by a PIN, a finger or a face")]
    UserVerification,
}

/// The authenticator's data, its head checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuthenticatorData<'a> {
    pub(super) flags: Flags,
    /// What follows the counter.
    pub(super) rest: &'a [u8],
}

/// The flags of the authenticator's data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags(u8);

/// What the browser says about the ceremony.
struct ClientData {
    kind: String,
    challenge: String,
    origin: String,
    is_cross_origin: bool,
}

impl CeremonyError {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Size { .. } => "size",
            Self::ClientData(_) => "client_data",
            Self::Type { .. } => "type",
            Self::Challenge { .. } => "challenge",
            Self::Origin { .. } => "origin",
            Self::CrossOrigin => "cross_origin",
            Self::AuthenticatorData(_) => "authenticator_data",
            Self::RelyingParty(_) => "relying_party",
            Self::UserPresence => "user_presence",
            Self::UserVerification => "user_verification",
        }
    }
}

impl Ceremony {
    fn kind(self) -> &'static str {
        match self {
            Self::Registration => "webauthn.create",
            Self::Assertion => "webauthn.get",
        }
    }

    /// Checks what the browser and the authenticator say about the ceremony.
    pub(super) fn check<'a>(
        self,
        client_data: &[u8],
        authenticator_data: &'a [u8],
        challenge: &[u8],
        party: &RelyingParty,
    ) -> Result<AuthenticatorData<'a>, CeremonyError> {
        at_most("clientDataJSON", client_data, MAX_CLIENT_DATA_BYTES)?;
        at_most("authenticatorData", authenticator_data, MAX_AUTHENTICATOR_DATA_BYTES)?;
        let said = ClientData::read(client_data).map_err(CeremonyError::ClientData)?;
        let challenge = base64url::encode(challenge);
        if said.kind != self.kind() {
            return Err(CeremonyError::Type { wanted: self.kind(), got: echo(&said.kind) });
        }
        if said.challenge != challenge {
            return Err(CeremonyError::Challenge { wanted: challenge, got: echo(&said.challenge) });
        }
        if said.origin != party.origin() {
            let wanted = party.origin().to_owned();
            return Err(CeremonyError::Origin { wanted, got: echo(&said.origin) });
        }
        if said.is_cross_origin {
            return Err(CeremonyError::CrossOrigin);
        }
        let data = AuthenticatorData::read(authenticator_data, party)?;
        data.flags.check(self)?;
        Ok(data)
    }
}

impl ClientData {
    /// Members that `WebAuthn` may add later are ignored.
    fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut object = Object::parse_as("clientDataJSON", bytes)?;
        let mut text = |name| -> Result<String, Invalid> { Ok(object.require(name)?.string()?.into_owned()) };
        let (kind, challenge, origin) = (text("type")?, text("challenge")?, text("origin")?);
        let is_cross_origin = object.take("crossOrigin").map_or(Ok(false), |field| field.boolean())?;
        object.strict()?;
        Ok(Self { kind, challenge, origin, is_cross_origin })
    }
}

impl<'a> AuthenticatorData<'a> {
    fn read(bytes: &'a [u8], party: &RelyingParty) -> Result<Self, CeremonyError> {
        let cut = CeremonyError::AuthenticatorData("must have 37 bytes or more; it is cut off");
        let (id_hash, rest) = bytes.split_first_chunk::<32>().ok_or_else(|| cut.clone())?;
        let (flags, rest) = rest.split_first().ok_or_else(|| cut.clone())?;
        let (_, rest) = rest.split_first_chunk::<COUNTER_BYTES>().ok_or(cut)?;
        if *id_hash != party.id_hash() {
            return Err(CeremonyError::RelyingParty(party.id().to_owned()));
        }
        Ok(Self { flags: Flags(*flags), rest })
    }

    /// Checks what is left behind the last part that is known: a map of extensions, if the flags say so, or nothing.
    /// Extensions are not read.
    pub(super) fn end(self, rest: &[u8]) -> Result<(), CeremonyError> {
        match (self.flags.has(HAS_EXTENSIONS), rest.first()) {
            (false, Some(_)) => Err(CeremonyError::AuthenticatorData("must end where its flags say")),
            // A map (RFC 8949, section 3.1).
            (false, None) | (true, Some(0xa0..=0xbf)) => Ok(()),
            (true, _) => {
                Err(CeremonyError::AuthenticatorData("must have a map of extensions, as its flags say"))
            }
        }
    }
}

impl Flags {
    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// Whether the passkey may be copied to other devices of its person.
    pub(super) fn is_synced(self) -> bool {
        self.has(BACKUP_ELIGIBLE)
    }

    fn check(self, ceremony: Ceremony) -> Result<(), CeremonyError> {
        if !self.has(USER_PRESENT) {
            return Err(CeremonyError::UserPresence);
        }
        if !self.has(USER_VERIFIED) {
            return Err(CeremonyError::UserVerification);
        }
        if self.has(BACKED_UP) && !self.has(BACKUP_ELIGIBLE) {
            let problem = "must not call a passkey copied that it calls impossible to copy";
            return Err(CeremonyError::AuthenticatorData(problem));
        }
        match (ceremony, self.has(HAS_KEY)) {
            (Ceremony::Registration, true) | (Ceremony::Assertion, false) => Ok(()),
            (Ceremony::Registration, false) => {
                Err(CeremonyError::AuthenticatorData("must have the new key in it"))
            }
            (Ceremony::Assertion, true) => Err(CeremonyError::AuthenticatorData("must not have a key in it")),
        }
    }
}

pub(super) fn at_most(part: &'static str, bytes: &[u8], most: usize) -> Result<(), CeremonyError> {
    if bytes.len() > most {
        return Err(CeremonyError::Size { part, most, bytes: bytes.len() });
    }
    Ok(())
}

/// The SHA-256 of the client data, which authenticators sign behind their own data.
pub(super) fn client_data_hash(client_data: &[u8]) -> [u8; 32] {
    Sha256::digest(client_data).into()
}
