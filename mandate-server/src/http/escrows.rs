//! `/v1/escrows`.

use std::sync::Arc;

use mandate_core::json::{Field, Object};
use mandate_core::{DecisionId, EscrowId, EscrowState, EventId, Invalid, Timestamp};

use super::extract::{Admitted, Post};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::escrows::{self, Address, MAX_ARBITER, MAX_CONDITION, MAX_NOTE};

/// POST /v1/escrows
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let (id, at) = (EscrowId::from_bytes(post.new_id()), post.at());
    let event = EventId::from_bytes(post.new_id());
    let api = Arc::clone(&post.api);
    let settlement = api.settlement.recorded(post.call.caller.environment.kind);
    let mut contract = [0; 32];
    post.api.entropy.fill(&mut contract);
    let command = post.parse(|mut body| {
        let command = escrows::Create {
            decision: read(&body.require("decision")?, DecisionId::parse)?,
            arbiter: body.take("arbiter").map(|field| text(&field, MAX_ARBITER)).transpose()?,
            condition: text(&body.require("condition")?, MAX_CONDITION)?,
            refund_after: read(&body.require("refund_after")?, Timestamp::parse)?,
            id,
            contract: Address(contract),
            event,
            settlement,
            at,
        };
        body.finish().map(|()| command)
    });
    let answer = post.write(command, escrows::create).await;
    api.settlement.wake();
    answer
}

/// GET /v1/escrows
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| escrows::list(tx, call, &page, &cursors)).await
}

/// GET /v1/escrows/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| escrows::get(tx, call, &id)).await
}

/// POST /v1/escrows/{id}/transitions
pub(super) async fn transition(post: Post) -> Result<Answer, Failure> {
    let api = Arc::clone(&post.api);
    let settlement = api.settlement.recorded(post.call.caller.environment.kind);
    let command = post.parse(transition_body).map(|(to, note)| escrows::Transition {
        id: post.id.clone(),
        to,
        note,
        settlement,
        event: EventId::from_bytes(post.new_id()),
        at: post.at(),
    });
    let answer = post.write(command, escrows::transition).await;
    api.settlement.wake();
    answer
}

fn transition_body(mut body: Object<'_>) -> Result<(EscrowState, Option<String>), Invalid> {
    let to = read(&body.require("to")?, EscrowState::parse)?;
    let note = body.take("note").map(|field| text(&field, MAX_NOTE)).transpose()?;
    body.finish().map(|()| (to, note))
}

/// What `parse` makes of a text; a refusal names the field.
fn read<T>(field: &Field<'_>, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Result<T, Invalid> {
    parse(&field.string()?).map_err(|e| e.at(field.path()))
}

/// A text of 1 to `most` characters.
fn text(field: &Field<'_>, most: usize) -> Result<String, Invalid> {
    let text = field.string()?;
    if (1..=most).contains(&text.chars().count()) {
        Ok(text.into_owned())
    } else {
        Err(Invalid::new(field.path(), format!("must be 1 to {most} characters long")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_counted_in_characters() {
        let read = |note: &str| {
            let body = format!(r#"{{"to":"disputed","note":"{note}"}}"#);
            Object::parse(body.as_bytes()).and_then(transition_body).map_err(|e| e.to_string())
        };
        assert!(read(&"ü".repeat(MAX_NOTE)).is_ok());
        for note in ["", &"ü".repeat(MAX_NOTE + 1)] {
            assert_eq!(read(note), Err("note must be 1 to 500 characters long".to_owned()));
        }
    }
}
