//! An authenticator with one passkey, and people who have one.
#![allow(dead_code, reason = "each of the binaries of tests that have this file uses a part of it")]

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mandate_core::es256::{self, SecretKey, Signer};
use mandate_core::jwks::Kid;
use mandate_core::people::{Assertion, CredentialId, Registration, RelyingParty};
use mandate_core::{AgentName, EnvironmentKind, PersonId, Principal, Timestamp};
use mandate_server::clock::{Clock as _, Entropy as _, SystemEntropy};
use mandate_server::error::Refusal;
use mandate_server::model::call::ScriptError;
use mandate_server::service::audit::{self, Operator};
use mandate_server::service::people::answers::{self, Outcome};
use mandate_server::service::people::challenges::{Challenges, Purpose};
use mandate_server::service::people::enrolment::{self, Finished, Registering};
use mandate_server::service::people::statements::{self, Issued, Subject};
use mandate_server::service::people::{self, May, New, Secret, Viewer};
use mandate_server::store::tx::Tx;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::apart;
use crate::world::{ISSUER, World};

pub(crate) const ORIGIN: &str = "https://console.example";
/// Present, verified, synced.
pub(crate) const GOOD: u8 = 0x1d;

/// A passkey and its key.
pub(crate) struct Authenticator {
    signer: Arc<dyn Signer>,
    pub(crate) credential: CredentialId,
}

impl Authenticator {
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        SystemEntropy.fill(&mut secret);
        let credential = CredentialId::from_bytes(&Sha256::digest(secret)).unwrap();
        let secret = SecretKey::from_bytes(secret).unwrap();
        let kid = Kid::parse(&format!("sandbox-{}", "A".repeat(43))).unwrap();
        Self { signer: es256::signer(&secret, kid).unwrap(), credential }
    }

    pub(crate) fn register(&self, challenge: [u8; 32]) -> Registration {
        let key = self.signer.public_key();
        let id = self.credential.as_bytes();
        let mut data = head(ORIGIN, GOOD | 0x40);
        data.extend([0; 16]);
        data.extend(u16::try_from(id.len()).unwrap().to_be_bytes());
        data.extend(id);
        data.extend([0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 0x20]);
        data.extend(key.x());
        data.extend([0x22, 0x58, 0x20]);
        data.extend(key.y());
        Registration {
            authenticator_data: data,
            client_data: client_data("webauthn.create", challenge, ORIGIN),
        }
    }

    /// The same key under the id of another passkey.
    pub(crate) fn posing_as(&self, other: &Self) -> Self {
        Self { signer: Arc::clone(&self.signer), credential: other.credential.clone() }
    }

    pub(crate) fn sign(&self, challenge: [u8; 32]) -> Assertion {
        self.sign_at(challenge, ORIGIN, GOOD)
    }

    pub(crate) fn sign_at(&self, challenge: [u8; 32], origin: &str, flags: u8) -> Assertion {
        self.sign_with(head(origin, flags), challenge, origin)
    }

    /// For the relying party of another origin than that of the page.
    pub(crate) fn sign_for(&self, challenge: [u8; 32], other: &str) -> Assertion {
        self.sign_with(head(other, GOOD), challenge, ORIGIN)
    }

    fn sign_with(&self, authenticator_data: Vec<u8>, challenge: [u8; 32], origin: &str) -> Assertion {
        let client_data = client_data("webauthn.get", challenge, origin);
        let signed = [&authenticator_data[..], &Sha256::digest(&client_data)].concat();
        let signature = der(self.signer.sign(&signed).unwrap());
        Assertion { credential: self.credential.clone(), authenticator_data, client_data, signature }
    }
}

fn head(origin: &str, flags: u8) -> Vec<u8> {
    let party = RelyingParty::of_origin(origin).unwrap();
    let mut data = Sha256::digest(party.id()).to_vec();
    data.extend([flags, 0, 0, 0, 0]);
    data
}

fn client_data(kind: &str, challenge: [u8; 32], origin: &str) -> Vec<u8> {
    let challenge = URL_SAFE_NO_PAD.encode(challenge);
    json!({ "type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false }).to_string().into()
}

/// Two integers of a sequence: without needless zeros in front, and with one where the first bit is set.
fn der(signature: [u8; 64]) -> Vec<u8> {
    let integers: Vec<u8> = signature
        .chunks(32)
        .flat_map(|half| {
            let mut digits: Vec<u8> = half.iter().copied().skip_while(|byte| *byte == 0).collect();
            if digits.first().is_none_or(|first| *first > 0x7f) {
                digits.insert(0, 0);
            }
            [vec![2, u8::try_from(digits.len()).unwrap()], digits].concat()
        })
        .collect();
    [vec![0x30, u8::try_from(integers.len()).unwrap()], integers].concat()
}

pub(crate) fn party() -> RelyingParty {
    RelyingParty::of_origin(ORIGIN).unwrap()
}

pub(crate) fn challenges() -> Challenges {
    Challenges::new(zeroize::Zeroizing::new([5; 32]))
}

pub(crate) fn acme() -> AgentName {
    AgentName::parse("acme").unwrap()
}

pub(crate) fn operator(world: &World) -> Operator {
    Operator { name: "root (uid 0)".to_owned(), at: world.clock.now() }
}

/// Runs a script of an operator's command.
pub(crate) fn operate<T: Send>(
    world: &World,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError> + Send,
) -> Result<T, String> {
    apart::run_once(&world.database, script).unwrap().map_err(|refusal| refusal.message)
}

/// A person whom the operator has created, and the secret of the link.
pub(crate) fn created(world: &World, name: &str, role: &str, may: May) -> (PersonId, Secret) {
    let (id, of) = (PersonId::from_bytes(world.new_id()), acme());
    let secret = || {
        Secret::new(zeroize::Zeroizing::new([world.new_id(), world.new_id()].concat().try_into().unwrap()))
    };
    let random = secret();
    let new = New {
        id,
        name: name.to_owned(),
        roles: vec![Principal::parse(role).unwrap()],
        may,
        secret: Secret::parse(&random.to_text()).unwrap(),
    };
    let by = operator(world);
    operate(world, |tx| people::create(tx, &world.moments, (&of, EnvironmentKind::Sandbox), &new, &by))
        .unwrap();
    (id, random)
}

/// Runs a script of the console.
pub(crate) async fn run<T: Send + 'static>(
    world: &World,
    script: impl Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
) -> Result<T, Refusal> {
    world.store.write(script).await.unwrap()
}

/// Registers the passkey of `authenticator` by a link. Gives the session.
pub(crate) async fn enrol(
    world: &World,
    secret: &Secret,
    authenticator: &Authenticator,
) -> Result<(Viewer, Secret), Refusal> {
    let begun = begin(world, secret).await?;
    let finished = Finished {
        challenge: begun.challenge,
        registration: authenticator.register(begun.challenge),
        label: "laptop".to_owned(),
    };
    finish(world, secret, finished).await
}

pub(crate) async fn begin(world: &World, secret: &Secret) -> Result<Registering, Refusal> {
    let (moments, environment) = (Arc::clone(&world.moments), world.organization.environment.clone());
    let link = Secret::parse(&secret.to_text()).unwrap();
    run(world, move |tx| {
        enrolment::begin(tx, &moments, &challenges(), &party(), (&environment, &acme()), &link)
    })
    .await
}

pub(crate) async fn finish(
    world: &World,
    secret: &Secret,
    finished: Finished,
) -> Result<(Viewer, Secret), Refusal> {
    let (moments, environment) = (Arc::clone(&world.moments), world.organization.environment.clone());
    let link = Secret::parse(&secret.to_text()).unwrap();
    run(world, move |tx| {
        let of = (&environment, &acme());
        enrolment::finish(tx, &moments, &challenges(), &party(), of, &link, &finished)
    })
    .await
}

/// A person of this role who is signed in.
pub(crate) async fn person(world: &World, name: &str, role: &str, may: May) -> (Viewer, Authenticator) {
    let (_, secret) = created(world, name, role, may);
    let authenticator = Authenticator::new();
    let (viewer, _) = enrol(world, &secret, &authenticator).await.unwrap();
    (viewer, authenticator)
}

pub(crate) async fn issue(world: &World, viewer: &Viewer, subject: Subject) -> Result<Issued, Refusal> {
    let (moments, viewer) = (Arc::clone(&world.moments), viewer.clone());
    run(world, move |tx| statements::issue(tx, &moments, &viewer, &subject, (ISSUER, &party()))).await
}

pub(crate) async fn answer(
    world: &World,
    viewer: &Viewer,
    challenge: [u8; 32],
    assertion: Assertion,
) -> Result<Outcome, Refusal> {
    let (moments, engine) = (Arc::clone(&world.moments), Arc::clone(&world.engine));
    let viewer = viewer.clone();
    run(world, move |tx| answers::answer(tx, &moments, &engine, &party(), &viewer, challenge, &assertion))
        .await
}

/// A challenge to sign in to a kind of environment of `acme`.
pub(crate) fn challenge(world: &World, kind: EnvironmentKind) -> [u8; 32] {
    let random = world.ids.random();
    challenges().make((&acme(), kind), Purpose::SignIn, world.clock.now(), &random)
}

/// Finishes a sign-in to the sandbox.
pub(crate) async fn sign_in(
    world: &World,
    challenge: [u8; 32],
    assertion: Assertion,
) -> Result<(Viewer, Secret), Refusal> {
    let (moments, environment) = (Arc::clone(&world.moments), world.organization.environment.clone());
    run(world, move |tx| {
        let of = (&environment, &acme());
        people::sign_in::finish(tx, &moments, &challenges(), &party(), of, challenge, &assertion)
    })
    .await
}

pub(crate) async fn signed_in(world: &World, with: &Authenticator) -> Result<(Viewer, Secret), String> {
    let challenge = challenge(world, EnvironmentKind::Sandbox);
    sign_in(world, challenge, with.sign(challenge)).await.map_err(|refusal| refusal.message)
}

/// What audit records say that was done, oldest first: the action, and the check that refused it.
pub(crate) fn audited(world: &World) -> Vec<(String, Option<String>)> {
    let records =
        operate(world, |tx| Ok(audit::newest(tx, None, Timestamp::from_seconds(0), 1_000)?)).unwrap();
    let said = records.into_iter().rev().map(|record| {
        let details: Value = serde_json::from_str(record.details.get()).unwrap();
        (record.action, details["refused"].as_str().map(ToOwned::to_owned))
    });
    said.collect()
}
