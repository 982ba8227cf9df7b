//! Verifying verdicts, one after the other, beside libraries that others use: `jsonwebtoken`, PyJWT and npm `jose`.
//!
//! All verify the same tokens under the same key: signature, algorithm, issuer and expiry, and then the verdict, the amount and the
//! recipient, which our library compares itself, and by hand elsewhere. Each must first refuse a token whose signature is another's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use mandate_core::es256::{SecretKey, Signer, signer};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::verify::{Expected, verify_verdict};
use mandate_core::{
    AgentId, Amount, DecisionId, EnvironmentKind, MandateId, Nonce, PolicyVersion, Recipient, Request,
    Timestamp, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, jwt,
};
use mandate_server::clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

use crate::figures::median;
use crate::output::{Measured, Series};
use crate::{Args, Failure};

const ISSUER: &str = "https://verdicts.example";
/// How many tokens there are, each with an id and a nonce of its own.
const TOKENS: u32 = 4_096;
/// After how many the clock is looked at.
const AT_A_TIME: usize = 256;
/// Where `tests/run` installs the libraries of other languages, below the target directory.
const STRANGERS: &str = "strangers";

/// One library.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// Of each round; none, where it is not installed.
    rounds: Vec<Done>,
}

/// What one did in a round.
#[derive(Debug, Clone, Copy, Serialize)]
struct Done {
    per_second: f64,
    cpu_microseconds: f64,
}

/// The tokens of a round and their key, in files too.
struct Tokens {
    directory: PathBuf,
    good: Vec<String>,
    forged: String,
    keys: KeySet,
    decoding: DecodingKey,
    now: Timestamp,
}

/// The claims as a user of `jsonwebtoken` would write them down.
#[derive(Deserialize)]
struct Claims {
    verdict: String,
    request: ClaimedRequest,
}

#[derive(Deserialize)]
struct ClaimedRequest {
    amount: f64,
    recipient: String,
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
        let now = SystemClock.now();
        // Nothing depends on what it signs.
        let secret = SecretKey::from_bytes([7; 32])?;
        let public = *secret.public_key();
        let kid = Kid::for_key(&public, EnvironmentKind::Sandbox);
        let signer = signer(&secret, kid.clone())?;
        let tokens = (0..TOKENS).map(|n| sign(&*signer, now, n)).collect::<Result<Vec<_>, _>>()?;
        let [one, other] = tokens.first_chunk().ok_or("there are no tokens")?;
        let (claims, _) = one.rsplit_once('.').ok_or("a token has no signature")?;
        let (_, signature) = other.rsplit_once('.').ok_or("a token has no signature")?;
        let forged = format!("{claims}.{signature}");
        let keys = KeySet::new(vec![VerificationKey::new(kid, public)?])?;
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text);
        write("tokens", &tokens.join("\n"))?;
        write("forged", &forged)?;
        write("keys", &keys.to_json())?;
        let point = [&[4], public.x().as_slice(), public.y()].concat();
        let decoding = DecodingKey::from_ec_der(&point);
        Ok(Self { directory: directory.to_owned(), good: tokens, forged, keys, decoding, now })
    }

    fn ours(&self, args: &Args) -> Result<Done, Failure> {
        let expected = Expected {
            amount: Some(Amount::parse("40.5")?),
            recipient: Some(Recipient::parse("vendor:acme")?),
            ..Expected::new(ISSUER, self.now)
        };
        self.here(args, |token| Ok(verify_verdict(token, &self.keys, &expected).map(drop)?))
    }

    fn jsonwebtoken(&self, args: &Args) -> Result<Done, Failure> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[ISSUER]);
        self.here(args, |token| {
            let Claims { verdict, request } =
                jsonwebtoken::decode::<Claims>(token, &self.decoding, &validation)?.claims;
            let is_asked_for = verdict == "allow"
                && request.amount.to_bits() == 40.5_f64.to_bits()
                && request.recipient == "vendor:acme";
            if is_asked_for { Ok(()) } else { Err("not what was asked for".into()) }
        })
    }

    /// Runs one in this process: all tokens once, and then again and again.
    #[expect(clippy::cast_precision_loss, reason = "counts and times, to be rounded")]
    fn here(&self, args: &Args, verify: impl Fn(&str) -> Result<(), Failure>) -> Result<Done, Failure> {
        if verify(&self.forged).is_ok() {
            return Err("a forged token passes".into());
        }
        self.good.iter().try_for_each(|token| verify(token))?;
        let (start, used, mut count) = (Instant::now(), thread_time()?, 0);
        let mut tokens = self.good.iter().cycle();
        while start.elapsed() < Duration::from_secs(args.seconds()) {
            tokens.by_ref().take(AT_A_TIME).try_for_each(|token| verify(token))?;
            count += AT_A_TIME;
        }
        let (took, used) = (start.elapsed().as_secs_f64(), thread_time()? - used);
        Ok(Done { per_second: count as f64 / took, cpu_microseconds: used * 1e6 / count as f64 })
    }

    /// Runs one of another language, unless it is not installed.
    fn stranger(
        &self,
        args: &Args,
        program: &Path,
        strangers: &Path,
        script: &str,
    ) -> Result<Option<Done>, Failure> {
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
            [count, took, used] if output.status.success() => {
                Ok(Some(Done { per_second: count / took, cpu_microseconds: used * 1e6 / count }))
            }
            _ => Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

fn sign(signer: &dyn Signer, now: Timestamp, number: u32) -> Result<String, Failure> {
    let body = br#"{"amount":40.5,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    let claims = VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: DecisionId::new(now, number.into()),
        iat: now.seconds(),
        exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(MandateId::new(now, 0)),
        policy_version: PolicyVersion::parse("pol_2026-01-01.1")?,
        nonce: Nonce::new(now, number.into()),
        request: Request::read(AgentId::parse("agt_buyer")?, Object::parse(body)?)?,
    };
    Ok(jwt::sign(signer, &claims.to_json())?)
}

/// The processor time of this thread so far, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a time, to be rounded")]
fn thread_time() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
    Ok(nanoseconds.ok_or("/proc does not tell the time of this thread")? as f64 / 1e9)
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
            median(row.rounds.iter().map(|done| done.cpu_microseconds)),
            median(ratios),
            median(row.rounds.iter().map(|done| done.per_second))
        )?;
    }
    Ok(text)
}
