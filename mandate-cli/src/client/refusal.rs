//! Failures: the service refused, failed, or could not be reached; and what to do next.

use mandate_core::json::Object;

use super::{Call, Client, Reply};
use crate::exit::{Exit, Failure};
use crate::http::{Error, NO_TLS};

impl Client {
    /// The failure for an answer other than 2xx.
    pub(super) fn refused(&self, call: &Call<'_>, reply: &Reply) -> Failure {
        let Some((code, message, request_id)) = envelope(&reply.body) else {
            return self.foreign(call, reply);
        };
        let exit = exit_of(reply.status).unwrap_or(Exit::UnknownAnswer);
        let failure = Failure::new(exit, message)
            .note("code", format_args!("{code} (HTTP {})", reply.status))
            .note("request id", request_id)
            .with_answer(&reply.body);
        match exit {
            Exit::InvalidRequest => failure.next("correct what the message names"),
            Exit::Unauthorized => failure.next(
                "check that the key belongs to this service and is not revoked; its operator issues keys",
            ),
            Exit::Forbidden => {
                failure.next("use a key of the other class: agent keys request authorizations, organization keys do everything else")
            }
            Exit::NotFound if is_collection(call.path) => failure.next(format_args!(
                "is {} the API's base URL? there is no {}; set --base-url or MANDATE_BASE_URL",
                self.access.base, call.path
            )),
            Exit::NotFound => {
                failure.next("check the id; objects of other organizations and environments are not visible")
            }
            Exit::Conflict if code == "idempotency_conflict" => failure
                .next("this idempotency key belongs to another request: leave it out, or use a new one"),
            Exit::Conflict => failure.next("choose another name"),
            Exit::RateLimited => match reply.retry_after {
                Some(wait) => {
                    failure.next(format_args!("wait {} s, then {}", wait.as_secs(), self.again(call)))
                }
                None => failure.next(format_args!("wait, then {}", self.again(call))),
            },
            Exit::ServerError => failure.next(self.again(call)),
            _ => failure,
        }
    }

    /// An error that is not the service's: a proxy's, or another server's.
    fn foreign(&self, call: &Call<'_>, reply: &Reply) -> Failure {
        let what =
            format!("{} answered HTTP {}, but not in the form of this API", self.access.base, reply.status);
        match exit_of(reply.status) {
            Some(exit @ (Exit::RateLimited | Exit::ServerError)) => {
                Failure::new(exit, what).next(self.again(call))
            }
            _ => Failure::new(Exit::UnknownAnswer, what).next(
                "check that --base-url (or MANDATE_BASE_URL) is the service's address; redirects are not followed",
            ),
        }
    }

    /// What to do when it is unknown whether the request took effect.
    fn again(&self, call: &Call<'_>) -> String {
        if call.is_post() {
            format!(
                "repeat the command with --idempotency-key {:?}: it takes effect once",
                self.idempotency_key
            )
        } else {
            "repeat the command".to_owned()
        }
    }

    /// The failure for a connection that failed.
    pub(super) fn unreachable(&self, call: &Call<'_>, error: &Error) -> Failure {
        let base = &self.access.base;
        let failure = Failure::new(Exit::Unreachable, format!("{base} cannot be reached{}", base.why(error)));
        if let Some(advice) = base.advice(error) {
            return failure.next(format_args!("{advice}; then {}", self.again(call)));
        }
        match error {
            e if e.is_no_tls() => failure.next(NO_TLS),
            e if e.is_refused() => failure.next(format_args!(
                "check that the service runs there, then {}; mandate doctor looks for the cause",
                self.again(call)
            )),
            // The next attempt would fail in the same way.
            e if e.is_untrusted() => failure.next(
                "check the address, and its certificate: mandate doctor says more; to trust a root certificate of your own, set SSL_CERT_FILE to its file",
            ),
            e if e.is_unknown_host() => {
                failure.next("check the name in the address; mandate doctor says more")
            }
            _ => failure.next(format_args!("{}; mandate doctor looks for the cause", self.again(call))),
        }
    }
}

/// Whether `path` names no object, so that the API always has it.
fn is_collection(path: &str) -> bool {
    path.rfind('/') == Some(0)
}

/// Code, message and request id from the body of an error.
fn envelope(body: &str) -> Option<(String, String, String)> {
    let mut error = Object::parse(body.as_bytes()).ok()?.take("error")?.object().ok()?;
    let mut text = |name| error.take(name)?.string().ok().map(std::borrow::Cow::into_owned);
    Some((text("code")?, text("message")?, text("request_id")?))
}

fn exit_of(status: u16) -> Option<Exit> {
    Some(match status {
        400 => Exit::InvalidRequest,
        401 => Exit::Unauthorized,
        403 => Exit::Forbidden,
        404 => Exit::NotFound,
        409 => Exit::Conflict,
        429 => Exit::RateLimited,
        500..=599 => Exit::ServerError,
        _ => return None,
    })
}
