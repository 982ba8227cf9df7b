//! `/v1/decisions`.

use mandate_core::{AgentId, MandateId, ReviewStatus, Timestamp, Verdict};

use super::extract::{Admitted, parameter};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::model::records::Mode;
use crate::service::decisions::{self, Filter};

/// GET /v1/decisions
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, [agent, verdict, mandate, mode, review, since, until]) =
        request.filtered(["agent", "verdict", "mandate", "mode", "review", "since", "until"])?;
    let filter = Filter {
        agent: parameter("agent", agent, AgentId::parse)?,
        verdict: parameter("verdict", verdict, Verdict::parse)?,
        mandate: parameter("mandate", mandate, MandateId::parse)?,
        mode: parameter("mode", mode, Mode::parse)?,
        review: parameter("review", review, ReviewStatus::parse)?,
        since: parameter("since", since, Timestamp::parse)?,
        until: parameter("until", until, Timestamp::parse)?,
    };
    let cursors = request.cursors();
    request.read(move |tx, call| decisions::list(tx, call, &filter, &page, &cursors)).await
}

/// GET /v1/decisions/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let (id, now) = (request.id.clone(), request.at());
    request.read(move |tx, call| decisions::get(tx, call, &id, now)).await
}
