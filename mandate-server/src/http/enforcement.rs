//! `/v1/enforcement`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::{Admitted, Post};
use super::openapi::values;
use super::respond::Failure;
use crate::model::call::Answer;
use crate::model::records::Mode;
use crate::service::enforcement;

/// Switch between observe and enforce
///
/// Switches the environment of the key, from the next decision on. Switching to the mode in force changes nothing,
/// `since` included.
#[utoipa::path(
    post, path = "/v1/enforcement", operation_id = "setEnforcement", tag = "Enforcement",
    security(("organizationKey" = [])),
    request_body(content = NewEnforcement, example = json!({"mode": "observe"})),
    responses((
        status = 200, description = "The mode in force.", body = Enforcement,
        example = json!({"mode": "observe", "since": SINCE}),
    )),
)]
pub(super) async fn set(post: Post) -> Result<Answer, Failure> {
    let now = post.at();
    let mode = post.parse(|mut body| {
        let mode = Mode::parse(&body.require("mode")?.string()?)?;
        body.finish().map(|()| mode)
    });
    post.write(mode, move |tx, call, mode| enforcement::set(tx, call, *mode, now)).await
}

/// Get the mode in force
///
/// The mode in force in the environment of the key, and since when.
#[utoipa::path(
    get, path = "/v1/enforcement", operation_id = "getEnforcement", tag = "Enforcement",
    security(("organizationKey" = [])),
    responses((
        status = 200, description = "The mode in force.", body = Enforcement,
        example = json!({"mode": "enforce", "since": SINCE}),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    request.read(enforcement::get).await
}

/// The mode to switch to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEnforcement {
    pub mode: values::Mode,
}

/// The mode in force.
#[derive(Debug, ToSchema)]
pub struct Enforcement {
    pub mode: values::Mode,
    /// The instant from which this mode has been in force.
    pub since: values::Timestamp,
}

const SINCE: &str = "2026-06-15T12:00:00.000Z";
