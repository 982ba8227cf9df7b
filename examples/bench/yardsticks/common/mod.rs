//! What both yardsticks share: the key that signs, the answer, and the way a yardstick is started.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt as _;
use mandate_core::es256::{self, SecretKey, Signer};
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{
    DecisionId, EnvironmentKind, MandateId, Nonce, PolicyVersion, Request, ReviewId, Timestamp,
    VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, jwt,
};
use serde::Serialize;
use tokio::net::TcpListener;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// That of the service, so that it makes no difference.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Where the key set is.
const KEY_SET_PATH: &str = "/.well-known/jwks.json";
/// How long a review waits, in seconds: as the service has it.
const REVIEW_SECONDS: i64 = 24 * 60 * 60;

/// What signs and numbers decisions.
#[derive(Debug)]
pub(crate) struct DecisionSigner {
    issuer: String,
    policy_version: PolicyVersion,
    signer: Arc<dyn Signer>,
    drawn: AtomicU64,
}

/// A decision, signed.
#[derive(Debug)]
pub(crate) struct Signed {
    pub(crate) id: DecisionId,
    pub(crate) token: String,
}

#[derive(Serialize)]
struct View<'a> {
    decision: DecisionId,
    verdict: Verdict,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<Review>,
}

#[derive(Serialize)]
struct Review {
    id: ReviewId,
    status: &'static str,
    waits_for: &'static str,
    expires_at: Timestamp,
}

impl DecisionSigner {
    fn new(issuer: String) -> Result<Self, Failure> {
        // Nothing depends on what it signs.
        let secret = SecretKey::from_bytes([7; 32])?;
        let kid = Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox);
        Ok(Self {
            issuer,
            policy_version: PolicyVersion::parse("pol_2026-01-01.1")?,
            signer: es256::signer(&secret, kid)?,
            drawn: AtomicU64::new(0),
        })
    }

    /// The low bits of the next id.
    pub(crate) fn draw(&self) -> u128 {
        u128::from(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// Signs a decision.
    pub(crate) fn sign(
        &self,
        request: Request,
        verdict: Verdict,
        mandate: Option<MandateId>,
        now: Timestamp,
    ) -> Result<Signed, Failure> {
        let id = DecisionId::new(now, self.draw());
        let claims = VerdictClaims {
            iss: self.issuer.clone(),
            jti: id,
            iat: now.seconds(),
            exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
            verdict,
            mandate,
            policy_version: self.policy_version.clone(),
            nonce: Nonce::new(now, self.draw()),
            request,
        };
        Ok(Signed { id, token: jwt::sign(&*self.signer, &claims.to_json())? })
    }

    /// The answer, field for field that of the service.
    pub(crate) fn answer(
        &self,
        signed: &Signed,
        verdict: Verdict,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Vec<u8>, Failure> {
        let review = (verdict == Verdict::Review).then(|| Review {
            id: ReviewId::new(now, self.draw()),
            status: "pending",
            waits_for: "role:load",
            expires_at: now.plus_seconds(REVIEW_SECONDS),
        });
        let verdict_token = (verdict == Verdict::Allow).then_some(signed.token.as_str());
        let view = View { decision: signed.id, verdict, mode: "enforce", verdict_token, reason, review };
        Ok(serde_json::to_vec(&view)?)
    }

    fn key_set(&self) -> Result<String, Failure> {
        let key = VerificationKey::new(self.signer.kid().clone(), *self.signer.public_key())?;
        Ok(KeySet::new(vec![key])?.to_json())
    }
}

/// Prints a failure, and answers it with 500.
pub(crate) fn respond(answered: Result<Vec<u8>, Failure>) -> Response {
    match answered {
        Ok(body) => (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(failure) => {
            eprintln!("{failure}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Serves what `routes` makes of a signer of decisions, on a free port of this machine, until the process is killed. Prints the base URL.
pub(crate) async fn serve(
    routes: impl FnOnce(Arc<DecisionSigner>) -> Result<Router, Failure>,
) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let issuer = format!("http://{address}/keys");
    let location = format!("{issuer}{KEY_SET_PATH}");
    let signer = Arc::new(DecisionSigner::new(issuer)?);
    let key_set = signer.key_set()?;
    let app = routes(signer)?
        .route(
            KEY_SET_PATH,
            get(async move || (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, location)])),
        )
        .route(&format!("/keys{KEY_SET_PATH}"), get(async move || key_set));
    println!("http://{address}/v1");
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, app).await?)
}

/// The time.
#[expect(clippy::disallowed_methods, reason = "the home of the clock in the yardsticks")]
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
