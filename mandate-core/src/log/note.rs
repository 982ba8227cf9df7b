//! Signed notes (`signed-note` of C2SP): a text, a blank line, and lines with signatures.

use std::fmt;

use super::base64;
use super::key::is_key_name;

/// The longest note that is read, in bytes.
pub const MAX_NOTE_BYTES: usize = 128 * 1024;
/// How many signatures a note may have.
pub const MAX_SIGNATURES: usize = 64;

/// What a line with a signature begins with: an em dash and a space.
const SIGNATURE_PREFIX: &str = "\u{2014} ";

/// A well-formed note. Its signatures are not checked yet, and its text must not be relied on.
///
/// ```
/// use mandate_core::log::Note;
/// let note = Note::parse(b"a text\n\n\xe2\x80\x94 key.example AAAAAQI=\n")?;
/// assert_eq!((note.text(), note.signatures()[0].name()), ("a text\n", "key.example"));
/// # Ok::<(), mandate_core::log::NoteRefused>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// One line with a signature: the name and id of a key, and what that key made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    name: String,
    key_id: u32,
    signature: Vec<u8>,
}

/// Why a note is refused before any signature is checked.
///
/// The variants are in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteRefused {
    /// It is longer than [`MAX_NOTE_BYTES`].
    #[error("the note must be at most {MAX_NOTE_BYTES} bytes; got {bytes}")]
    Size {
        /// Its length.
        bytes: usize,
    },
    /// It is not UTF-8.
    #[error("the note must be UTF-8")]
    Utf8,
    /// It has a control character other than a line feed.
    #[error("the note must have no control characters but line feeds")]
    Control,
    /// No line feed ends it.
    #[error("the note must end with a line feed")]
    End,
    /// No blank line separates text and signatures.
    #[error("the note must have a blank line between its text and its signatures")]
    BlankLine,
    /// A line behind the blank line is not a signature.
    #[error("line {line} of the signatures must be an em dash, a key's name and base64")]
    SignatureLine {
        /// Which, from 1.
        line: usize,
    },
    /// It has more than [`MAX_SIGNATURES`].
    #[error("the note must have at most {MAX_SIGNATURES} signatures")]
    Signatures,
}

impl NoteRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Size { .. } => "note_size",
            Self::Utf8 => "note_utf8",
            Self::Control => "note_control",
            Self::End => "note_end",
            Self::BlankLine => "note_blank_line",
            Self::SignatureLine { .. } => "signature_line",
            Self::Signatures => "signatures",
        }
    }
}

impl Note {
    /// A note with this text, which must end with a line feed, and no signature yet.
    pub(super) fn new(text: String) -> Self {
        Self { text, signatures: Vec::new() }
    }

    /// Reads a note, in its one spelling.
    ///
    /// # Errors
    /// It is too long, not text, or not of the form of a note.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteRefused> {
        let note = read_text(bytes)?;
        // The last blank line separates: the text may have blank lines too.
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(NoteRefused::BlankLine)?;
        Ok(Self { text: format!("{text}\n"), signatures: read_signatures(signatures)? })
    }

    /// The text, with the line feed that ends it. It is what keys sign.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures, in order.
    #[must_use]
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Adds a signature in place of those of the same key.
    pub(super) fn replace(&mut self, signature: NoteSignature) {
        self.signatures.retain(|other| (&other.name, other.key_id) != (&signature.name, signature.key_id));
        self.signatures.push(signature);
    }
}

impl NoteSignature {
    pub(super) fn new(name: &str, key_id: u32, signature: Vec<u8>) -> Self {
        Self { name: name.to_owned(), key_id, signature }
    }

    /// Reads lines with signatures, such as a witness's answer: at least one, each ended by a line feed.
    ///
    /// ```
    /// use mandate_core::log::NoteSignature;
    /// let lines = "\u{2014} witness.example AAAAAQI=\n";
    /// let read = NoteSignature::parse_lines(lines.as_bytes())?;
    /// assert_eq!(read[0].to_string() + "\n", lines);
    /// # Ok::<(), mandate_core::log::NoteRefused>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Note::parse`].
    pub fn parse_lines(bytes: &[u8]) -> Result<Vec<Self>, NoteRefused> {
        read_signatures(read_text(bytes)?)
    }

    /// The name of the key that it gives.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id of the key that it gives.
    #[must_use]
    pub fn key_id(&self) -> u32 {
        self.key_id
    }

    /// What the key made: for [`KeyKind::Note`](super::KeyKind::Note) the 64 bytes of Ed25519.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.signature
    }

    fn parse(line: &str) -> Option<Self> {
        let (name, encoded) = line.strip_prefix(SIGNATURE_PREFIX)?.split_once(' ')?;
        let bytes = base64::decode(encoded)?;
        let (id, signature) = bytes.split_first_chunk()?;
        let fits = is_key_name(name) && !signature.is_empty();
        fits.then(|| Self::new(name, u32::from_be_bytes(*id), signature.to_vec()))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.key_id.to_be_bytes(), self.signature.as_slice()].concat();
        write!(f, "{SIGNATURE_PREFIX}{} {}", self.name, base64::encode(&bytes))
    }
}

fn read_text(bytes: &[u8]) -> Result<&str, NoteRefused> {
    if bytes.len() > MAX_NOTE_BYTES {
        return Err(NoteRefused::Size { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| NoteRefused::Utf8)?;
    if text.bytes().any(|byte| byte < b' ' && byte != b'\n') {
        return Err(NoteRefused::Control);
    }
    if text.ends_with('\n') { Ok(text) } else { Err(NoteRefused::End) }
}

/// Reads lines with signatures, each ended by a line feed.
fn read_signatures(text: &str) -> Result<Vec<NoteSignature>, NoteRefused> {
    let Some(lines) = text.strip_suffix('\n') else {
        return Err(NoteRefused::SignatureLine { line: 1 });
    };
    let mut signatures = Vec::new();
    for (line, number) in lines.split('\n').zip(1_usize..) {
        if number > MAX_SIGNATURES {
            return Err(NoteRefused::Signatures);
        }
        signatures.push(NoteSignature::parse(line).ok_or(NoteRefused::SignatureLine { line: number })?);
    }
    Ok(signatures)
}
