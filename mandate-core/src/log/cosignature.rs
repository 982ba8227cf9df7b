//! Cosignatures of witnesses (`tlog-cosignature` of C2SP, version 1 with Ed25519): a witness saw this checkpoint, at this
//! time, and it was consistent with all that it had seen of the log.

use super::checkpoint::Checkpoint;
use super::key::{ED25519_SIGNATURE_BYTES, KeyKind, SigningKey, VerifierKey};
use super::note::NoteSignature;

/// The latest time of a cosignature, in seconds since the Unix epoch.
const MAX_TIME: u64 = i64::MAX as u64;

/// A cosignature that was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cosigned {
    /// When the witness says that it saw the checkpoint, in seconds since the Unix epoch.
    pub seconds: i64,
}

/// What a witness signs for a checkpoint that it saw at `seconds` since the Unix epoch.
///
/// ```
/// use mandate_core::log::{Checkpoint, Hash, cosignature_message};
/// let checkpoint = Checkpoint::new("verdicts.example/log", 0, Hash::of_empty_tree())?;
/// let message = cosignature_message(&checkpoint, 1_679_315_147);
/// assert_eq!(message, format!("cosignature/v1\ntime 1679315147\n{checkpoint}"));
/// # Ok::<(), mandate_core::log::CheckpointRefused>(())
/// ```
#[must_use]
pub fn cosignature_message(checkpoint: &Checkpoint, seconds: u64) -> String {
    message(&checkpoint.to_string(), seconds)
}

/// A cosignature from the Ed25519 signature of [`cosignature_message`], which was made elsewhere under the witness's key.
#[must_use]
pub fn cosignature(
    witness: &VerifierKey,
    seconds: u64,
    signature: &[u8; ED25519_SIGNATURE_BYTES],
) -> NoteSignature {
    let bytes = [&seconds.to_be_bytes(), signature.as_slice()].concat();
    NoteSignature::new(witness.name(), witness.id(), bytes)
}

/// The cosignature of a checkpoint that the witness saw at `seconds` since the Unix epoch.
///
/// A witness cosigns only what [`WitnessedLog::decide`](super::WitnessedLog::decide) accepts, and only once it has stored that.
#[must_use]
pub fn cosign(key: &SigningKey, checkpoint: &Checkpoint, seconds: u64) -> NoteSignature {
    cosignature(key.verifier(), seconds, &key.sign(cosignature_message(checkpoint, seconds).as_bytes()))
}

fn message(checkpoint: &str, seconds: u64) -> String {
    format!("cosignature/v1\ntime {seconds}\n{checkpoint}")
}

/// The cosignature that `signature` holds, if it is one of the witness's key over the text of a checkpoint.
pub(super) fn read_cosignature(
    signature: &NoteSignature,
    witness: &VerifierKey,
    checkpoint: &str,
) -> Option<Cosigned> {
    let (seconds, signed) = signature.bytes().split_first_chunk()?;
    let seconds = u64::from_be_bytes(*seconds);
    let signed = signed.try_into().ok()?;
    // A witness always says when; 0 is what a cosignature of another kind has.
    let sound = witness.kind() == KeyKind::Cosignature && (1..=MAX_TIME).contains(&seconds);
    let verified = sound && witness.verifies(message(checkpoint, seconds).as_bytes(), signed);
    verified.then(|| i64::try_from(seconds).ok().map(|seconds| Cosigned { seconds })).flatten()
}
