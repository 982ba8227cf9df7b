//! `/v1/agents`.

use mandate_core::AgentName;

use super::extract::{Admitted, Post};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::agents;

/// POST /v1/agents
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let name = post.parse(|mut body| {
        let name = AgentName::parse(&body.require("name")?.string()?)?;
        body.finish().map(|()| name)
    });
    let command =
        name.map(|name| agents::Create { name, key: post.new_agent_key(), id: post.new_id(), at: post.at() });
    post.write(command, agents::create).await
}

/// GET /v1/agents
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| agents::list(tx, call, &page, &cursors)).await
}

/// GET /v1/agents/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| agents::get(tx, call, &id)).await
}
