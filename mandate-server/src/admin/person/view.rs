//! People, passkeys and sessions as they are printed.

use std::io::{self, Write};

use mandate_core::people::CredentialId;
use mandate_core::{PersonId, Principal, Timestamp};
use serde::Serialize;

use super::super::terminal;
use crate::model::people::PersonRecord;
use crate::service::people::{Listed, May, sessions};

/// A person, as JSON.
#[derive(Serialize)]
pub(super) struct View<'a> {
    person: PersonId,
    name: &'a str,
    roles: &'a [Principal],
    may: May,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_at: Option<Timestamp>,
    passkeys: Vec<PasskeyView<'a>>,
    /// The enrolment link, where one was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
}

#[derive(Serialize)]
struct PasskeyView<'a> {
    credential: &'a CredentialId,
    label: &'a str,
    /// Where it was registered: it neither signs in nor answers at another console.
    origin: &'a str,
    is_synced: bool,
    enrolled_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawn_at: Option<Timestamp>,
}

#[derive(Serialize)]
pub(super) struct SessionView<'a> {
    pub(super) session: i64,
    pub(super) person: PersonId,
    pub(super) name: &'a str,
    pub(super) credential: &'a CredentialId,
    pub(super) created_at: Timestamp,
    pub(super) seen_at: Timestamp,
}

/// A line for each passkey of a person, or one without.
pub(super) fn table(out: &mut dyn Write, people: &[View<'_>]) -> io::Result<()> {
    let heads =
        ["PERSON", "NAME", "ROLES", "MAY", "STATUS", "PASSKEY", "LABEL", "ORIGIN", "ENROLLED", "WITHDRAWN"];
    let rows = people.iter().flat_map(|view| {
        let (none, some) = (view.passkeys.is_empty().then_some(None), view.passkeys.iter().map(Some));
        none.into_iter().chain(some).map(|key| view.row(key))
    });
    terminal::table(out, heads, rows)
}

impl<'a> View<'a> {
    pub(super) fn of(listed: &'a Listed) -> Self {
        let PersonRecord { person, created_at, disabled_at, .. } = &listed.record;
        let passkeys = listed.keys.iter().map(|key| PasskeyView {
            credential: &key.credential,
            label: &key.label,
            origin: &key.origin,
            is_synced: key.is_synced,
            enrolled_at: key.enrolled_at,
            withdrawn_at: key.withdrawn_at,
        });
        Self {
            person: person.id,
            name: &person.name,
            roles: &person.roles,
            may: person.may,
            created_at: *created_at,
            disabled_at: *disabled_at,
            passkeys: passkeys.collect(),
            link: None,
        }
    }

    /// With the enrolment link that was made.
    pub(super) fn with_link(self, link: &'a str) -> Self {
        Self { link: Some(link), ..self }
    }

    fn row(&self, key: Option<&PasskeyView<'_>>) -> [String; 10] {
        let roles: Vec<_> = self.roles.iter().map(Principal::as_str).collect();
        [
            self.person.to_string(),
            self.name.to_owned(),
            roles.join(" "),
            self.may.as_str().to_owned(),
            if self.disabled_at.is_some() { "disabled" } else { "active" }.to_owned(),
            key.map(|key| key.credential.to_string()).unwrap_or_default(),
            key.map(|key| key.label.to_owned()).unwrap_or_default(),
            key.map(|key| key.origin.to_owned()).unwrap_or_default(),
            terminal::instant(key.map(|key| key.enrolled_at)),
            terminal::instant(key.and_then(|key| key.withdrawn_at)),
        ]
    }
}

impl<'a> SessionView<'a> {
    pub(super) fn of(listed: &'a sessions::Listed) -> Self {
        let session = &listed.session;
        Self {
            session: session.session,
            person: session.person,
            name: &listed.name,
            credential: &session.credential,
            created_at: session.created_at,
            seen_at: session.seen_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::es256::SecretKey;

    use crate::model::people::{PasskeyRecord, Person};

    #[test]
    fn a_passkey_is_listed_with_the_origin_at_which_it_is_good() {
        let (at, origin) = (Timestamp::from_seconds(0), "http://localhost:8083");
        let person = Person {
            id: PersonId::from_bytes([1; 16]),
            name: "Ada".to_owned(),
            roles: vec![Principal::parse("role:cfo").unwrap()],
            may: May::Review,
        };
        let key = PasskeyRecord {
            environment: 1,
            credential: CredentialId::from_bytes(&[2; 16]).unwrap(),
            person: person.id,
            key: (*SecretKey::from_bytes([9; 32]).unwrap().public_key()).into(),
            label: "Laptop".to_owned(),
            origin: origin.to_owned(),
            is_synced: false,
            enrolled_at: at,
            withdrawn_at: None,
        };
        let record = PersonRecord { environment: 1, person, created_at: at, disabled_at: None };
        let listed = Listed { record, keys: vec![key] };
        let (view, mut shown) = (View::of(&listed), Vec::new());
        table(&mut shown, std::slice::from_ref(&view)).unwrap();
        assert!(String::from_utf8(shown).unwrap().contains(origin));
        assert_eq!(serde_json::to_value(&view).unwrap()["passkeys"][0]["origin"], origin);
    }
}
