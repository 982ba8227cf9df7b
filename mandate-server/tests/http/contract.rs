//! The contract against the code that it is made from, and against what the server answers.

use std::collections::BTreeSet;

use jsonschema::Validator;
use mandate_server::app::Urls;
use mandate_server::http::KEY_SET_PATH;
use mandate_server::http::openapi::{self, Hosts};
use mandate_server::http::router::{Key, OPERATIONS, PATHS, table};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::wire::Reply;

/// Headers that every answer may have: of the connection, of the body's form, and those that keep caches and guesses away.
const OF_EVERY_ANSWER: [&str; 6] = [
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "cache-control",
    "x-content-type-options",
];

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.yaml");
/// Said of every operation.
const SAID: [&str; 5] = ["operationId", "summary", "description", "responses", "security"];

/// The contract of a server.
pub(crate) struct Contract(Value);

impl Contract {
    pub(crate) fn of(urls: &Urls) -> Self {
        Self::new(Hosts { base: &urls.base, verdicts: &urls.verdicts })
    }

    fn new(hosts: Hosts<'_>) -> Self {
        let mut document = serde_json::to_value(openapi::document(hosts)).unwrap();
        close(&mut document);
        Self(document)
    }

    /// Every operation: method, path and description.
    fn operations(&self) -> impl Iterator<Item = (&str, &str, &Map<String, Value>)> {
        self.0["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations.map(move |(method, operation)| {
                (method.as_str(), path.as_str(), operation.as_object().unwrap())
            })
        })
    }

    /// What is meant, when it is a reference.
    fn meant<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.0.pointer(reference.trim_start_matches('#')).unwrap(),
            None => value,
        }
    }

    fn validator(&self, schema: &Value) -> Validator {
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap()
    }

    /// Checks that `answer` is one that the contract has: status, headers and body. Nothing is said of a request that is
    /// answered before it has reached an operation.
    pub(crate) fn check(&self, method: &Method, path: &str, answer: &Reply) {
        let path = path.split('?').next().unwrap();
        let Some((_, _, operation)) = self.operations().find(|(found, template, _)| {
            found.eq_ignore_ascii_case(method.as_str()) && matches(template, path)
        }) else {
            return;
        };
        let status = answer.status;
        let what = format!("{method} {path} {status} {}", answer.body);
        let responses = &operation["responses"];
        let response = if status >= 500 { responses.get("5XX") } else { responses.get(status.to_string()) };
        let response = self.meant(response.unwrap_or_else(|| panic!("not in the contract: {what}")));
        let named = response["headers"].as_object().into_iter().flat_map(Map::keys);
        let named: BTreeSet<_> = named.map(|name| name.to_lowercase()).collect();
        for (name, _) in &answer.headers {
            let known = named.contains(name) || OF_EVERY_ANSWER.contains(&name.as_str());
            assert!(known, "{name} is not in the contract: {what}");
        }
        let content = response.get("content").and_then(Value::as_object);
        assert!(content.is_some() || answer.body.is_empty(), "a body that is not in the contract: {what}");
        if let Some(content) = content {
            let schema = &content[answer.header("Content-Type").unwrap()]["schema"];
            let errors: Vec<_> =
                self.validator(schema).iter_errors(&answer.json()).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}: {what}");
        }
    }
}

/// Closes every object: an answer may hold nothing that the contract does not name.
fn close(value: &mut Value) {
    if let Value::Object(object) = value {
        if object.get("type") == Some(&json!("object")) && object.contains_key("properties") {
            object.insert("additionalProperties".to_owned(), json!(false));
        }
        object.values_mut().for_each(close);
    } else if let Value::Array(array) = value {
        array.iter_mut().for_each(close);
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template.iter().zip(path).all(|(t, p)| *t == p || (*t == "{id}" && !p.is_empty()))
}

#[test]
fn the_file_beside_the_code_is_what_the_code_makes() {
    let made = openapi::yaml(Hosts::EXAMPLE).unwrap();
    let kept = std::fs::read_to_string(FILE).unwrap();
    assert!(
        made == kept,
        "docs/openapi.yaml is not what the code makes; renew it with\n\n    \
         cargo run --bin mandate-server -- openapi > docs/openapi.yaml\n"
    );
}

#[test]
fn every_operation_and_path_is_counted() {
    let contract = Contract::new(Hosts::EXAMPLE);
    let paths: BTreeSet<_> = contract.operations().map(|(_, path, _)| path).collect();
    assert_eq!((contract.operations().count(), paths.len()), (OPERATIONS, PATHS));
    assert_eq!(table().len() + 1, OPERATIONS, "the table, and the key set");
}

/// The id of the operation that a handler carries out: `agents::list` is `listAgents`, `agents::get` is `getAgent`.
fn operation_id(handler: &str) -> String {
    let mut path = handler.rsplit("::");
    let (function, objects) = (path.next().unwrap(), path.next().unwrap());
    let objects = if function == "list" { objects } else { objects.trim_end_matches('s') };
    format!("{function}{}{}", objects[..1].to_uppercase(), &objects[1..])
}

#[test]
fn each_attribute_has_the_method_the_path_the_key_and_the_handler_of_its_row() {
    let contract = Contract::new(Hosts::EXAMPLE);
    let keys = |operation: &Map<String, Value>| -> Vec<String> {
        let schemes = operation["security"].as_array().unwrap().iter();
        schemes.map(|scheme| scheme.as_object().unwrap().keys().next().unwrap().clone()).collect()
    };
    let described: BTreeSet<_> = contract
        .operations()
        .filter(|(_, path, _)| *path != KEY_SET_PATH)
        .map(|(method, path, operation)| {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            (method.to_uppercase(), path.to_owned(), keys(operation), id)
        })
        .collect();
    let rows = table().into_iter().map(|row| {
        let schemes: &[&str] = match row.key {
            Key::Organization => &["organizationKey"],
            Key::Agent => &["agentKey"],
            Key::Any => &["organizationKey", "agentKey"],
        };
        let schemes = schemes.iter().map(|scheme| (*scheme).to_owned()).collect();
        (row.method.to_string(), row.path.to_owned(), schemes, operation_id(row.name))
    });
    assert_eq!(described, rows.collect());
}

#[test]
fn everything_is_said_of_every_operation() {
    let contract = Contract::new(Hosts::EXAMPLE);
    let mut ids = BTreeSet::new();
    for (method, path, operation) in contract.operations() {
        for name in SAID {
            let said = operation.get(name).is_some_and(|said| *said != json!(""));
            assert!(said, "{method} {path} has no {name}");
        }
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{path}: an id that is there twice");
        let parameters: Vec<_> =
            operation.get("parameters").and_then(Value::as_array).into_iter().flatten().collect();
        let has = |name: &str| parameters.iter().any(|p| contract.meant(p)["name"] == name);
        assert_eq!(has("id"), path.contains("{id}"), "{method} {path}");
        assert_eq!(has("Idempotency-Key"), method == "post", "{method} {path}");
        for parameter in &parameters {
            assert!(contract.meant(parameter)["description"].is_string(), "{method} {path} {parameter}");
        }
        for status in ["400", "408", "431"] {
            assert!(operation["responses"].get(status).is_some(), "{method} {path} has no {status}");
        }
        for response in operation["responses"].as_object().unwrap().values().map(|r| contract.meant(r)) {
            assert!(response["headers"].get("X-Request-Id").is_some(), "{method} {path}");
        }
    }
}

/// What tools that read contracts ask for.
#[test]
fn the_contract_names_its_contact_licence_and_tags() {
    let Contract(document) = Contract::new(Hosts::EXAMPLE);
    assert!(document["info"]["contact"]["name"].is_string());
    assert_eq!(document["info"]["license"]["identifier"], "MIT OR Apache-2.0");
    let tags: BTreeSet<_> =
        document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).map(Value::to_string).collect();
    let contract = Contract(document.clone());
    let used = contract.operations().flat_map(|(_, _, operation)| operation["tags"].as_array().unwrap());
    assert_eq!(used.map(Value::to_string).collect::<BTreeSet<_>>(), tags);
}

/// The contract says exactly what is accepted.
#[test]
fn bounds_of_amounts_and_cursors_are_in_the_contract() {
    let contract = Contract::new(Hosts::EXAMPLE);
    let amount = &contract.0["components"]["schemas"]["Amount"];
    for (accepted, value) in
        [(true, "0.00000001"), (true, "999999999999999"), (false, "0"), (false, "0.000000001"), (false, "-1")]
    {
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(contract.validator(amount).is_valid(&value), accepted, "{value}");
    }
    let yaml = openapi::yaml(Hosts::EXAMPLE).unwrap();
    assert!(
        yaml.contains("minimum: 0.00000001\n") && !yaml.contains("1e-8"),
        "readers of YAML 1.1 take 1e-8 for text"
    );
    for name in ["Cursor", "StartingAfter", "EndingBefore"] {
        assert_eq!(contract.0["components"]["parameters"][name]["schema"]["minLength"], 1, "{name}");
    }
    let schemas = &contract.0["components"]["schemas"];
    let pages =
        schemas.as_object().unwrap().values().filter_map(|schema| schema["properties"].get("next_cursor"));
    let least: Vec<_> = pages.map(|cursor| &cursor["minLength"]).collect();
    assert!(least.len() > 5 && least.iter().all(|least| **least == 1), "{least:?}");
    let webhook = contract.validator(&schemas["NewWebhook"]["properties"]["url"]);
    for (accepted, url) in
        [(true, "https://a.example/"), (true, "HTTPS://a.example/"), (false, "http://a.example/")]
    {
        assert_eq!(webhook.is_valid(&json!(url)), accepted, "{url}");
    }
}

#[test]
fn every_example_is_what_its_schema_allows() {
    let contract = Contract::new(Hosts::EXAMPLE);
    let mut examples = 0;
    for (method, path, operation) in contract.operations() {
        let bodies = operation.get("requestBody").into_iter();
        let contents =
            bodies.chain(operation["responses"].as_object().unwrap().values().map(|r| contract.meant(r)));
        for content in contents.filter_map(|body| body["content"].as_object()).flat_map(Map::values) {
            let example = content.get("example").unwrap_or_else(|| panic!("{method} {path} has no example"));
            let errors: Vec<_> =
                contract.validator(&content["schema"]).iter_errors(example).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{method} {path}: {errors:?} in {example}");
            examples += 1;
        }
    }
    assert!(examples > OPERATIONS);
    for (name, schema) in contract.0["components"]["schemas"].as_object().unwrap() {
        for example in schema.get("examples").and_then(Value::as_array).into_iter().flatten() {
            assert!(contract.validator(schema).is_valid(example), "{name}: {example}");
        }
    }
}

#[test]
fn every_link_leads_to_an_operation() {
    let contract = Contract::new(Hosts::EXAMPLE);
    let ids: BTreeSet<_> =
        contract.operations().map(|(_, _, o)| o["operationId"].as_str().unwrap()).collect();
    let responses = contract.operations().flat_map(|(_, _, o)| o["responses"].as_object().unwrap().values());
    let links: Vec<_> = responses.filter_map(|r| r.get("links")?.as_object()).flat_map(Map::values).collect();
    assert!(links.iter().all(|link| ids.contains(link["operationId"].as_str().unwrap())));
    assert!(links.len() >= 9, "{}", links.len());
}
