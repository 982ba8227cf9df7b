//! The names of the members that objects have, for `--json=fields`: a name that is not among them is misspelt.

/// What a command prints as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Printed {
    /// Objects with these members. What is below them is in this file.
    Known(Vec<&'static str>),
    /// Objects with these members, none of which is an object.
    Flat(Vec<&'static str>),
    /// Objects with these members, of a command that only reads. What is below them is known when it is there.
    Own(Vec<&'static str>),
    /// No JSON.
    Nothing,
}

impl Printed {
    /// The names of the members.
    pub(crate) fn names(&self) -> &[&'static str] {
        match self {
            Self::Known(names) | Self::Flat(names) | Self::Own(names) => names,
            Self::Nothing => &[],
        }
    }
}

/// The members of the service's objects.
pub(crate) const OF_SERVICE: [&str; 100] = [
    "action",
    "agent",
    "agent_key",
    "allow",
    "amount",
    "arbiter",
    "at",
    "attempts",
    "basis",
    "buyer",
    "categories",
    "category",
    "code",
    "condition",
    "contract",
    "created_at",
    "currency",
    "data",
    "decided_at",
    "decision",
    "deliveries",
    "denials",
    "deny_category",
    "deny_expired",
    "deny_limit",
    "deny_no_mandate",
    "deny_revoked",
    "deny_velocity",
    "disputed",
    "error",
    "escrow",
    "event",
    "events",
    "exp",
    "expires",
    "expires_at",
    "export",
    "format",
    "governed_until",
    "governs_from",
    "has_more",
    "history",
    "iat",
    "id",
    "incomplete_since",
    "instruction",
    "iss",
    "jti",
    "keys",
    "kind",
    "limits",
    "mandate",
    "message",
    "mode",
    "month",
    "name",
    "next_attempt_at",
    "next_cursor",
    "nonce",
    "note",
    "per_month",
    "per_transaction",
    "policy_version",
    "principal",
    "reason",
    "recent_requests",
    "recipient",
    "refund_after",
    "remaining",
    "replaced_by",
    "request",
    "request_id",
    "requests",
    "required_above",
    "resolved_after",
    "resolved_at",
    "resolved_by",
    "review",
    "review_above",
    "revoked_after",
    "revoked_at",
    "rows",
    "seller",
    "sequence",
    "settlement",
    "sha256",
    "since",
    "spent",
    "state",
    "status",
    "supersedes",
    "to",
    "type",
    "until",
    "url",
    "verdict",
    "verdict_token",
    "verdicts",
    "waits_for",
    "webhook",
];

/// Of an agent.
pub(crate) const AGENT: [&str; 4] = ["created_at", "id", "mandate", "name"];

/// Of an agent that was registered just now.
pub(crate) const REGISTERED_AGENT: [&str; 4] = ["agent_key", "created_at", "id", "name"];

/// Of the answer to a request for an authorization.
pub(crate) const AUTHORIZATION: [&str; 7] =
    ["decision", "mode", "reason", "review", "supersedes", "verdict", "verdict_token"];

/// Of a decision.
pub(crate) const DECISION: [&str; 18] = [
    "basis",
    "decided_at",
    "denials",
    "exp",
    "iat",
    "iss",
    "jti",
    "mandate",
    "mode",
    "nonce",
    "policy_version",
    "reason",
    "request",
    "review",
    "sequence",
    "supersedes",
    "verdict",
    "verdict_token",
];

/// Of the enforcement mode.
pub(crate) const ENFORCEMENT: [&str; 2] = ["mode", "since"];

/// Of an escrow.
pub(crate) const ESCROW: [&str; 15] = [
    "amount",
    "arbiter",
    "buyer",
    "condition",
    "contract",
    "created_at",
    "currency",
    "decision",
    "disputed",
    "escrow",
    "history",
    "refund_after",
    "seller",
    "settlement",
    "state",
];

/// Of an escrow's public contract: what anyone may see of it.
pub(crate) const CONTRACT: [&str; 12] = [
    "amount",
    "arbiter",
    "buyer",
    "condition",
    "contract",
    "created_at",
    "currency",
    "disputed",
    "history",
    "refund_after",
    "seller",
    "state",
];

/// Of an event.
pub(crate) const EVENT: [&str; 5] = ["created_at", "data", "deliveries", "event", "type"];

/// Of an event that is not read by itself.
pub(crate) const LISTED_EVENT: [&str; 4] = ["created_at", "data", "event", "type"];

/// Of what an event is about: a decision, a mandate, an escrow's state or a webhook.
const EVENT_DATA: [&str; 37] = [
    "agent",
    "basis",
    "categories",
    "created_at",
    "decided_at",
    "denials",
    "disputed",
    "escrow",
    "exp",
    "expires",
    "governed_until",
    "governs_from",
    "iat",
    "id",
    "instruction",
    "iss",
    "jti",
    "limits",
    "mandate",
    "mode",
    "nonce",
    "policy_version",
    "principal",
    "reason",
    "replaced_by",
    "request",
    "review",
    "review_above",
    "revoked_after",
    "revoked_at",
    "sequence",
    "state",
    "status",
    "supersedes",
    "verdict",
    "verdict_token",
    "webhook",
];

/// Of the claims of a verdict or of an event.
const CLAIMS: [&str; 11] =
    ["data", "exp", "iat", "iss", "jti", "mandate", "nonce", "policy_version", "request", "type", "verdict"];

/// Of an export.
pub(crate) const EXPORT: [&str; 8] =
    ["created_at", "expires_at", "export", "format", "incomplete_since", "rows", "sha256", "status"];

/// Of a mandate.
pub(crate) const MANDATE: [&str; 15] = [
    "agent",
    "categories",
    "created_at",
    "escrow",
    "expires",
    "governed_until",
    "governs_from",
    "id",
    "limits",
    "principal",
    "replaced_by",
    "review_above",
    "revoked_after",
    "revoked_at",
    "status",
];

/// Of what is written in a mandate.
pub(crate) const TERMS: [&str; 7] =
    ["agent", "categories", "escrow", "expires", "limits", "principal", "review_above"];

/// Of an agent's month.
pub(crate) const USAGE: [&str; 7] =
    ["agent", "currency", "per_month", "remaining", "requests", "spent", "verdicts"];

/// Of a webhook.
pub(crate) const WEBHOOK: [&str; 5] = ["created_at", "events", "status", "url", "webhook"];

/// The members of objects within others, by the names of these objects.
const WITHIN: [(&str, &[&str]); 12] = [
    ("basis", &["recent_requests", "spent"]),
    ("claims", &CLAIMS),
    ("data", &EVENT_DATA),
    ("error", &["check", "code", "exit_code", "message", "request_id"]),
    ("escrow", &["required_above"]),
    ("governing", &["count", "first", "new", "missing", "twice"]),
    ("limits", &["currency", "per_month", "per_transaction"]),
    ("request", &["agent", "amount", "category", "currency", "recipient"]),
    (
        "review",
        &[
            "decision",
            "expires_at",
            "id",
            "reason",
            "resolved_after",
            "resolved_at",
            "resolved_by",
            "status",
            "waits_for",
        ],
    ),
    ("resolved_by", &["id", "kind", "name"]),
    ("settlement", &["action", "instruction", "reason", "status"]),
    (
        "verdicts",
        &[
            "allow",
            "deny_category",
            "deny_expired",
            "deny_limit",
            "deny_no_mandate",
            "deny_revoked",
            "deny_velocity",
            "review",
        ],
    ),
];

/// The members of the object at `path`, if it is one of those.
pub(crate) fn within(path: &str) -> Option<&'static [&'static str]> {
    let name = path.rsplit('.').next()?;
    WITHIN.iter().find(|(object, _)| *object == name).map(|(_, names)| *names)
}

#[cfg(test)]
const REFERENCE: &str = include_str!("../../docs/openapi.yaml");

/// The members of a schema of the service's reference.
#[cfg(test)]
pub(crate) fn of_schema(name: &str) -> Vec<&'static str> {
    let (_, schema) = REFERENCE.split_once(&format!("\n    {name}:\n")).unwrap();
    let lines = schema.lines().take_while(|line| line.starts_with("      "));
    let properties = lines.skip_while(|line| *line != "      properties:").skip(1);
    let mut names: Vec<_> = properties
        .take_while(|line| line.starts_with("        "))
        .filter(|line| !line.starts_with("         "))
        .map(|line| line.trim().trim_end_matches(':'))
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fields;

    #[test]
    fn the_service_s_fields_are_those_of_its_reference() {
        let reference = REFERENCE;
        let mut named = BTreeSet::new();
        let mut depth = None;
        for line in reference.lines() {
            let indent = line.chars().take_while(|c| *c == ' ').count();
            if depth.is_some_and(|depth| indent <= depth) {
                depth = None;
            }
            match (depth, line.trim_end().strip_suffix(':')) {
                (None, Some(name)) if name.trim() == "properties" => depth = Some(indent),
                (Some(depth), Some(name)) if indent == depth + 2 => {
                    named.insert(name.trim());
                }
                _ => {}
            }
        }
        assert_eq!(named.into_iter().collect::<Vec<_>>(), OF_SERVICE);
    }

    #[test]
    fn each_kind_of_object_has_the_members_of_its_schema() {
        let kinds: [(&str, &[&str]); 12] = [
            ("Agent", &AGENT),
            ("RegisteredAgent", &REGISTERED_AGENT),
            ("Authorization", &AUTHORIZATION),
            ("Decision", &DECISION),
            ("Enforcement", &ENFORCEMENT),
            ("Escrow", &ESCROW),
            ("Event", &EVENT),
            ("Export", &EXPORT),
            ("Mandate", &MANDATE),
            ("NewMandate", &TERMS),
            ("UsageRow", &USAGE),
            ("Webhook", &WEBHOOK),
        ];
        let within = [
            ("Basis", "basis"),
            ("EscrowTerms", "escrow"),
            ("Limits", "limits"),
            ("Request", "request"),
            ("ResolvedBy", "resolved_by"),
            ("Review", "review"),
            ("Settlement", "settlement"),
            ("VerdictCounts", "verdicts"),
        ];
        for (schema, members) in
            kinds.into_iter().chain(within.map(|(schema, name)| (schema, within_of(name))))
        {
            assert_eq!(of_schema(schema), members, "{schema}");
        }
    }

    #[test]
    fn the_data_of_events_and_the_claims_of_tokens_have_their_members() {
        let about = ["Decision", "Mandate", "EscrowEntered", "Pinged"].into_iter().flat_map(of_schema);
        assert_eq!(about.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), EVENT_DATA);
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../mandate-core/vectors/verdicts.json")).unwrap();
        let token = mandate_core::jwt::Unverified::parse(vectors["vectors"][0]["token"].as_str().unwrap());
        let verdict = fields::names(std::str::from_utf8(token.unwrap().unverified_claims()).unwrap());
        let event = ["iss", "jti", "iat", "type", "data"].map(str::to_owned);
        let claims: BTreeSet<String> = verdict.into_iter().chain(event).collect();
        assert_eq!(claims.into_iter().collect::<Vec<_>>(), CLAIMS);
        assert_eq!(
            EVENT.iter().filter(|name| **name != "deliveries").copied().collect::<Vec<_>>(),
            LISTED_EVENT
        );
    }

    fn within_of(name: &str) -> &'static [&'static str] {
        super::within(name).unwrap()
    }
}
