//! What every operation has in common: error answers, headers and shared parameters. They are added once.

use serde_json::json;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, Header, OpenApi, Ref, RefOr, Required, Schema};
use utoipa::{Modify, ToSchema as _};

use super::errors::{self, IDEMPOTENCY_REPLAYED, RETRY_AFTER, WWW_AUTHENTICATE, X_REQUEST_ID, header};
use super::page;
use super::values::RequestId;
use crate::error::Code;
use crate::model::idempotency;

/// The security scheme of organization keys.
const ORGANIZATION_KEY: &str = "organizationKey";
/// The security scheme of agent keys.
const AGENT_KEY: &str = "agentKey";

/// Adds to each operation what follows from its method, path and security.
#[derive(Debug)]
pub(super) struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        add_components(components);
        for (path, item) in &mut document.paths.paths {
            let posts = item.post.as_mut().map(|operation| (operation, true));
            let others = [&mut item.get, &mut item.delete].into_iter().flatten().map(|other| (other, false));
            for (operation, is_post) in posts.into_iter().chain(others) {
                add_to(operation, path, is_post, components);
            }
        }
    }
}

fn add_components(components: &mut Components) {
    components.schemas.extend(errors::schemas());
    components.responses.extend(errors::responses().map(|(name, response)| (name.into(), response.into())));
    components.parameters.extend(parameters().map(|(name, shared)| (name.into(), shared.into())));
    components.headers.extend(headers().map(|(name, header)| (name.into(), header.into())));
    for (name, description) in [
        (ORGANIZATION_KEY, "An organization's API key, `sk_sandbox_` or `sk_live_`."),
        (AGENT_KEY, "An agent's API key, `ak_sandbox_` or `ak_live_`. It reaches the agent's own objects."),
    ] {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description));
        components.add_security_scheme(name, SecurityScheme::Http(bearer.build()));
    }
}

fn add_to(operation: &mut Operation, path: &str, is_post: bool, components: &Components) {
    // The lines of a comment are one paragraph.
    operation.description = operation.description.take().map(|text| text.replace('\n', " "));
    add_headers(operation, is_post);
    // Any request can have a head that is none of HTTP/1.1, or two hosts.
    for (status, response) in errors::of_the_connection().chain([errors::refusal(Code::InvalidRequest)]) {
        operation.responses.responses.entry(status).or_insert_with(|| response.into());
    }
    let Some(security) = operation.security.as_ref().filter(|security| !security.is_empty()) else { return };
    let any = security.len() > 1;
    let mut refusals = vec![Code::Unauthorized, Code::RateLimited];
    if !any {
        refusals.push(Code::Forbidden);
    }
    if is_post {
        refusals.push(Code::IdempotencyConflict);
    }
    if path.contains("{id}") {
        refusals.push(Code::NotFound);
    }
    for (status, response) in refusals.into_iter().map(errors::refusal).chain([errors::fault()]) {
        operation.responses.responses.entry(status).or_insert_with(|| response.into());
    }
    let own = operation.parameters.take().unwrap_or_default().into_iter().map(shared);
    let key = is_post.then(|| RefOr::Ref(parameter("IdempotencyKey")));
    let all: Vec<_> = key.into_iter().chain(own).collect();
    operation.parameters = Some(all).filter(|all| !all.is_empty());
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        let content = body.content.values().next();
        let needed = content.is_none_or(|content| has_required_members(content, components));
        body.required = Some(if needed { Required::True } else { Required::False });
    }
}

/// The headers of an operation's own answers. Those of the error answers are in the components.
fn add_headers(operation: &mut Operation, is_post: bool) {
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        response.headers.insert(X_REQUEST_ID.into(), RefOr::Ref(header(X_REQUEST_ID)));
        if is_post {
            response.headers.insert(IDEMPOTENCY_REPLAYED.into(), RefOr::Ref(header(IDEMPOTENCY_REPLAYED)));
        }
    }
}

/// Turns a parameter that several operations share into a reference. Outside the path, every parameter is
/// optional.
fn shared(own: RefOr<Parameter>) -> RefOr<Parameter> {
    let RefOr::T(mut own) = own else { return own };
    let is_same = |shared: &Parameter| shared.name == own.name && shared.parameter_in == own.parameter_in;
    if let Some((name, _)) = parameters().find(|(_, shared)| is_same(shared)) {
        return RefOr::Ref(parameter(name));
    }
    if own.parameter_in != ParameterIn::Path {
        own.required = Required::False;
    }
    RefOr::T(own)
}

/// Whether a body has required members. One without them may be absent.
fn has_required_members(content: &RefOr<utoipa::openapi::Content>, components: &Components) -> bool {
    let RefOr::T(content) = content else { return true };
    let Some(RefOr::Ref(reference)) = &content.schema else { return true };
    let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
    match components.schemas.get(name) {
        Some(RefOr::T(Schema::Object(body))) => !body.required.is_empty(),
        _ => true,
    }
}

/// The parameters that several operations share, by name.
fn parameters() -> impl Iterator<Item = (&'static str, Parameter)> {
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(idempotency::MAX_NAME))
        .pattern(Some("^[ -~]+$"))
        .examples([json!("order-17")]);
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Makes a retry safe: the same request within 24 hours gets the first answer again, with \
             Idempotency-Replayed. Another request under the same key is 409.",
        ))
        .schema(Some(key))
        .build();
    page::parameters().into_iter().chain([("IdempotencyKey", key)])
}

/// The headers of answers, by name.
fn headers() -> impl Iterator<Item = (&'static str, Header)> {
    let header = |description: &str, schema: RefOr<Schema>| {
        let mut header = Header::new(schema);
        header.description = Some(description.to_owned());
        header
    };
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    [
        (X_REQUEST_ID, header("The id of this request.", Ref::from_schema_name(RequestId::name()).into())),
        (
            IDEMPOTENCY_REPLAYED,
            header(
                "`true` when the answer was given before, under the same Idempotency-Key; absent otherwise.",
                text().enum_values(Some(["true"])).into(),
            ),
        ),
        (RETRY_AFTER, header("After how many seconds a request will be admitted.", seconds.into())),
        (WWW_AUTHENTICATE, header("`Bearer`.", text().into())),
    ]
    .into_iter()
}

fn parameter(name: &str) -> Ref {
    Ref::new(format!("#/components/parameters/{name}"))
}
