//! `/v1/reviews/{id}/approve` and `/deny`.

use std::sync::Arc;

use mandate_core::json::Object;
use mandate_core::{EventId, Invalid};

use super::extract::Post;
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::reviews;

/// The longest reason for a denial, in characters.
const MAX_REASON_CHARS: usize = 500;

/// POST /v1/reviews/{id}/approve
pub(super) async fn approve(post: Post) -> Result<Answer, Failure> {
    let (event, at) = (EventId::from_bytes(post.new_id()), post.at());
    let engine = Arc::clone(&post.api.engine);
    let command = post.no_body().map(|()| reviews::Approve { id: post.id.clone(), engine, event, at });
    post.write(command, reviews::approve).await
}

/// POST /v1/reviews/{id}/deny
pub(super) async fn deny(post: Post) -> Result<Answer, Failure> {
    let (event, at) = (EventId::from_bytes(post.new_id()), post.at());
    let reason = post.parse_optional(reason);
    let engine = Arc::clone(&post.api.engine);
    let command = reason.map(|reason| reviews::Deny { id: post.id.clone(), engine, reason, event, at });
    post.write(command, reviews::deny).await
}

fn reason(mut body: Object<'_>) -> Result<Option<String>, Invalid> {
    let reason = body.take("reason").map(|field| field.string()).transpose()?;
    body.finish()?;
    match reason {
        Some(reason) if reason.chars().count() > MAX_REASON_CHARS => {
            Err(Invalid::new("reason", format!("must be at most {MAX_REASON_CHARS} characters long")))
        }
        reason => Ok(reason.map(String::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_optional_and_bounded() {
        let read = |body: &str| Object::parse(body.as_bytes()).and_then(reason).map_err(|e| e.to_string());
        let text = |length| format!(r#"{{"reason":"{}"}}"#, "ü".repeat(length));
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(&text(MAX_REASON_CHARS)).unwrap().unwrap().chars().count(), MAX_REASON_CHARS);
        assert_eq!(
            read(&text(MAX_REASON_CHARS + 1)),
            Err("reason must be at most 500 characters long".to_owned())
        );
        assert_eq!(read(r#"{"reason":null}"#), Err("reason must be a string; got null".to_owned()));
        assert_eq!(read(r#"{"why":"x"}"#), Err("why is not a known field; known are reason".to_owned()));
    }
}
