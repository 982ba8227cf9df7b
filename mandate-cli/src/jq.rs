//! `--jq`: a jq expression over the JSON that a command prints.

use std::fmt;

use jaq_core::load::{Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::{Val, read};
use mandate_core::json::one_line;

use crate::exit::{Exit, Failure};

/// A compiled expression.
pub(crate) struct Filter {
    text: String,
    compiled: jaq_core::Filter<data::JustLut<Val>>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({:?})", self.text)
    }
}

impl Filter {
    /// Compiles `text`.
    pub(crate) fn compile(text: &str) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::new(Exit::Usage, format!("--jq `{text}` is no jq expression: {why}"))
                .next("put it in single quotes, for example --jq '.[].id'")
        };
        let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let modules = Loader::new(definitions)
            .load(&arena, File { code: text, path: () })
            .map_err(|_| refused("it cannot be read".to_owned()))?;
        let compiled = Compiler::default().with_funs(functions).compile(modules).map_err(|errors| {
            let unknown = errors.iter().flat_map(|(_, errors)| errors).map(|(name, _)| *name);
            refused(format!("unknown: {}", unknown.collect::<Vec<_>>().join(", ")))
        })?;
        Ok(Self { text: text.to_owned(), compiled })
    }

    /// The results of the expression for `json`, one on each line: strings as they are, everything else as
    /// JSON. Errors do not show values, which may be secret.
    pub(crate) fn apply(&self, json: &str) -> Result<String, Failure> {
        let failed = || Failure::new(Exit::Io, format!("--jq `{}` does not fit the answer", self.text));
        let input = read::parse_single(json.as_bytes()).map_err(|_| failed())?;
        let context = Ctx::<data::JustLut<Val>>::new(&self.compiled.lut, Vars::new([]));
        let mut lines = String::new();
        for value in self.compiled.id.run((context, input)).map(unwrap_valr) {
            match value.map_err(|_| failed())? {
                Val::TStr(text) => lines.push_str(&String::from_utf8_lossy(&text)),
                value => lines.push_str(&one_line(&value.to_string())),
            }
            lines.push('\n');
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_gives_lines() {
        let lines = |expression: &str, json: &str| Filter::compile(expression).unwrap().apply(json).unwrap();
        assert_eq!(lines(".[].id", r#"[{"id":"a"},{"id":"b"}]"#), "a\nb\n");
        assert_eq!(lines(".a", r#"{"a":{"b":[1,null]}}"#), "{\"b\":[1,null]}\n");
        assert_eq!(lines("map(select(.n > 40)) | length", r#"[{"n":40.5},{"n":4}]"#), "1\n");
        assert_eq!(lines("empty", "1"), "");
        assert_eq!(lines("{a}", "{\"a\":\"\u{2028}\"}"), "{\"a\":\"\\u2028\"}\n");
    }

    #[test]
    fn amounts_keep_their_digits() {
        let lines = Filter::compile(".amount").unwrap().apply(r#"{"amount":0.00000001}"#).unwrap();
        assert_eq!(lines, "0.00000001\n");
    }

    #[test]
    fn errors_name_the_problem() {
        for (expression, message) in [(".[", "cannot be read"), ("nonsense", "unknown: nonsense")] {
            let failure = Filter::compile(expression).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.message().contains(message), "{failure:?}");
        }
        let failure = Filter::compile(".key|tonumber").unwrap().apply(r#"{"key":"secret"}"#).unwrap_err();
        assert_eq!(failure.exit, Exit::Io);
        assert!(failure.message().contains("does not fit") && !failure.message().contains("secret"));
    }
}
