//! Which documents are read and which are refused.

use super::*;

fn refused(text: &str) -> String {
    Object::parse(text.as_bytes()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn whole_documents_that_are_refused() {
    for (text, message) in [
        ("", "body must be JSON and nothing else; it is not at byte 0"),
        ("[1]", "body must be a JSON object"),
        ("{}x", "body must be JSON and nothing else; it is not at byte 2"),
        ("{} {}", "body must be JSON and nothing else; it is not at byte 3"),
        ("{\"a\":1,\"a\":2}", "a appears twice in the object"),
        ("{\"a\":1,\"\\u0061\":2}", "a appears twice in the object"),
        ("{\"a\":01}", "body must be JSON and nothing else; it is not at byte 6"),
        ("{\"a\":NaN}", "body must be JSON and nothing else; it is not at byte 5"),
        (r#"{"\udc00":1}"#, "body must have names of valid Unicode"),
        (r#"{"a":1,"\ud800x":2}"#, "body must have names of valid Unicode"),
        (r#"{"\udc00":1"#, "body must be JSON and nothing else; it is not at byte 7"),
        ("\u{feff}{}", "body must not begin with a byte order mark"),
    ] {
        assert_eq!(refused(text), message, "{text:?}");
    }
    let bytes = b"{\"a\":\"\xff\"}";
    assert_eq!(
        Object::parse(bytes).unwrap_err().to_string(),
        "body must be UTF-8; the byte at position 6 is not"
    );
}

#[test]
fn depth_is_bounded_and_brackets_in_strings_do_not_count() {
    let deep = |n: usize| format!("{{\"a\":{}1{}}}", "[".repeat(n), "]".repeat(n));
    assert!(Object::parse(deep(31).as_bytes()).is_ok());
    assert!(refused(&deep(32)).contains("at most 32 levels deep"));
    assert!(refused(&"{\"a\":".repeat(100_000)).contains("at most 32 levels deep"));
    assert!(Object::parse(format!("{{\"a\":\"{}\"}}", "[\\\"".repeat(99)).as_bytes()).is_ok());
    assert!(
        Object::parse(format!("{{\"a\":[{}[]]}}", "{},".repeat(99)).as_bytes()).is_ok(),
        "many, and none deep"
    );
}

#[test]
fn the_last_level_is_read_whatever_else_there_is() {
    // More brackets than levels, so that the levels are counted one by one.
    let deep = |n: usize| format!("{{\"b\":[],\"a\":{}1{},\"c\":[]}}", "[".repeat(n), "]".repeat(n));
    assert!(Object::parse(deep(31).as_bytes()).is_ok());
    let document = deep(32);
    let place = document.find('1').unwrap() - 1;
    assert_eq!(
        refused(&document),
        format!("body must be at most 32 levels deep; the limit is passed at byte {place}")
    );
}

#[test]
fn as_many_members_and_elements_as_are_accepted() {
    let members = |n: usize| {
        let members: Vec<_> = (0..n).map(|n| format!("\"m{n}\":{n}")).collect();
        format!("{{{}}}", members.join(","))
    };
    let elements = |n: usize| format!("[{}]", vec!["1"; n].join(","));
    let within = |value: &str| {
        let document = format!("{{\"a\":{value}}}");
        let mut body = Object::parse(document.as_bytes()).unwrap();
        let field = body.require("a").unwrap();
        if value.starts_with('[') { field.array().map(|_| ()) } else { field.object().map(|_| ()) }
    };
    assert_eq!(Object::parse(members(1024).as_bytes()).unwrap().remaining().count(), 1024);
    assert_eq!(refused(&members(1025)), "body is too large");
    for value in [members(1024), elements(1024)] {
        assert!(within(&value).is_ok());
    }
    for value in [members(1025), elements(1025)] {
        assert_eq!(within(&value).unwrap_err().to_string(), "a has more than 1024 elements");
    }
}

#[test]
fn nested_fields_are_named_by_their_path() {
    let mut body = Object::parse(br#"{"limits":{"currency":7},"list":["a",2],"x":{"a":{},"a":{}}}"#).unwrap();
    let mut limits = body.require("limits").unwrap().object().unwrap();
    assert_eq!(
        limits.require("currency").unwrap().string().unwrap_err().to_string(),
        "limits.currency must be a string; got a number"
    );
    assert_eq!(
        limits.require("per_transaction").unwrap_err().to_string(),
        "limits.per_transaction is required"
    );
    let list = body.require("list").unwrap().array().unwrap();
    assert_eq!(list[1].string().unwrap_err().to_string(), "list[1] must be a string; got a number");
    assert_eq!(
        body.require("x").unwrap().object().unwrap_err().to_string(),
        "x.a appears twice in the object"
    );
}

#[test]
fn an_unpaired_surrogate_is_named_where_it_is() {
    for (text, message) in [
        (r#"{"a":{"b\ud800":1}}"#, "a must have names of valid Unicode"),
        (r#"{"a":{"b":1,"\udc00":2}}"#, "a must have names of valid Unicode"),
        (r#"{"a":{"\ud800\u0061":2}}"#, "a must have names of valid Unicode"),
    ] {
        let refused = Object::parse(text.as_bytes()).unwrap().require("a").unwrap().object().unwrap_err();
        assert_eq!(refused.to_string(), message, "{text}");
    }
    let mut body = Object::parse(br#"{"a":"\ud800","b":"\ud83d\ude00"}"#).unwrap();
    let refused = body.require("a").unwrap().string().unwrap_err().to_string();
    assert_eq!(refused, "a must be a string of valid Unicode");
    assert_eq!(body.require("b").unwrap().string().unwrap(), "\u{1f600}");
}

#[test]
fn a_document_is_strict_at_any_depth() {
    let strict = |text: &str| Object::parse(text.as_bytes()).unwrap().strict().map_err(|e| e.to_string());
    for (text, message) in [
        (r#"{"a":{"b":1,"b":2}}"#, "a.b appears twice in the object"),
        (r#"{"a":[0,[{"b":{"c":1,"\u0063":1}}]]}"#, "a[1][0].b.c appears twice in the object"),
        (r#"{"a":{"b":["\udfff"]}}"#, "a.b[0] must be a string of valid Unicode"),
        (r#"{"a":[{"\ud800":1}]}"#, "a[0] must have names of valid Unicode"),
        (r#"{"a":"\ud800x"}"#, "a must be a string of valid Unicode"),
    ] {
        assert_eq!(strict(text), Err(message.to_owned()), "{text}");
    }
    for text in [r"{}", r#"{"a":[{"b":1},{"b":2}],"b":{"a":"\ud83d\ude00"},"c":[1e400,-0,true,null]}"#] {
        assert_eq!(strict(text), Ok(()), "{text}");
    }
    let mut body = Object::parse(br#"{"a":"\ud800"}"#).unwrap();
    body.take("a").unwrap();
    assert_eq!(body.strict(), Ok(()), "what was taken out is read by itself");
}

#[test]
fn unknown_names_are_refused() {
    let mut body = Object::parse(br#"{"a":{"b":1,"c":2}}"#).unwrap();
    let mut a = body.require("a").unwrap().object().unwrap();
    a.require("b").unwrap();
    assert_eq!(a.finish().unwrap_err().to_string(), "a.c is not a known field; known are b");
}

#[test]
fn integers_are_digits() {
    for text in ["1.0", "1e3", "1e400", "9223372036854775808"] {
        let document = format!("{{\"exp\":{text}}}");
        let mut body = Object::parse(document.as_bytes()).unwrap();
        assert!(body.require("exp").unwrap().integer().is_err(), "{text}");
    }
    let mut body = Object::parse(b"{\"exp\":\"1\"}").unwrap();
    assert!(body.require("exp").unwrap().integer().is_err());
}

#[test]
fn a_private_spelling_of_a_number_is_an_object_like_any_other() {
    let mut body = Object::parse(br#"{"amount":{"$serde_json::private::Number":"12"}}"#).unwrap();
    assert_eq!(
        body.require("amount").unwrap().amount().unwrap_err().to_string(),
        "amount must be a number; got an object"
    );
}
