//! Variables with this project's prefix that are not read, such as misspelt ones.

use super::master::{MASTER_KEY_FILE_VARIABLE, MASTER_KEY_VARIABLE, NEW_MASTER_KEY_FILE_VARIABLE};
use super::{CONFIG_VARIABLE, NAMES, VARIABLE_PREFIX};

/// Other variables of this project: those of the server, of `mandate`, and of the tests.
const OTHERS: &[&str] = &[
    CONFIG_VARIABLE,
    MASTER_KEY_VARIABLE,
    MASTER_KEY_FILE_VARIABLE,
    NEW_MASTER_KEY_FILE_VARIABLE,
    "MANDATE_ORGANIZATION_KEY",
    "MANDATE_ORGANIZATION_KEY_FILE",
    "MANDATE_AGENT_KEY",
    "MANDATE_AGENT_KEY_FILE",
    "MANDATE_CONFIG_DIR",
    "MANDATE_ISSUER",
    "MANDATE_PROFILE",
    "MANDATE_JWKS",
    "MANDATE_AGENTS",
    "MANDATE_SERVER",
    "MANDATE_TEST_POSTGRES",
    "MANDATE_TEST_SCALE",
    "MANDATE_TEST_SEED",
    "MANDATE_WRITE_COUNTS",
    "MANDATE_WRITE_DOCS",
    "MANDATE_WRITE_VECTORS",
];

/// A variable that is not read.
#[derive(Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its name.
    pub name: String,
    /// The name that it resembles most.
    pub nearest: String,
}

/// Those of `names` that have this project's prefix and are none of its variables.
pub(super) fn unread(names: impl Iterator<Item = String>) -> Vec<Unread> {
    let settings = NAMES.iter().map(|name| format!("{VARIABLE_PREFIX}{}", name.to_uppercase()));
    let known: Vec<String> = settings.chain(OTHERS.iter().copied().map(str::to_owned)).collect();
    // Figment takes a variable's name in either case.
    let ours = |name: &String| name.to_uppercase().starts_with(VARIABLE_PREFIX);
    let mut unread: Vec<Unread> = names
        .filter(|name| ours(name) && !known.contains(&name.to_uppercase()))
        .filter_map(|name| {
            let distance = |known: &&String| strsim::levenshtein(known, &name.to_uppercase());
            let nearest = known.iter().min_by_key(distance)?.clone();
            Some(Unread { name, nearest })
        })
        .collect();
    unread.sort_by(|one, other| one.name.cmp(&other.name));
    unread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_variable_is_reported_with_a_similar_name() {
        let names = [
            "PATH",
            "MANDATE_DATABSE",
            "MANDATE_TLS_CERT",
            "MANDATE_DATABASE",
            "mandate_api_address",
            "MANDATE_MASTER_KEY_FILE",
            "MANDATE_AGENT_KEY",
        ];
        let found: Vec<_> = unread(names.map(str::to_owned).into_iter())
            .into_iter()
            .map(|Unread { name, nearest }| [name, nearest])
            .collect();
        assert_eq!(found, [["MANDATE_DATABSE", "MANDATE_DATABASE"], ["MANDATE_TLS_CERT", "MANDATE_TLS_KEY"]]);
    }
}
