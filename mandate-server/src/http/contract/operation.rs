//! What is said of one operation: what follows from its row in the table, and what its resource adds.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{
    Content, Header, HttpMethod, Ref, RefOr, Required, ResponseBuilder, Schema, link::LinkBuilder, path,
};
use utoipa::{PartialSchema, ToSchema};

use super::values::RequestId;
use super::{AGENT_KEY, ORGANIZATION_KEY, errors};
use crate::error::Code;
use crate::http::extract::{DEFAULT_LIMIT, MAX_LIMIT};
use crate::http::key::Key;
use crate::model::idempotency;

pub(super) const X_REQUEST_ID: &str = "X-Request-Id";
pub(super) const IDEMPOTENCY_REPLAYED: &str = "Idempotency-Replayed";
pub(super) const RETRY_AFTER: &str = "Retry-After";
pub(super) const WWW_AUTHENTICATE: &str = "WWW-Authenticate";
const JSON: &str = "application/json";

/// The schemas that operations refer to, by name.
pub(super) type Schemas = BTreeMap<String, RefOr<Schema>>;

/// One operation, as far as it is documented.
pub(crate) struct Operation {
    method: HttpMethod,
    posts: bool,
    builder: OperationBuilder,
    answers: Vec<(u16, ResponseBuilder)>,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Operation {
    /// What follows from a row of the table.
    pub(crate) fn of(method: &Method, path: &str, key: Key) -> Self {
        let mut schemas = Vec::new();
        errors::Error::schemas(&mut schemas);
        schemas.push((errors::Error::name().into(), errors::Error::schema()));
        let mut builder = OperationBuilder::new().securities(Some(securities(key)));
        let mut refusals = vec![Code::InvalidRequest, Code::Unauthorized, Code::RateLimited];
        if key != Key::Any {
            refusals.push(Code::Forbidden);
        }
        let posts = *method == Method::POST;
        if posts {
            refusals.push(Code::IdempotencyConflict);
            builder = builder.parameter_ref(parameter("IdempotencyKey"));
        }
        if path.contains("{id}") {
            refusals.push(Code::NotFound);
        }
        for (status, response) in refusals.into_iter().map(errors::refusal).chain([errors::fault()]) {
            builder = builder.response(status, response);
        }
        let method = if posts {
            HttpMethod::Post
        } else if *method == Method::DELETE {
            HttpMethod::Delete
        } else {
            HttpMethod::Get
        };
        Self { method, posts, builder, answers: Vec::new(), schemas }
    }

    /// An operation of the public listener, which anybody may call.
    pub(super) fn public() -> Self {
        let builder = OperationBuilder::new().securities(Some(Vec::<SecurityRequirement>::new()));
        Self { method: HttpMethod::Get, posts: false, builder, answers: Vec::new(), schemas: Vec::new() }
    }

    /// The operation's id, the group it stands in, and what it does in a few words.
    pub(super) fn named(self, id: &str, tag: &str, summary: &str) -> Self {
        self.with(|operation| operation.operation_id(Some(id)).tag(tag).summary(Some(summary)))
    }

    /// What it does, in full.
    pub(super) fn told(self, description: &str) -> Self {
        self.with(|operation| operation.description(Some(description)))
    }

    /// The object in the path.
    pub(super) fn id<T: ToSchema>(mut self, description: &str) -> Self {
        let schema = self.refer::<T>();
        let id = ParameterBuilder::new().name("id").parameter_in(ParameterIn::Path).required(Required::True);
        self.with(|operation| operation.parameter(id.description(Some(description)).schema(Some(schema))))
    }

    /// A filter of a list.
    pub(super) fn filter<T: ToSchema>(mut self, name: &str, description: &str) -> Self {
        let schema = self.refer::<T>();
        self.with(|operation| operation.parameter(query(name, description, schema)))
    }

    /// The body that it takes.
    pub(super) fn takes<T: ToSchema>(self, example: Value) -> Self {
        self.body::<T>(Required::True, example)
    }

    /// The body that it takes, or none.
    pub(super) fn may_take<T: ToSchema>(self, example: Value) -> Self {
        self.body::<T>(Required::False, example)
    }

    /// What it answers when all is well.
    pub(super) fn gives<T: ToSchema>(mut self, status: u16, description: &str, example: Value) -> Self {
        let schema = self.refer::<T>();
        let mut content = Content::new(Some(schema));
        content.example = Some(example);
        let mut response = ResponseBuilder::new()
            .description(description)
            .header_ref(X_REQUEST_ID, header(X_REQUEST_ID))
            .content(JSON, content);
        if self.posts {
            response = response.header_ref(IDEMPOTENCY_REPLAYED, header(IDEMPOTENCY_REPLAYED));
        }
        self.answers.push((status, response));
        self
    }

    /// A page of a list, which is what it answers, and the parameters that choose it.
    pub(super) fn pages<T: ToSchema>(mut self, example: &Value) -> Self {
        let name = format!("{}Page", T::name());
        let page = page(self.refer::<T>(), &T::name());
        self.schemas.push((name.clone(), page));
        for name in ["Limit", "Cursor", "StartingAfter", "EndingBefore"] {
            self = self.shares(name);
        }
        let mut content = Content::new(Some(Ref::from_schema_name(name)));
        content.example = Some(json!({"data": [example], "has_more": false}));
        let response = ResponseBuilder::new()
            .description("A page, newest first.")
            .header_ref(X_REQUEST_ID, header(X_REQUEST_ID))
            .content(JSON, content);
        self.answers.push((200, response));
        self
    }

    /// One of the [`parameters`].
    pub(super) fn shares(self, parameter_name: &str) -> Self {
        self.with(|operation| operation.parameter_ref(parameter(parameter_name)))
    }

    /// That it answers nothing when all is well, 204.
    pub(super) fn gives_nothing(self, description: &str) -> Self {
        let nothing =
            ResponseBuilder::new().description(description).header_ref(X_REQUEST_ID, header(X_REQUEST_ID));
        self.answers(204, nothing)
    }

    /// Another form of the answer just named.
    pub(super) fn or_content(self, content_type: &str, content: Content) -> Self {
        self.last(|response| response.content(content_type, content))
    }

    /// A header of the answer just named.
    pub(super) fn with_header(self, name: &str, description: &str) -> Self {
        self.last(|response| response.header(name, text_header(description)))
    }

    /// A header that it looks at.
    pub(super) fn header_of_request(self, name: &str, description: &str) -> Self {
        let header = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
        let header = header.required(Required::False).description(Some(description)).schema(Some(text("")));
        self.with(|operation| operation.parameter(header))
    }

    /// An answer that [`Operation::gives`] cannot say.
    pub(super) fn answers(mut self, status: u16, response: ResponseBuilder) -> Self {
        self.answers.push((status, response));
        self
    }

    /// A refusal that does not follow from the row. One of the same status is replaced.
    pub(super) fn refuses(self, code: Code) -> Self {
        let (status, response) = errors::refusal(code);
        self.with(|operation| operation.response(status, response))
    }

    /// What the answer just named leads to: the operation `to` with its `id` found at `place` in the body.
    pub(super) fn leads(self, to: &str, place: &str, description: &str) -> Self {
        let link = LinkBuilder::new()
            .operation_id(to)
            .parameter("id", format!("$response.body#{place}"))
            .description(description);
        self.last(|response| response.link(to, link.build()))
    }

    /// The whole, its schemas put among the others.
    pub(super) fn end(mut self, schemas: &mut Schemas) -> (HttpMethod, path::Operation) {
        schemas.extend(self.schemas);
        for (status, response) in self.answers {
            self.builder = self.builder.response(status.to_string(), response.build());
        }
        (self.method, self.builder.build())
    }

    fn body<T: ToSchema>(mut self, required: Required, example: Value) -> Self {
        let mut content = Content::new(Some(self.refer::<T>()));
        content.example = Some(example);
        let body = RequestBodyBuilder::new().content(JSON, content).required(Some(required)).build();
        self.with(|operation| operation.request_body(Some(body)))
    }

    /// A reference to the schema of `T`, which is kept with all that it refers to.
    fn refer<T: ToSchema>(&mut self) -> Ref {
        T::schemas(&mut self.schemas);
        self.schemas.push((T::name().into(), T::schema()));
        Ref::from_schema_name(T::name())
    }

    /// Changes the answer just named.
    fn last(mut self, change: impl FnOnce(ResponseBuilder) -> ResponseBuilder) -> Self {
        if let Some((status, response)) = self.answers.pop() {
            self.answers.push((status, change(response)));
        }
        self
    }

    fn with(mut self, change: impl FnOnce(OperationBuilder) -> OperationBuilder) -> Self {
        self.builder = change(self.builder);
        self
    }
}

fn securities(key: Key) -> Vec<SecurityRequirement> {
    let names: &[&str] = match key {
        Key::Organization => &[ORGANIZATION_KEY],
        Key::Agent => &[AGENT_KEY],
        Key::Any => &[ORGANIZATION_KEY, AGENT_KEY],
    };
    names.iter().map(|name| SecurityRequirement::new(*name, [] as [&str; 0])).collect()
}

fn page(item: Ref, name: &str) -> RefOr<Schema> {
    let flag = ObjectBuilder::new().schema_type(Type::Boolean).description(Some(
        "Whether there are more. A client walks until it is false, not until a page is empty.",
    ));
    let cursor = text("Where the next page begins. Absent when `has_more` is false.");
    ObjectBuilder::new()
        .description(Some(format!("One page of a list: {name}.")))
        .property("data", ArrayBuilder::new().items(item).max_items(Some(MAX_LIMIT as usize)))
        .property("has_more", flag)
        .property("next_cursor", cursor)
        .required("data")
        .required("has_more")
        .into()
}

/// The parameters that several operations share, by name.
pub(super) fn parameters() -> [(&'static str, Parameter); 5] {
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_LIMIT))
        .default(Some(json!(DEFAULT_LIMIT)));
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(idempotency::MAX_NAME))
        .pattern(Some("^[ -~]+$"))
        .examples([json!("order-17")]);
    let place = |name, description| query(name, description, text(""));
    [
        ("Limit", query("limit", "How many objects the page holds at most.", limit)),
        (
            "Cursor",
            place(
                "cursor",
                "The `next_cursor` of the page before, with the same filters and a key of the same caller. It holds for 24 hours.",
            ),
        ),
        (
            "StartingAfter",
            place(
                "starting_after",
                "Begin behind the object of this id: the way to hold a place beyond 24 hours.",
            ),
        ),
        (
            "EndingBefore",
            place(
                "ending_before",
                "The page before the object of this id, towards the newest. Of `cursor`, `starting_after` and `ending_before` one can be given. \
                 To follow a list and miss nothing, give the newest id that is a minute old, and pass over what you have: an object may \
                 come to stand in the list up to a minute after one with a later id.",
            ),
        ),
        (
            "IdempotencyKey",
            ParameterBuilder::new()
                .name("Idempotency-Key")
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some(
                    "Makes a retry safe: the same request within 24 hours gets the first answer again, with \
                     Idempotency-Replayed. Another request under the same key is 409.",
                ))
                .schema(Some(key))
                .build(),
        ),
    ]
}

/// The headers of answers, by name.
pub(super) fn headers() -> [(&'static str, Header); 4] {
    let header = |description: &str, schema: RefOr<Schema>| {
        let mut header = Header::new(schema);
        header.description = Some(description.to_owned());
        header
    };
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    [
        (X_REQUEST_ID, header("The id of this request.", Ref::from_schema_name(RequestId::name()).into())),
        (
            IDEMPOTENCY_REPLAYED,
            header(
                "`true` when the answer was given before, under the same Idempotency-Key; absent otherwise.",
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["true"])).into(),
            ),
        ),
        (RETRY_AFTER, header("After how many seconds a request will be admitted.", seconds.into())),
        (WWW_AUTHENTICATE, header("`Bearer`.", text("").into())),
    ]
}

/// An example with more members, or other values.
pub(super) fn with(mut example: Value, more: Value) -> Value {
    if let (Value::Object(example), Value::Object(more)) = (&mut example, more) {
        example.extend(more);
    }
    example
}

/// A reference to one of [`headers`].
pub(super) fn header(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

/// A header of one answer alone.
pub(super) fn text_header(description: &str) -> Header {
    let mut header = Header::new(text(""));
    header.description = Some(description.to_owned());
    header
}

fn parameter(name: &str) -> Ref {
    Ref::new(format!("#/components/parameters/{name}"))
}

fn query(name: &str, description: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

fn text(description: &str) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    if description.is_empty() { text } else { text.description(Some(description)) }
}
