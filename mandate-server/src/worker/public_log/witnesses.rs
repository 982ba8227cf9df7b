//! Asks the configured witnesses to cosign a checkpoint (C2SP tlog-witness).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use mandate_core::EnvironmentKind;
use mandate_core::log::{
    AddCheckpoint, NoteSignature, SignedCheckpoint, VerifierKey, consistency_nodes, prove_consistency,
    read_conflict,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::unwilling;
use crate::clock::Clock;
use crate::error::Fault;
use crate::outgoing::{Client, SystemNames};
use crate::service::public_log::{publish, serve};
use crate::store::Store;
use crate::store::sql::public_log::PublicLog;
use crate::store::sql::witnesses::{self, Witness};

/// How long a checkpoint waits for its witnesses.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it waits for the others when more than half have cosigned.
const MOMENT: Duration = Duration::from_millis(100);
/// Each checkpoint of this number waits for all witnesses as long as there is patience, so that a slow one cosigns now and then.
const OUTWAITED: u32 = 10;
/// How often a witness that has not cosigned the newest checkpoint of a quiet log is asked again.
const AGAIN: Duration = Duration::from_secs(10);
/// How many connections are kept.
const MAX_IDLE: usize = 16;
/// How many times one witness is asked for one checkpoint: once more when it has told which size it knows.
const ATTEMPTS: usize = 2;
/// The Content-Type of a request.
const TEXT: &str = "text/plain; charset=utf-8";

/// Its holder asks a witness: one thing at a time, since each answer says from where on the next proof must be. Holds the size that
/// the witness has cosigned last, as far as that is known.
type Turn = Arc<tokio::sync::Mutex<u64>>;

/// The witnesses.
pub(super) struct Witnesses {
    client: Client,
    clock: Arc<dyn Clock>,
    /// The turns to ask each, by its key and the log.
    turns: Mutex<HashMap<(String, i64), Turn>>,
    /// When those that had not cosigned were asked again last, for each kind of log.
    asked: Mutex<HashMap<&'static str, Instant>>,
    /// How many checkpoints of each kind of log were cosigned since one has waited for all.
    hurried: Mutex<HashMap<EnvironmentKind, u32>>,
    /// The logs that the witnesses were asked about since this server keeps them, and since when that is.
    compared: Mutex<(i64, HashSet<i64>)>,
}

/// What witnesses are asked.
struct Question {
    store: Store,
    log: PublicLog,
    signed: SignedCheckpoint,
    /// Whether one is asked in its turn that is still being asked something else. Otherwise it is not asked.
    waits: bool,
}

/// What the witnesses have answered.
pub(super) struct Answers {
    /// The checkpoint with the cosignatures that came in time.
    pub(super) checkpoint: SignedCheckpoint,
    /// One has cosigned it.
    pub(super) is_cosigned: bool,
    /// More than half have.
    pub(super) witnessed: bool,
    /// All have answered, and none has cosigned.
    pub(super) refused: bool,
    /// One has cosigned what the log does not have.
    pub(super) contradiction: Option<Contradiction>,
}

/// What a witness says that it has cosigned, and this log does not have.
pub(super) struct Contradiction {
    witness: String,
    size: u64,
    /// It refuses what continues the log from that size on: the entries before are others.
    is_fork: bool,
}

/// What one witness has said.
enum Said {
    Cosigned(NoteSignature),
    Contradicts(Contradiction),
    Refused,
    /// Nothing, or what does not say whether it has cosigned.
    Unclear,
}

impl Contradiction {
    /// Who says so.
    pub(super) fn witness(&self) -> &str {
        &self.witness
    }

    /// Why the log must not grow, now that it has so many entries. None: it has by now what the witness has cosigned.
    pub(super) fn stops(&self, has: u64) -> Option<String> {
        let Self { witness, size, is_fork } = self;
        let what = if *is_fork {
            format!(
                "the witness {witness} says that the first {size} entries it has cosigned are not those of this log"
            )
        } else if *size > has {
            format!("the log has {has} entries, and the witness {witness} says that it has cosigned {size}")
        } else {
            return None;
        };
        Some(format!("{what}: the database was restored, or the witness errs; see `log witness remove`"))
    }
}

impl Witnesses {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let client = Client::new(Arc::new(SystemNames), PATIENCE, MAX_IDLE)
            .map_err(|e| Fault::new(format!("witnesses: {e}")))?;
        let (turns, asked) = (Mutex::default(), Mutex::default());
        Ok(Self { client, clock, turns, asked, hurried: Mutex::default(), compared: Mutex::default() })
    }

    /// Whether witnesses may be asked again for a checkpoint of a log of this kind, which is noted.
    pub(super) fn may_ask_again(&self, kind: EnvironmentKind) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let may = asked.get(kind.as_str()).is_none_or(|at| at.elapsed() >= AGAIN);
        if may {
            asked.insert(kind.as_str(), Instant::now());
        }
        may
    }

    /// Whether this checkpoint of a log of this kind is one that waits for all.
    fn waits_for_all(&self, kind: EnvironmentKind) -> bool {
        let mut hurried = self.hurried.lock().unwrap_or_else(PoisonError::into_inner);
        let count = hurried.entry(kind).or_default();
        *count = (*count + 1) % OUTWAITED;
        *count == 0
    }

    /// Whether the witnesses were asked about this log since this server keeps it, or need not be.
    pub(super) fn were_compared(&self, log: i64) -> bool {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).1.contains(&log)
    }

    /// Notes that.
    pub(super) fn compared(&self, log: i64) {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).1.insert(log);
    }

    /// This server keeps the logs, since then. If another one has kept them meanwhile, the witnesses are asked again.
    pub(super) fn keep_since(&self, since: i64) {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if compared.0 != since {
            *compared = (since, HashSet::new());
        }
    }

    /// What the witnesses have cosigned and the log does not have, as far as they answer in time to what was signed last.
    pub(super) async fn contradiction(
        self: &Arc<Self>,
        store: &Store,
        log: &PublicLog,
        last: &SignedCheckpoint,
    ) -> Result<Option<Contradiction>, Fault> {
        let witnesses = store.read(witnesses::all).await??;
        let (store, log, signed) = (store.clone(), log.clone(), last.clone());
        let mut asked = self.ask_all(Question { store, log, signed, waits: true }, witnesses);
        let (until, mut found) = (Instant::now() + PATIENCE, Vec::new());
        while let Ok(Some(said)) = timeout_at(until, asked.join_next()).await {
            if let Ok(Said::Contradicts(what)) = said {
                found.push(what);
            }
        }
        asked.detach_all();
        Ok(gravest(found))
    }

    /// Has a checkpoint cosigned by those that have not yet, and answer in time. Once more than half have, the others have a
    /// moment left, but for each tenth checkpoint.
    pub(super) async fn cosign(
        self: &Arc<Self>,
        store: &Store,
        log: &PublicLog,
        mut checkpoint: SignedCheckpoint,
    ) -> Result<Answers, Fault> {
        let witnesses = store.read(witnesses::all).await??;
        // More than half; without witnesses there is no quorum to have.
        let (count, quorum, waits) = (witnesses.len(), witnesses.len() / 2 + 1, self.waits_for_all(log.kind));
        let has = |witness: &Witness| matches!(checkpoint.cosignature(&witness.key), Ok(Some(_)));
        let (had, lacking): (Vec<_>, Vec<_>) = witnesses.into_iter().partition(has);
        let question = Question { store: store.clone(), log: log.clone(), signed: checkpoint.clone(), waits };
        let mut asked = self.ask_all(question, lacking);
        let (mut until, mut cosigned, mut said) = (Instant::now() + PATIENCE, had.len(), Vec::new());
        // What has come by then counts.
        while let Ok(Some(one)) = timeout_at(until, asked.join_next()).await {
            let one = one.unwrap_or(Said::Unclear);
            if let Said::Cosigned(signature) = &one {
                cosigned += usize::from(publish::add_cosignature(&mut checkpoint, signature));
            }
            said.push(one);
            if cosigned >= quorum && !waits {
                until = until.min(Instant::now() + MOMENT);
            }
        }
        asked.detach_all();
        let is_refusal = |said: &Said| matches!(said, Said::Contradicts(_) | Said::Refused);
        let refused = said.len() == count && said.iter().all(is_refusal);
        let contradictions = said.into_iter().filter_map(|said| match said {
            Said::Contradicts(what) => Some(what),
            Said::Cosigned(_) | Said::Refused | Said::Unclear => None,
        });
        Ok(Answers {
            contradiction: gravest(contradictions.collect()),
            checkpoint,
            is_cosigned: cosigned > 0,
            witnessed: cosigned >= quorum,
            refused,
        })
    }

    /// Asks these witnesses at once. Each has its whole time, also where its answer is not waited for any more.
    fn ask_all(self: &Arc<Self>, question: Question, witnesses: Vec<Witness>) -> JoinSet<Said> {
        let (mut asked, question) = (JoinSet::new(), Arc::new(question));
        for witness in witnesses {
            let (this, question) = (Arc::clone(self), Arc::clone(&question));
            asked.spawn(async move { this.ask(&question, &witness).await });
        }
        asked
    }

    /// Asks one witness.
    async fn ask(&self, question: &Question, witness: &Witness) -> Said {
        let of = (witness.key.to_string(), question.log.id);
        let turn =
            Arc::clone(self.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(of).or_default());
        let known = if question.waits { Some(turn.lock().await) } else { turn.try_lock().ok() };
        let Some(mut known) = known else { return Said::Unclear };
        match self.try_to_ask(question, witness, &mut known).await {
            Ok(said) => said,
            Err(why) => {
                unwilling(witness.key.name(), &why);
                Said::Unclear
            }
        }
    }

    async fn try_to_ask(
        &self,
        question: &Question,
        witness: &Witness,
        known: &mut u64,
    ) -> Result<Said, Fault> {
        let Question { store, log, signed, .. } = question;
        let url = format!("{}/add-checkpoint", witness.url.trim_end_matches('/'));
        let new = signed.checkpoint().size();
        let contradicts = |size, is_fork| {
            let witness = witness.key.name().to_owned();
            Said::Contradicts(Contradiction { witness, size, is_fork })
        };
        for _ in 0..ATTEMPTS {
            let old = (*known).min(new);
            let request = request(store, log.clone(), signed.clone(), old).await?;
            let answered = self.client.post(&url, TEXT, request.to_string()).await;
            let answered = answered.map_err(|e| Fault::Provider(e.to_string()))?;
            let body = answered.body.map_err(|e| Fault::Provider(e.to_string()))?;
            match answered.status {
                StatusCode::OK => {
                    let signature = cosignature(&body, signed, &witness.key, &*self.clock)?;
                    *known = new;
                    return Ok(Said::Cosigned(signature));
                }
                StatusCode::CONFLICT => {
                    let no_size = || Fault::Provider("its answer 409 has no size".to_owned());
                    let size = read_conflict(&body).ok_or_else(no_size)?;
                    // To a request from that very size: it knows another root there (tlog-witness 1.0). Every log begins empty.
                    if size == old && size > 0 {
                        return Ok(contradicts(size, true));
                    }
                    *known = size;
                    if size > new {
                        return Ok(contradicts(size, false));
                    }
                }
                // The proof is not from what it has cosigned; since 1.1 it says so of another root of the same size too.
                StatusCode::UNPROCESSABLE_ENTITY if old > 0 => return Ok(contradicts(old, true)),
                status if status.is_client_error() => {
                    unwilling(witness.key.name(), &format_args!("it answered {status}"));
                    return Ok(Said::Refused);
                }
                status => return Err(Fault::Provider(format!("it answered {status}"))),
            }
        }
        Err(Fault::Provider("it does not keep to the size that it told".to_owned()))
    }
}

fn gravest(contradictions: Vec<Contradiction>) -> Option<Contradiction> {
    contradictions.into_iter().max_by_key(|what| (what.is_fork, what.size))
}

/// The request to cosign a checkpoint, with the proof that it is consistent with the log at `old`.
async fn request(
    store: &Store,
    log: PublicLog,
    checkpoint: SignedCheckpoint,
    old: u64,
) -> Result<AddCheckpoint, Fault> {
    store
        .read(move |tx| {
            let new = checkpoint.checkpoint().size();
            let tiles = serve::tiles(tx, &log, new, &consistency_nodes(old, new))?;
            let consistency = prove_consistency(old, new, &tiles)
                .map_err(|e| Fault::corrupt(format!("{}: {e}", log.origin)))?;
            Ok(AddCheckpoint { old, consistency, checkpoint: checkpoint.clone() })
        })
        .await?
}

/// The one line of an answer, if it is this witness's cosignature of the checkpoint, and of this hour.
fn cosignature(
    body: &[u8],
    signed: &SignedCheckpoint,
    key: &VerifierKey,
    clock: &dyn Clock,
) -> Result<NoteSignature, Fault> {
    const MAX_APART_SECONDS: i64 = 60 * 60;
    let wrong = |why: &dyn std::fmt::Display| Fault::Provider(format!("its cosignature is refused: {why}"));
    for signature in NoteSignature::parse_lines(body).map_err(|e| wrong(&e))? {
        let mut cosigned = signed.clone();
        cosigned.add(signature.clone());
        let Some(found) = cosigned.cosignature(key).map_err(|e| wrong(&e))? else { continue };
        if found.seconds.saturating_sub(clock.now().seconds()).abs() > MAX_APART_SECONDS {
            return Err(wrong(&"its time is more than an hour from this server's"));
        }
        return Ok(signature);
    }
    Err(wrong(&"it is by another key"))
}
