//! Which form of an answer a request prefers (RFC 9110, section 12.5.1).

use hyper::header::{self, HeaderMap};

/// The entry of `offered` that the request gives the highest weight, or the first if it names none. Wildcards
/// match the first.
pub(super) fn preferred(headers: &HeaderMap, offered: &[&'static str]) -> &'static str {
    let mut best = (offered.first().copied().unwrap_or_default(), 0.0);
    let values = headers.get_all(header::ACCEPT).iter();
    for range in values.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')) {
        let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
        let named = offered.iter().find(|offer| offer.eq_ignore_ascii_case(name.trim()));
        let weight = weight(parameters);
        if let Some(offer) = named.filter(|_| weight > best.1) {
            best = (offer, weight);
        }
    }
    best.0
}

/// The parameter `q`: 1 if absent, 0 if it is not a number from 0 to 1.
fn weight(parameters: &str) -> f32 {
    let mut pairs = parameters.split(';').filter_map(|parameter| parameter.trim().split_once('='));
    match pairs.find(|(name, _)| name.eq_ignore_ascii_case("q")) {
        Some((_, value)) => value.parse().ok().filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0),
        None => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn the_form_named_with_the_highest_weight() {
        const OFFERED: [&str; 3] = ["application/json", "application/x-ndjson", "text/csv"];
        for (accept, form) in [
            ("", OFFERED[0]),
            ("*/*", OFFERED[0]),
            ("text/html, */*;q=0.8", OFFERED[0]),
            ("text/csv", OFFERED[2]),
            ("Text/CSV; charset=utf-8", OFFERED[2]),
            ("text/csv;q=0.5, application/x-ndjson", OFFERED[1]),
            ("application/json;q=0.1,text/csv;header=present;q=0.9", OFFERED[2]),
            ("text/csv;q=0", OFFERED[0]),
            ("text/csv;q=2", OFFERED[0]),
            ("text/csvx", OFFERED[0]),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(preferred(&headers, &OFFERED), form, "{accept}");
        }
        assert_eq!(preferred(&HeaderMap::new(), &OFFERED), OFFERED[0]);
    }
}
