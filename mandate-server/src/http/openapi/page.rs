//! Pages of lists: their schema, and the parameters that choose them.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde_json::json;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Required, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::http::extract::{DEFAULT_LIMIT, MAX_LIMIT};

/// One page of a list of `T`.
#[derive(Debug)]
pub struct Page<T>(PhantomData<T>);

impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let flag = ObjectBuilder::new().schema_type(Type::Boolean).description(Some(
            "Whether there are more. A client walks until it is false, not until a page is empty.",
        ));
        let cursor = text().description(Some("Where the next page begins. Absent when `has_more` is false."));
        let items = Ref::from_schema_name(T::name());
        ObjectBuilder::new()
            .description(Some(format!("One page of a list: {}.", T::name())))
            .property("data", ArrayBuilder::new().items(items).max_items(Some(MAX_LIMIT as usize)))
            .property("has_more", flag)
            .property("next_cursor", cursor)
            .required("data")
            .required("has_more")
            .into()
    }
}

impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Page", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
        schemas.push((T::name().into(), T::schema()));
    }
}

/// The parameters of every list.
#[derive(Debug)]
pub struct PageParameters;

impl IntoParams for PageParameters {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        parameters().into_iter().map(|(_, parameter)| parameter).collect()
    }
}

/// The parameters of every list, by the names under which the document holds them.
pub(super) fn parameters() -> [(&'static str, Parameter); 4] {
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_LIMIT))
        .default(Some(json!(DEFAULT_LIMIT)));
    [
        ("Limit", query("limit", "How many objects the page holds at most.", limit)),
        (
            "Cursor",
            query(
                "cursor",
                "The `next_cursor` of the page before, with the same filters and a key of the same caller. It holds for 24 hours. \
                 Lists are in the order of ids. After the clock was set back the time in an id may be later than the object's own.",
                text(),
            ),
        ),
        (
            "StartingAfter",
            query(
                "starting_after",
                "Begin after the object with this id. Unlike a cursor, it does not expire.",
                text(),
            ),
        ),
        (
            "EndingBefore",
            query(
                "ending_before",
                "The page before the object with this id, towards the newest. Of `cursor`, `starting_after` and `ending_before` one can be given. \
                 To follow a list and miss nothing, give the newest id that you have had for a minute, and skip the objects that you have: an object may \
                 appear in the list up to a minute after one with a later id. After the clock was set back the time in an id may be later \
                 than the object's own.",
                text(),
            ),
        ),
    ]
}

fn query(name: &str, description: &str, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

/// A cursor or an id: never empty.
fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).min_length(Some(1))
}
