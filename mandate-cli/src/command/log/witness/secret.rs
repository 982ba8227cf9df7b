//! The secret key of a witness, in the form of Go's `note` package: `PRIVATE+KEY+name+id+base64(type, seed)`.

use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mandate_core::log::{KeyKind, SigningKey, VerifierKey};
use zeroize::Zeroizing;

use crate::credential::warn_if_exposed;
use crate::directory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::input::{Source, without_line_break};

const PREFIX: &str = "PRIVATE+KEY+";
/// The type of a cosignature's key.
const COSIGNATURE: u8 = 4;
const MAX_BYTES: usize = 1024;

/// Makes a key and writes it to a file that was not there, readable by its owner alone.
pub(in crate::command::log) fn create(name: &str, path: &Path) -> Result<VerifierKey, Failure> {
    let seed = Zeroizing::new(environment::random::<32>()?);
    let key = SigningKey::new(name, KeyKind::Cosignature, &seed)
        .map_err(|e| Failure::new(Exit::Usage, format!("`{name}` cannot be a witness's name: {e}")))?;
    let verifier = key.verifier().clone();
    let mut secret = Zeroizing::new(vec![COSIGNATURE]);
    secret.extend_from_slice(&*seed);
    let text = Zeroizing::new(format!(
        "{PREFIX}{name}+{:08x}+{}\n",
        verifier.id(),
        Zeroizing::new(STANDARD.encode(&*secret)).as_str()
    ));
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    directory::private(&mut options);
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|e| {
        Failure::new(Exit::Io, format!("the key cannot be written to {}: {e}", path.display()))
            .next("name a file that is not there: a key is never replaced")
    })?;
    Ok(verifier)
}

/// Reads a key.
pub(super) fn read(path: &Path) -> Result<SigningKey, Failure> {
    let text = Source::File(path.to_owned()).read_secret("the witness's key", MAX_BYTES, Exit::Usage)?;
    warn_if_exposed(path);
    parse(without_line_break(&text)).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{} is no key of a witness", path.display()))
            .next("mandate log key create NAME -o FILE makes one")
    })
}

fn parse(text: &str) -> Option<SigningKey> {
    let (name, rest) = text.strip_prefix(PREFIX)?.split_once('+')?;
    let (id, secret) = rest.split_once('+')?;
    let secret = Zeroizing::new(STANDARD.decode(secret).ok()?);
    let seed = secret.strip_prefix(&[COSIGNATURE])?.try_into().ok()?;
    let key = SigningKey::new(name, KeyKind::Cosignature, seed).ok()?;
    (format!("{:08x}", key.verifier().id()) == id).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let verifier = create("witness.example/w1", &path).unwrap();
        assert_eq!(read(&path).unwrap().verifier(), &verifier);
        assert_eq!(create("witness.example/w1", &path).unwrap_err().exit, Exit::Io);
        let text = std::fs::read_to_string(&path).unwrap();
        for edited in [
            text.replace("w1", "w2"),
            text.replace(PREFIX, ""),
            text.replacen("+B", "+C", 1),
            text[..text.len() - 3].to_owned(),
            format!(" {text}"),
        ] {
            assert!(parse(without_line_break(&edited)).is_none(), "{edited}");
        }
        assert_eq!(create("a b", &folder.path().join("other")).unwrap_err().exit, Exit::Usage);
    }
}
