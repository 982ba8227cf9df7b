//! HMAC-SHA-256 under secret keys of 32 bytes.

use hmac::{Hmac, KeyInit};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The HMAC under a key, of nothing yet.
#[must_use]
pub fn under(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC pads a key that is shorter than a block with zeros (RFC 2104, section 2).
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    <Hmac<Sha256> as KeyInit>::new((&*block).into())
}
