//! Challenges that wait for a passkey. The server keeps none of them: each says until when it is good, and carries a MAC over
//! that and over what it is for. So asking for one writes nothing, and no number of them keeps anyone from signing in.

use std::fmt;

use hmac::{Hmac, Mac};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::model::mac;

/// How long a challenge is good, in seconds: five minutes.
pub const CHALLENGE_SECONDS: i64 = 5 * 60;
/// A challenge, in bytes.
pub const CHALLENGE_BYTES: usize = 32;
/// How much of a challenge is random, in bytes.
const RANDOM_BYTES: usize = 8;
/// The end and the random bytes.
const HEAD_BYTES: usize = 8 + RANDOM_BYTES;

/// What a challenge is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To sign in.
    SignIn,
    /// To register a passkey by the link whose secret has this hash.
    Enrol([u8; 32]),
}

/// Makes challenges, and knows its own. All servers with one master key know each other's.
pub struct Challenges(Zeroizing<[u8; 32]>);

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Challenges(…)")
    }
}

impl Challenges {
    /// Those made with a secret key.
    #[must_use]
    pub fn new(key: Zeroizing<[u8; 32]>) -> Self {
        Self(key)
    }

    /// A new challenge, at the address of an environment that need not exist.
    #[must_use]
    pub fn make(
        &self,
        of: (&AgentName, EnvironmentKind),
        purpose: Purpose,
        now: Timestamp,
        random: &[u8; 32],
    ) -> [u8; CHALLENGE_BYTES] {
        let end = now.plus_seconds(CHALLENGE_SECONDS).millis().to_be_bytes();
        let mut head = [0; HEAD_BYTES];
        head.iter_mut().zip(end.iter().chain(random)).for_each(|(to, from)| *to = *from);
        let tag = self.mac(of, purpose, &head).finalize().into_bytes();
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge.iter_mut().zip(head.iter().chain(&tag)).for_each(|(to, from)| *to = *from);
        challenge
    }

    /// Until when a challenge is good.
    ///
    /// # Errors
    /// The name of the check that it does not pass: `challenge`, if it was not made here for this; `late`, if it is over.
    pub fn end(
        &self,
        challenge: &[u8; CHALLENGE_BYTES],
        of: (&AgentName, EnvironmentKind),
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Timestamp, &'static str> {
        let (head, tag) = challenge.split_first_chunk::<HEAD_BYTES>().ok_or("challenge")?;
        self.mac(of, purpose, head).verify_truncated_left(tag).map_err(|_| "challenge")?;
        let (end, _) = head.split_first_chunk().ok_or("challenge")?;
        let end = Timestamp::from_millis(i64::from_be_bytes(*end));
        if now < end { Ok(end) } else { Err("late") }
    }

    fn mac(
        &self,
        (organization, kind): (&AgentName, EnvironmentKind),
        purpose: Purpose,
        head: &[u8; HEAD_BYTES],
    ) -> Hmac<Sha256> {
        // Neither the kind nor the name has a zero in it.
        let mac = mac::under(&self.0)
            .chain_update(kind.as_str())
            .chain_update([0])
            .chain_update(organization.as_str());
        let mac = mac.chain_update([0]).chain_update(head);
        match purpose {
            Purpose::SignIn => mac,
            Purpose::Enrol(link) => mac.chain_update(link),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_good_for_what_it_was_made_for_and_for_five_minutes() {
        let made_by = |key| Challenges::new(Zeroizing::new([key; 32]));
        let name = |text| AgentName::parse(text).unwrap();
        let (acme, mist) = (name("acme"), name("mist"));
        let (sandbox, production) = (EnvironmentKind::Sandbox, EnvironmentKind::Production);
        let (now, end) = (Timestamp::from_seconds(1_000), Timestamp::from_seconds(1_300));
        let last = Timestamp::from_millis(1_299_999);
        let (sign_in, enrol) = (Purpose::SignIn, Purpose::Enrol([3; 32]));
        for purpose in [sign_in, enrol] {
            let made = made_by(1).make((&acme, sandbox), purpose, now, &[7; 32]);
            for (checked, key, organization, kind, other, at) in [
                (Ok(end), 1, &acme, sandbox, purpose, now),
                (Ok(end), 1, &acme, sandbox, purpose, last),
                (Err("late"), 1, &acme, sandbox, purpose, end),
                (Err("challenge"), 2, &acme, sandbox, purpose, now),
                (Err("challenge"), 1, &mist, sandbox, purpose, now),
                (Err("challenge"), 1, &acme, production, purpose, now),
                (Err("challenge"), 1, &acme, sandbox, Purpose::Enrol([4; 32]), now),
                (Err("challenge"), 1, &acme, sandbox, if purpose == sign_in { enrol } else { sign_in }, now),
            ] {
                assert_eq!(made_by(key).end(&made, (organization, kind), other, at), checked);
            }
            for byte in 0..CHALLENGE_BYTES {
                let mut edited = made;
                edited[byte] ^= 1;
                let checked = made_by(1).end(&edited, (&acme, sandbox), purpose, now);
                assert_eq!(checked, Err("challenge"), "{byte}");
            }
        }
        let other = made_by(1).make((&acme, sandbox), sign_in, now, &[8; 32]);
        assert_ne!(made_by(1).make((&acme, sandbox), sign_in, now, &[7; 32]), other);
    }
}
