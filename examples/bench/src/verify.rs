//! Verifying verdicts, one after the other, beside the bare check of their signatures and beside libraries that others use:
//! `jsonwebtoken`, PyJWT and npm `jose`; and our npm package, beside the latter.
//!
//! All verify the same tokens under the same key. The bare check is one call of aws-lc-rs, with the message and the signature
//! at hand: the least that any verification costs. The libraries check signature, algorithm, issuer and expiry, and then the
//! verdict, the amount and the recipient, which our library compares itself, and by hand elsewhere. Each must first refuse a
//! token whose signature is another's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use mandate_core::Timestamp;
use mandate_core::es256::{SIGNATURE_BYTES, signer};
use mandate_core::jwt::Unverified;
use mandate_server::clock::{Clock as _, SystemClock};

use crate::figures::median;
use crate::output::{Measured, Series};
use crate::pace::Pace;
use crate::verdicts::{Keys, claims, forged, sign};
use crate::{Args, Failure};

/// How many tokens there are, each with an id and a nonce of its own.
const TOKENS: u32 = 4_096;
/// Where `tests/run` installs the libraries of other languages, below the target directory.
const STRANGERS: &str = "strangers";

const OURS: &str = "mandate-core";
const BARE: &str = "aws-lc-rs, the signature alone";
const JSONWEBTOKEN: &str = "`jsonwebtoken` 11 on aws-lc-rs";
const PYJWT: &str = "PyJWT";
const JOSE: &str = "npm `jose`";
const PACKAGE: &str = "npm `mandate-core`";
/// Where `tests/run` builds our npm package, below the target directory.
const BUILT: &str = "js/mandate-core/lib/node.js";

/// One library.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// Of each round; none, where it is not installed.
    rounds: Vec<Pace>,
}

/// The tokens of a round and their key, in files too.
struct Tokens {
    directory: PathBuf,
    good: Vec<String>,
    forged: String,
    keys: Keys,
    now: Timestamp,
}

/// Measures them alternately; `target` is the target directory.
pub(crate) fn measure(args: &Args, target: &Path, directory: &Path) -> Result<Measured, Failure> {
    let mut rows =
        [OURS, BARE, JSONWEBTOKEN, PYJWT, JOSE, PACKAGE].map(|name| Row { name, rounds: Vec::new() });
    let strangers = target.join(STRANGERS);
    for round in 1..=args.rounds() {
        // Anew each time: they are valid for five minutes.
        let tokens = Tokens::make(directory)?;
        for row in &mut rows {
            let done = match row.name {
                PYJWT => {
                    tokens.stranger(args, &strangers.join("venv/bin/python"), &strangers, "verify.py")?
                }
                JOSE if strangers.join("node_modules/jose").exists() => {
                    tokens.stranger(args, Path::new("node"), &strangers, "verify.mjs")?
                }
                PACKAGE if target.join(BUILT).exists() => {
                    tokens.stranger(args, Path::new("node"), &strangers, "verify_package.mjs")?
                }
                JOSE | PACKAGE => None,
                OURS => Some(tokens.ours(args)?),
                BARE => Some(tokens.bare(args)?),
                _ => Some(tokens.jsonwebtoken(args)?),
            };
            match done {
                Some(done) => {
                    eprintln!("round {round}: {}: {:.1} µs a token", row.name, done.cpu_microseconds);
                    row.rounds.push(done);
                }
                None => {
                    eprintln!("{} is not installed below {}: see tests/run", row.name, strangers.display());
                }
            }
        }
    }
    let series = rows.iter().map(|row| Series::of("verify", row.name, &row.rounds));
    Ok(Measured { text: render(args, &rows)?, series: series.collect::<Result<_, _>>()? })
}

impl Tokens {
    fn make(directory: &Path) -> Result<Self, Failure> {
        let (now, keys) = (SystemClock.now(), Keys::new()?);
        let signer = signer(&keys.secret, keys.kid.clone())?;
        let good = (0..TOKENS).map(|n| sign(&*signer, &claims(now, n)?)).collect::<Result<Vec<_>, _>>()?;
        let [one, other] = good.first_chunk().ok_or("there are no tokens")?;
        let forged = forged(one, other)?;
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text);
        write("tokens", &good.join("\n"))?;
        write("forged", &forged)?;
        write("keys", &keys.set.to_json())?;
        Ok(Self { directory: directory.to_owned(), good, forged, keys, now })
    }

    fn ours(&self, args: &Args) -> Result<Pace, Failure> {
        let expected = self.keys.expected(self.now);
        Self::here(args, &self.good, &self.forged, |token| self.keys.verify(token, &expected))
    }

    /// The signature alone: the key, the message and the signature are read beforehand.
    fn bare(&self, args: &Args) -> Result<Pace, Failure> {
        let public = self.keys.secret.public_key();
        let point = [&[4], public.x().as_slice(), public.y()].concat();
        let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)?;
        let good = self.good.iter().map(|token| signed(token)).collect::<Result<Vec<_>, _>>()?;
        Self::here(args, &good, &signed(&self.forged)?, |(message, signature)| {
            Ok(key.verify_sig(message.as_bytes(), signature)?)
        })
    }

    fn jsonwebtoken(&self, args: &Args) -> Result<Pace, Failure> {
        Self::here(args, &self.good, &self.forged, |token| self.keys.verify_with_jsonwebtoken(token))
    }

    /// Runs one in this process: all tokens once, and then again and again.
    fn here<T>(
        args: &Args,
        good: &[T],
        forged: &T,
        verify: impl Fn(&T) -> Result<(), Failure>,
    ) -> Result<Pace, Failure> {
        if verify(forged).is_ok() {
            return Err("a forged token passes".into());
        }
        good.iter().try_for_each(&verify)?;
        let mut tokens = good.iter().cycle();
        Pace::keep(args.seconds(), || verify(tokens.next().ok_or("there are no tokens")?))
    }

    /// Runs one of another language, unless it is not installed.
    fn stranger(
        &self,
        args: &Args,
        program: &Path,
        strangers: &Path,
        script: &str,
    ) -> Result<Option<Pace>, Failure> {
        let source = match script {
            "verify.py" => include_str!("strangers/verify.py"),
            "verify_package.mjs" => include_str!("strangers/verify_package.mjs"),
            _ => include_str!("strangers/verify.mjs"),
        };
        if program.is_absolute() && !program.exists() {
            return Ok(None);
        }
        // node looks for packages from where the script is.
        let path = strangers.join(format!("bench-{script}"));
        std::fs::write(&path, source)?;
        let files = ["keys", "tokens", "forged"].map(|name| self.directory.join(name));
        let output = Command::new(program).arg(&path).args(files).arg(args.seconds().to_string()).output();
        std::fs::remove_file(&path)?;
        let output = output?;
        let text = String::from_utf8_lossy(&output.stdout);
        let figures: Vec<f64> = text.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
        match figures[..] {
            [count, took, used] if output.status.success() => Ok(Some(Pace::of(count, took, used))),
            _ => Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

/// What is signed of a token, and its signature.
fn signed(token: &str) -> Result<(&str, [u8; SIGNATURE_BYTES]), Failure> {
    let (message, _) = token.rsplit_once('.').ok_or("a token has no signature")?;
    Ok((message, *Unverified::parse(token)?.signature()))
}

/// The table.
fn render(args: &Args, rows: &[Row]) -> Result<String, Failure> {
    let mut text = String::new();
    writeln!(
        text,
        "Medians of {} rounds of {} seconds, ratios round by round; {TOKENS} tokens of one key, one after the other.\n",
        args.rounds(),
        args.seconds()
    )?;
    writeln!(
        text,
        "| Verified with | Processor time a token, µs | of mandate-core's | Tokens/s |\n|---|---|---|---|"
    )?;
    let ours = rows.first().map(|row| row.rounds.as_slice()).unwrap_or_default();
    for row in rows {
        if row.rounds.is_empty() {
            writeln!(text, "| {} | not installed | | |", row.name)?;
            continue;
        }
        let ratios =
            row.rounds.iter().zip(ours).map(|(one, ours)| one.cpu_microseconds / ours.cpu_microseconds);
        writeln!(
            text,
            "| {} | {:.1} | {:.2} | {:.0} |",
            row.name,
            median(row.rounds.iter().map(|pace| pace.cpu_microseconds)),
            median(ratios),
            median(row.rounds.iter().map(|pace| pace.per_second))
        )?;
    }
    Ok(text)
}
