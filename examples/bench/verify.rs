//! Verifying verdicts, one after the other, beside libraries that others use: `jsonwebtoken`, PyJWT and npm `jose`.
//!
//! All verify the same tokens under the same key: signature, algorithm, issuer and expiry, and then the verdict, the amount and the
//! recipient, which our library compares itself, and by hand elsewhere. Each must first refuse a token whose signature is another's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use mandate_core::Timestamp;
use mandate_core::es256::signer;
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

/// Measures them in turn; `target` is the target directory.
pub(crate) fn measure(args: &Args, target: &Path, directory: &Path) -> Result<Measured, Failure> {
    let mut rows = ["mandate-core", "`jsonwebtoken` 11 on aws-lc-rs", "PyJWT", "npm `jose`"]
        .map(|name| Row { name, rounds: Vec::new() });
    let strangers = target.join(STRANGERS);
    for round in 1..=args.rounds() {
        // Anew each time: they are valid for five minutes.
        let tokens = Tokens::make(directory)?;
        for row in &mut rows {
            let done = match row.name {
                "PyJWT" => {
                    tokens.stranger(args, &strangers.join("venv/bin/python"), &strangers, "verify.py")?
                }
                "npm `jose`" if strangers.join("node_modules/jose").exists() => {
                    tokens.stranger(args, Path::new("node"), &strangers, "verify.mjs")?
                }
                "npm `jose`" => None,
                "mandate-core" => Some(tokens.ours(args)?),
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
        self.here(args, |token| self.keys.verify(token, &expected))
    }

    fn jsonwebtoken(&self, args: &Args) -> Result<Pace, Failure> {
        self.here(args, |token| self.keys.verify_with_jsonwebtoken(token))
    }

    /// Runs one in this process: all tokens once, and then again and again.
    fn here(&self, args: &Args, verify: impl Fn(&str) -> Result<(), Failure>) -> Result<Pace, Failure> {
        if verify(&self.forged).is_ok() {
            return Err("a forged token passes".into());
        }
        self.good.iter().try_for_each(|token| verify(token))?;
        let mut tokens = self.good.iter().cycle();
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
            "| {} | {:.1} | {:.1} | {:.0} |",
            row.name,
            median(row.rounds.iter().map(|pace| pace.cpu_microseconds)),
            median(ratios),
            median(row.rounds.iter().map(|pace| pace.per_second))
        )?;
    }
    Ok(text)
}
