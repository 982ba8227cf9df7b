//! `/v1/enforcement`.

use super::extract::{Admitted, Post};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::model::records::Mode;
use crate::service::enforcement;

/// POST /v1/enforcement
pub(super) async fn set(post: Post) -> Result<Answer, Failure> {
    let now = post.at();
    let mode = post.parse(|mut body| {
        let mode = Mode::parse(&body.require("mode")?.string()?)?;
        body.finish().map(|()| mode)
    });
    post.write(mode, move |tx, call, mode| enforcement::set(tx, call, *mode, now)).await
}

/// GET /v1/enforcement
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    request.read(enforcement::get).await
}
