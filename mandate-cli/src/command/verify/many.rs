//! Many tokens: one line of output for each line of input, in order, on all cores.

use std::ops::ControlFlow;

use mandate_core::json::Object;
use mandate_core::{Invalid, Timestamp};

use super::super::{WITH_SCHEME, has_scheme};
use super::Verify;
use super::check::{Verified, Verifier, claim};
use super::order::Wanted;
use super::report::{Refusal, Report};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::key_set::Issuer;
use crate::lines::{Line, Lines, unreadable};
use crate::nonce_store::{FileNonces, NonceBatch};
use crate::output::Output;
use crate::parallel;

/// The answer to one line.
struct Answer {
    line: u64,
    id: Option<String>,
    report: Report,
    verified: Option<Verified>,
    now: Timestamp,
}

/// One line of input.
struct InputLine {
    id: Option<String>,
    token: String,
    wanted: Wanted,
}

pub(super) fn run(
    args: &Verify,
    source: &Source,
    global: &Global,
    output: &mut Output,
) -> Result<Exit, Failure> {
    output.only_lines()?;
    super::proof::without(&args.trust)?;
    let issuer = super::issuer(args, global)?;
    let nonces =
        args.nonce_store.as_deref().map(|path| FileNonces::open(path, environment::now())).transpose()?;
    // A key set that cannot be fetched is reported once, not on each line.
    issuer.keys()?;
    let mut lines = Lines::open(source, "the tokens")?;
    let blocks = std::iter::from_fn(move || match lines.block() {
        Ok(block) if block.is_empty() => None,
        read => Some(read),
    });
    let verifier = Verifier { args, issuer: &issuer.name };
    let wanted = Wanted::of(args)?;
    let work = |block: std::io::Result<Vec<Line>>| {
        let answer = |line: &Line| answer(verifier, &issuer, &wanted, line);
        block.map(|lines| lines.iter().filter_map(answer).collect::<Vec<_>>())
    };
    let mut ended = Ok(Exit::Success);
    let mut is_empty = true;
    parallel::ordered(blocks, work, |answers| {
        let answers = answers.map_err(|e| unreadable("the tokens", source, &e));
        is_empty &= answers.as_ref().is_ok_and(Vec::is_empty);
        match answers.and_then(|answers| print(answers, args, nonces.as_ref(), output)) {
            Ok(exit) => {
                if matches!(ended, Ok(Exit::Success)) {
                    ended = Ok(exit);
                }
                if output.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Err(failure) => {
                ended = Err(failure);
                ControlFlow::Break(())
            }
        }
    });
    if is_empty && matches!(ended, Ok(Exit::Success)) {
        return Err(Failure::new(Exit::MalformedToken, format!("there is no token in {source}"))
            .next("write one token a line, or one JSON object a line with `token`"));
    }
    ended
}

/// Claims the nonces of the block in order, then prints its answers. The exit code is that of the first
/// invalid line.
fn print(
    mut answers: Vec<Answer>,
    args: &Verify,
    nonces: Option<&FileNonces>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let batch = nonces.map(FileNonces::batch).transpose()?;
    for answer in &mut answers {
        if let Some(verified) = &answer.verified {
            claim::<NonceBatch<'_>>(&mut answer.report, verified, args, batch.as_ref(), answer.now)?;
        }
    }
    batch.map(NonceBatch::commit).transpose()?;
    let mut text = String::new();
    for answer in &answers {
        let brief = answer.report.brief(answer.line, answer.id.as_deref(), args.explain);
        let line = serde_json::to_string(&brief).map_err(|e| Failure::new(Exit::Io, e.to_string()))?;
        let lines = output.rendered(&line).map_err(|failure| lost(failure, &answers))?;
        text.push_str(&lines);
    }
    output.text(&text);
    let exits = answers.iter().map(|answer| answer.report.exit());
    Ok(exits.into_iter().find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success))
}

/// The failure, with the lines whose nonces were claimed but whose results were not printed.
fn lost(failure: Failure, answers: &[Answer]) -> Failure {
    let claimed = answers.iter().filter(|answer| answer.report.claimed().is_some());
    let lines: Vec<String> = claimed.map(|answer| answer.line.to_string()).collect();
    if lines.is_empty() {
        return failure;
    }
    failure.note("used up", format_args!("the nonces of the lines {}", lines.join(", ")))
}

/// The answer to one line. None for a blank line.
fn answer(verifier: Verifier<'_>, issuer: &Issuer, wanted: &Wanted, line: &Line) -> Option<Answer> {
    if line.bytes.is_empty() && !line.too_long {
        return None;
    }
    let now = verifier.args.at.unwrap_or_else(environment::now);
    let refused = |check, message: String, exit| Answer {
        line: line.number,
        id: None,
        report: Report::failed(Refusal::new(Some(check), message, exit)),
        verified: None,
        now,
    };
    let asked = match read(line, verifier.args, wanted.clone()) {
        Ok(asked) => asked,
        Err(e) => return Some(refused("input", e.to_string(), Exit::MalformedToken)),
    };
    if has_scheme(&asked.token) {
        return Some(Answer {
            id: asked.id,
            ..refused("input", WITH_SCHEME.to_owned(), Exit::MalformedToken)
        });
    }
    let keys = match issuer.keys_for(&asked.token) {
        Ok(keys) => keys,
        Err(failure) => return Some(refused("key_set", failure.message().to_owned(), failure.exit)),
    };
    let (mut report, passed) = verifier.check(&asked.token, &keys, &asked.wanted, now);
    if verifier.args.explain {
        report.explain(&issuer.name, verifier.args, &asked.wanted, now);
    }
    Some(Answer { line: line.number, id: asked.id, report, verified: passed, now })
}

fn read(line: &Line, args: &Verify, mut wanted: Wanted) -> Result<InputLine, Invalid> {
    if line.too_long {
        return Err(Invalid::new("line", "is too long for a token and what is expected of it"));
    }
    if line.bytes.first() != Some(&b'{') {
        let token = std::str::from_utf8(&line.bytes)
            .map_err(|_| Invalid::new("line", "must be a token, or a JSON object"))?;
        return Ok(InputLine { id: None, token: token.to_owned(), wanted });
    }
    let mut asked = Object::parse_as("line", &line.bytes)?;
    let token = asked.require("token")?.string()?.into_owned();
    let id = asked.take("id").map(|f| f.string()).transpose()?.map(std::borrow::Cow::into_owned);
    if !args.event {
        wanted.take(&mut asked)?;
    }
    asked.finish()?;
    Ok(InputLine { id, token, wanted })
}
