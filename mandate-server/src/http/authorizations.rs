//! `/v1/authorizations`.

use mandate_core::Request;

use super::extract::Post;
use super::respond::Failure;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::store::Authorization;

/// POST /v1/authorizations
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let agent =
        post.call.caller.agent.clone().ok_or_else(|| Fault::new("an authorization without an agent"))?;
    let request = post.parse(|body| Request::read(agent, body));
    Ok(post.api.store.decide(Authorization { call: post.call, request, traced: post.traced }).await?)
}
