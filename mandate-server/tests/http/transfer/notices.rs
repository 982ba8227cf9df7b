//! Notices of an environment, set as the operator's command does.

use mandate_core::{AgentName, EnvironmentKind, WebhookId};
use mandate_server::clock::SystemEntropy;
use mandate_server::model::master_key::MasterKey;
use mandate_server::model::records::NoticeFormat;
use mandate_server::service::audit::Operator;
use mandate_server::service::endpoint::{self, EgressPolicy};
use mandate_server::service::notices::{self as service, Settings};
use mandate_server::service::signing::rotation::Maker;

use crate::apart;
use crate::world::World;

/// Has messages sent to a chat for each review that waits.
pub(crate) fn set(world: &World, by: &Operator) {
    let url = endpoint::parse("https://hooks.example.com/services/1", &EgressPolicy::PUBLIC).unwrap();
    let settings = Settings { url, format: NoticeFormat::Slack, has_details: false };
    let (of, master) = (AgentName::parse("acme").unwrap(), MasterKey::from_bytes([7; 32]));
    let set = apart::run_once(&world.settings.database, |tx| {
        let maker = Maker { master: &master, entropy: &SystemEntropy };
        let webhook = WebhookId::from_bytes([1; 16]);
        service::set(tx, (&of, EnvironmentKind::Sandbox), &settings, (maker, webhook), by)
    });
    set.unwrap().unwrap();
}
