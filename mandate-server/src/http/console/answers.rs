//! Answers: a statement is given to a session, and what was signed comes back.

use std::sync::Arc;

use axum::response::Response;
use mandate_core::json::Object;
use mandate_core::people::{Assertion, CredentialId};
use mandate_core::{DecisionId, Invalid, MandateId, ReviewId, Timestamp, Verdict};
use serde::Serialize;

use super::Console;
use super::post::{Post, answered, base64url, challenge};
use super::session::session_over;
use crate::http::free_text::free_text;
use crate::http::respond::Failure;
use crate::service::people::Viewer;
use crate::service::people::answers::{self, Outcome};
use crate::service::people::statements::{self, Subject};
use crate::service::reviews::MAX_REASON;

/// A statement to be shown and signed.
#[derive(Serialize)]
struct Issued<'a> {
    statement: &'a str,
    challenge: String,
    credential: CredentialId,
    rp: &'a str,
    expires: Timestamp,
}

/// What came of an answer.
#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
enum Answered {
    Approved {
        decision: DecisionId,
        verdict: Verdict,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Denied,
    Stopped,
    Lost {
        status: &'static str,
        by: String,
    },
}

impl Post {
    async fn viewer(&self) -> Result<Viewer, Failure> {
        let session = self.console.session(&self.place, &self.headers).await?;
        Ok(session.ok_or_else(session_over)?.0)
    }
}

/// Gives a statement, for a person who may sign it.
pub(super) async fn issue(post: Post) -> Result<Response, Failure> {
    let viewer = post.viewer().await?;
    let subject = post.parse(subject)?;
    let console = Arc::clone(&post.console);
    let issued = post.write(move |tx| {
        let Console { moments, issuer, party, .. } = &*console;
        statements::issue(tx, moments, &viewer, &subject, (issuer, party))
    });
    let issued = issued.await?;
    answered(&Issued {
        statement: &issued.json,
        challenge: base64url(&issued.challenge),
        credential: issued.credential,
        rp: post.console.party.id(),
        expires: issued.expires,
    })
}

fn subject(mut body: Object<'_>) -> Result<Subject, Invalid> {
    let answer = body.require("answer")?.string()?.into_owned();
    let subject = match answer.as_str() {
        "stop" => {
            Subject::Stop(MandateId::parse(&body.require("mandate")?.string()?).map_err(|e| e.at("mandate"))?)
        }
        "approve" => Subject::Approve(review(&mut body)?),
        "deny" => {
            let review = review(&mut body)?;
            let reason = free_text(&body.require("reason")?, 1..=MAX_REASON)?;
            if reason.trim().is_empty() {
                return Err(Invalid::new("reason", "must say why, in 1 to 500 characters; it is empty"));
            }
            Subject::Deny(review, Some(reason))
        }
        _ => return Err(Invalid::value("answer", "must be approve, deny or stop", &answer)),
    };
    body.finish()?;
    Ok(subject)
}

fn review(body: &mut Object<'_>) -> Result<ReviewId, Invalid> {
    ReviewId::parse(&body.require("review")?.string()?).map_err(|e| e.at("review"))
}

/// Takes an answer.
pub(super) async fn answer(post: Post) -> Result<Response, Failure> {
    let viewer = post.viewer().await?;
    let (challenge, assertion) = post.parse(|mut body| {
        let challenge = challenge(&mut body)?;
        let assertion = Assertion::read(body.require("assertion")?.object()?)?;
        body.finish()?;
        Ok((challenge, assertion))
    })?;
    let console = &post.console;
    let (moments, engine, party) =
        (Arc::clone(&console.moments), Arc::clone(&console.engine), console.party.clone());
    let outcome =
        post.write(move |tx| answers::answer(tx, &moments, &engine, &party, &viewer, challenge, &assertion));
    answered(&match outcome.await? {
        Outcome::Approved { decision, verdict, reason } => Answered::Approved { decision, verdict, reason },
        Outcome::Denied => Answered::Denied,
        Outcome::Stopped => Answered::Stopped,
        Outcome::Lost { status, by } => Answered::Lost { status: status.as_str(), by: by.to_string() },
    })
}
