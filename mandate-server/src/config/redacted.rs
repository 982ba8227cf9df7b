//! Settings as `Debug` prints them: without a password.

use std::fmt;

use super::Settings;
use crate::model::database;

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            database,
            api_address,
            public_address,
            ops_address,
            console_address,
            base_url,
            verdicts_url,
            docs_url,
            console_url,
            tls,
            public_tls,
            console_tls,
            behind_proxy,
            drain_delay_seconds,
            review_expiry_seconds,
            max_under_way,
            loopback_webhooks,
            webhook_networks,
            settlement,
            exports_directory,
            checkpoints_directory,
            signing_key_rotation_days,
            collector,
            log_format,
            log_level,
        } = self;
        f.debug_struct("Settings")
            .field("database", &database::redacted(database))
            .field("api_address", api_address)
            .field("public_address", public_address)
            .field("ops_address", ops_address)
            .field("console_address", console_address)
            .field("base_url", base_url)
            .field("verdicts_url", verdicts_url)
            .field("docs_url", docs_url)
            .field("console_url", console_url)
            .field("tls", tls)
            .field("public_tls", public_tls)
            .field("console_tls", console_tls)
            .field("behind_proxy", behind_proxy)
            .field("drain_delay_seconds", drain_delay_seconds)
            .field("review_expiry_seconds", review_expiry_seconds)
            .field("max_under_way", max_under_way)
            .field("loopback_webhooks", loopback_webhooks)
            .field("webhook_networks", webhook_networks)
            .field("settlement", settlement)
            .field("exports_directory", exports_directory)
            .field("checkpoints_directory", checkpoints_directory)
            .field("signing_key_rotation_days", signing_key_rotation_days)
            .field("collector", collector)
            .field("log_format", log_format)
            .field("log_level", log_level)
            .finish()
    }
}
