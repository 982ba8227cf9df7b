//! API keys within other text, where none belongs: to refuse them, and not to repeat them.

use std::borrow::Cow;

use super::{KeyClass, SECRET_CHARS};
use crate::EnvironmentKind;

/// How many letters and digits behind a prefix look like a part of a key, which is not repeated.
const LOOKS_LIKE_A_PART: usize = 16;

/// Whether a text holds what looks like an API key: one of the prefixes, and behind it as many letters and digits as the
/// secret of a key has, or more. The checksum does not count: without it, or with one character mistyped, the secret is
/// still there to be completed.
///
/// ```
/// use mandate_core::api_key::holds_key;
/// let key = "ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye";
/// assert!(holds_key(key) && holds_key(&format!("https://hooks.example/?key={key}&b=c")));
/// assert!(holds_key("ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Py"), "the last character is missing");
/// assert!(!holds_key("ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9"), "a part of a secret is masked only");
/// ```
#[must_use]
pub fn holds_key(text: &str) -> bool {
    prefixes(text)
        .any(|(start, prefix)| letters_and_digits(text, start.saturating_add(prefix)) >= SECRET_CHARS)
}

/// The text with everything that looks like an API key, or like a part of one, cut behind its prefix.
///
/// ```
/// use mandate_core::api_key::masked;
/// let text = "not `ak_live_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye`";
/// assert_eq!(masked(text), "not `ak_live_…`");
/// assert_eq!(masked("agt_buyer"), "agt_buyer");
/// ```
#[must_use]
pub fn masked(text: &str) -> Cow<'_, str> {
    let mut masked = String::new();
    let mut copied = 0;
    for (start, prefix) in prefixes(text) {
        let secret = start.saturating_add(prefix);
        let length = letters_and_digits(text, secret);
        if length >= LOOKS_LIKE_A_PART && copied <= secret {
            masked.push_str(text.get(copied..secret).unwrap_or_default());
            masked.push('…');
            copied = secret.saturating_add(length);
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(masked)
}

/// How many letters and digits there are from `start` on.
fn letters_and_digits(text: &str, start: usize) -> usize {
    text.get(start..).unwrap_or_default().bytes().take_while(u8::is_ascii_alphanumeric).count()
}

/// Where prefixes of keys begin, and how long they are, in the order of the text.
fn prefixes(text: &str) -> impl Iterator<Item = (usize, usize)> {
    // All prefixes have `k_` as their second and third character.
    text.match_indices("k_").filter_map(|(at, _)| {
        let start = at.checked_sub(1)?;
        let rest = text.get(start..)?;
        let mut known = KeyClass::ALL
            .into_iter()
            .flat_map(|class| EnvironmentKind::ALL.into_iter().map(move |kind| class.prefix(kind)));
        known.find(|prefix| rest.starts_with(prefix)).map(|prefix| (start, prefix.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_key::ApiKey;
    use proptest::prelude::*;

    fn key(class: KeyClass, kind: EnvironmentKind, seed: u8) -> ApiKey {
        ApiKey::from_random(class, kind, &[seed; 32])
    }

    #[test]
    fn a_key_is_found_and_masked_wherever_it_is() {
        for class in KeyClass::ALL {
            for kind in EnvironmentKind::ALL {
                let (key, prefix) = (key(class, kind, 7), class.prefix(kind));
                let key = key.expose();
                for text in
                    ["", "{}", "x{}y z", "é{}", "k_{}", "sk_live_{}", "{}{}", "\u{1f600}{} ak_", "{}\n{}"]
                {
                    let (text, shown) = (text.replace("{}", key), text.replace("{}", &format!("{prefix}…")));
                    assert_eq!(holds_key(&text), text.contains(key), "{text}");
                    assert!(!masked(&text).contains(&key[prefix.len()..]), "{text}");
                    if !text.contains("y z") && text.matches(key).count() < 2 {
                        assert_eq!(masked(&text), shown, "{text}");
                    }
                }
                let shown = format!("{prefix}…");
                let (mistyped, cut) = (key.replace("_1", "_2"), &key[..key.len() - 1]);
                for text in [cut, &mistyped, &key[..key.len() - 6], &format!("{key}0")] {
                    assert!(holds_key(text) && masked(text) == shown, "{text}");
                }
                let part = &key[..key.len() - 7];
                assert!(!holds_key(part) && masked(part) == shown, "{part}");
            }
        }
        for text in ["sk_live_", "ak_sandbox_short", "agt_task_live_1", "k_", ""] {
            assert!(!holds_key(text) && masked(text) == text, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_never_shows_a_key(before in "\\PC{0,12}", after in "\\PC{0,70}", seed: u8) {
            let key = key(KeyClass::Agent, EnvironmentKind::Production, seed);
            let text = format!("{before}{}{after}", key.expose());
            prop_assert!(holds_key(&text));
            prop_assert!(!masked(&text).contains(&key.expose()[8..]));
            prop_assert!(!holds_key(&masked(&text)));
        }
    }
}
