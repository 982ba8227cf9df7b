//! `/v1/authorizations`.

use mandate_core::Request;

use super::gate::Admitted;
use super::reply::Failure;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::store::Authorization;

/// POST /v1/authorizations
pub(super) async fn create(request: Admitted) -> Result<Answer, Failure> {
    let post = request.post().await?;
    let agent =
        post.call.caller.agent.clone().ok_or_else(|| Fault::new("an authorization without an agent"))?;
    let request = post.parse(|body| Request::read(agent, body));
    Ok(post.api.store.decide(Authorization { call: post.call, request, traced: post.traced }).await?)
}
