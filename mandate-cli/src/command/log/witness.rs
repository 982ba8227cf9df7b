//! `mandate log witness`: cosigns the checkpoints of logs, each only if it is a later state of the one before.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

pub(super) mod secret;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use mandate_core::log::{
    AddCheckpoint, CONFLICT_CONTENT_TYPE, KeyKind, MAX_ADD_CHECKPOINT_BYTES, SignedCheckpoint, SigningKey,
    VerifierKey, WitnessRefused, WitnessedLog, cosign, write_conflict,
};

use self::store::Store;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::public_log::trust::{TrustArgs, key};
use crate::receiver::{Answer, Request, receive};
use crate::style::printable;

/// The path of the one operation.
const PATH: &str = "/add-checkpoint";

/// Be a witness: cosign a log's checkpoints, each only if it continues the one before
///
/// A log that shows different things to different people needs two states; a witness cosigns only one. It speaks C2SP
/// tlog-witness: the log's operator adds this witness's address and verifier key, and posts each checkpoint to
/// `/add-checkpoint` with a proof that it continues the last one. A witness should be run by no friend of the operator.
///
/// The folder of --state has a file for each log, with the last checkpoint that was cosigned. It is written before the
/// cosignature is given out. Never restore it from a copy and never run a key in two places: a witness that forgets cosigns
/// a fork. One request is 136 KiB at most and has ten seconds; eight are served at a time.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log key create witness.example.org/w1 -o witness.key
  mandate log witness --key witness.key --state witness --log-key @log.key
  mandate log witness --key witness.key --state witness --policy logs.policy \\
      --listen 127.0.0.1:8090")]
pub(crate) struct Witness {
    /// The witness's secret key, which `mandate log key create` has written
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The folder of the last checkpoint of each log
    #[arg(long, value_name = "FOLDER")]
    state: PathBuf,
    /// The verifier key of a log, or @FILE; can be repeated
    #[arg(long, value_name = "KEY|@FILE", required_unless_present = "policy")]
    log_key: Vec<String>,
    /// A policy whose logs are witnessed
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The address to listen on, without TLS: on loopback, behind a proxy
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
}

/// A running witness.
struct Server {
    key: SigningKey,
    logs: Vec<VerifierKey>,
    /// Only one request at a time reads a state and replaces it.
    store: Mutex<Store>,
}

impl Witness {
    pub(super) fn run(&self) -> Result<Exit, Failure> {
        let key = secret::read(&self.key)?;
        let logs = self.logs()?;
        let store = Store::open(&self.state, key.verifier())?;
        for log in &logs {
            // A damaged state is found at the start.
            store.last(log.name())?;
        }
        let (verifier, count) = (key.verifier().to_string(), logs.len());
        let server = Arc::new(Server { key, logs, store: Mutex::new(store) });
        let answer = move |request: Request<'_>| server.answer(request);
        let address = receive(self.listen, MAX_ADD_CHECKPOINT_BYTES, answer).map_err(|e| {
            Failure::new(Exit::Io, format!("cannot listen on {}: {e}", self.listen))
                .next("--listen 127.0.0.1:0 chooses a free port")
        })?;
        let logs = if count == 1 { "1 log".to_owned() } else { format!("{count} logs") };
        say(&format!("witness {} of {logs} on http://{address}; Ctrl-C ends\n", printable(&verifier)));
        loop {
            std::thread::park();
        }
    }

    fn logs(&self) -> Result<Vec<VerifierKey>, Failure> {
        let mut logs: Vec<_> =
            self.log_key.iter().map(|text| key(text, KeyKind::Note)).collect::<Result<_, _>>()?;
        let args = TrustArgs { log_key: None, policy: self.policy.clone() };
        logs.extend(args.policy()?.logs().map(|(key, _)| key.clone()));
        if logs.is_empty() {
            return Err(Failure::new(Exit::Usage, "there is no log to witness: the policy lists none")
                .next("pass --log-key KEY, or a policy with a line `log KEY`"));
        }
        Ok(logs)
    }
}

impl Server {
    fn answer(&self, request: Request<'_>) -> Answer {
        if request.path != PATH {
            return Answer::new(404, format!("there is only {PATH}\n"));
        }
        match AddCheckpoint::parse(request.body) {
            Ok(asked) => self.cosign(&asked),
            Err(e) => refused(&e),
        }
    }

    fn cosign(&self, asked: &AddCheckpoint) -> Answer {
        let origin = asked.checkpoint.checkpoint().origin();
        // A panic cannot leave a state half written: the file is replaced in one step.
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let faulty = |failure: &Failure| {
            say(&failure.render());
            Answer::new(500, "the witness cannot read or write its state\n")
        };
        let keys: Vec<_> = self.logs.iter().filter(|log| log.name() == origin).cloned().collect();
        // The name of a log that is not witnessed names no file.
        let last = if keys.is_empty() { Ok(None) } else { store.last(origin) };
        let last = match last {
            Ok(last) => last.map(|last| (last.size(), *last.root())),
            Err(failure) => return faulty(&failure),
        };
        let checkpoint = match (WitnessedLog { keys, last }).decide(asked) {
            Ok(checkpoint) => checkpoint,
            Err(e) => return refused(&e),
        };
        let seconds = u64::try_from(environment::now().seconds()).unwrap_or_default();
        let cosignature = cosign(&self.key, checkpoint, seconds);
        // Signatures of strangers are not kept: anyone can add them.
        let Some(mut cosigned) = self.only_signed(&asked.checkpoint) else {
            return Answer::new(403, "no known key has signed the checkpoint\n");
        };
        cosigned.add(cosignature.clone());
        if let Err(failure) = store.keep(&cosigned) {
            return faulty(&failure);
        }
        say(&format!("cosigned {} with {} entries\n", printable(origin), checkpoint.size()));
        Answer::new(200, format!("{cosignature}\n"))
    }
}

impl Server {
    /// The checkpoint with the signature of the log's key and no other.
    fn only_signed(&self, signed: &SignedCheckpoint) -> Option<SignedCheckpoint> {
        let key = self.logs.iter().find(|log| signed.verify(log).is_ok())?;
        let signature = signed.note().signatures().iter().find(|signature| key.made(signature))?;
        let bytes = signature.bytes().try_into().ok()?;
        Some(signed.checkpoint().clone().with_signature(key, bytes))
    }
}

fn refused(error: &WitnessRefused) -> Answer {
    match error {
        WitnessRefused::Conflict { size } => {
            Answer::new(error.status(), write_conflict(*size)).of_type(CONFLICT_CONTENT_TYPE)
        }
        _ => Answer::new(error.status(), format!("{}: {error}\n", error.name())),
    }
}
