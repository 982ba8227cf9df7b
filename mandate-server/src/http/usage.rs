//! `/v1/usage`.

use mandate_core::{AgentId, Month};

use super::extract::{Admitted, parameter};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::usage;

/// GET /v1/usage
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let [month, agent, cursor] = request.parameters(["month", "agent", "cursor"])?;
    let query = usage::Query {
        month: parameter("month", month, Month::parse)?,
        agent: parameter("agent", agent, AgentId::parse)?,
        cursor,
    };
    let cursors = request.cursors();
    request.read(move |tx, call| usage::list(tx, call, &query, &cursors)).await
}
