//! What is said of `/v1/enforcement`.

use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::Operation;
use super::values::{Mode, Timestamp};

const TAG: &str = "Enforcement";

/// The mode to switch to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEnforcement {
    pub mode: Mode,
}

/// The mode in force.
#[derive(Debug, ToSchema)]
pub struct Enforcement {
    pub mode: Mode,
    /// Since when.
    pub since: Timestamp,
}

pub(crate) fn set(operation: Operation) -> Operation {
    operation
        .named("setEnforcement", TAG, "Switch between observe and enforce")
        .told(
            "Switches the environment of the key, from the next decision on. Switching to the mode in force changes nothing, \
             `since` included.",
        )
        .takes::<NewEnforcement>(json!({"mode": "observe"}))
        .gives::<Enforcement>(200, "The mode in force.", json!({"mode": "observe", "since": SINCE}))
}

pub(crate) fn get(operation: Operation) -> Operation {
    operation
        .named("getEnforcement", TAG, "Get the mode in force")
        .told("The mode in force in the environment of the key, and since when.")
        .gives::<Enforcement>(200, "The mode in force.", json!({"mode": "enforce", "since": SINCE}))
}

const SINCE: &str = "2026-06-15T12:00:00.000Z";
