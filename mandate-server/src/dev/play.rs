//! The demonstration: shows each part of the service once, through the API, and then prints commands to paste.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use mandate_core::log::{LogProof, Policy, VerifierKey, token_hash};
use mandate_core::verify::{Expected, verify_verdict};
use mandate_core::{Amount, Currency, EnvironmentKind, Recipient, Timestamp, Verdict};
use serde_json::{Value, json};

use super::client::Client;
use super::state::{Data, Played};
use super::{command, unprintable};
use crate::clock::Clock;
use crate::error::Fault;
use crate::http::KEY_SET_PATH;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const CAUTION: Style = AnsiColor::Yellow.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

const AGENT: &str = "buyer";
/// The idempotency key under which the agent is registered.
const REGISTRATION: &str = "demonstration-agent";
pub(super) const PRINCIPAL: &str = "role:head-of-it";
const RECIPIENT: &str = "vendor:acme";
const CATEGORY: &str = "software";
const CURRENCY: &str = "USD";
const PER_TRANSACTION: u32 = 500;
const PER_MONTH: u32 = 2000;
const REVIEW_ABOVE: u32 = 200;
/// How long the demonstration's mandate is valid, in seconds: a year.
const MANDATE_SECONDS: i64 = 365 * 24 * 60 * 60;
/// An amount within the limits.
const SMALL: u32 = 40;
/// An amount that a person must approve.
const LARGE: u32 = 300;
/// An amount beyond the limits.
const TOO_LARGE: u32 = 900;
/// How often the proof of the first token is asked for: it is there some seconds after the token.
const PROOF_ATTEMPTS: usize = 40;
const PROOF_PAUSE: Duration = Duration::from_millis(250);
/// How much of a token is shown.
const TOKEN_SHOWN_CHARS: usize = 24;

/// The demonstration, and its output.
pub(super) struct Scene<'a, W> {
    pub(super) out: &'a mut W,
    pub(super) client: Client,
    pub(super) data: Data,
    pub(super) clock: &'a dyn Clock,
    /// Where a person answers.
    pub(super) console_link: String,
}

impl<W: Write> Scene<'_, W> {
    /// Plays the demonstration at the first start, and prints how to go on.
    pub(super) async fn play(mut self) -> Result<(), Fault> {
        let agent_key = self.register().await?;
        let played = match self.data.keys.played.clone() {
            Some(played) => {
                self.say(format_args!("{BOLD}Everything is here as the last start left it.{BOLD:#}"))?;
                played
            }
            None => self.perform(&agent_key).await?,
        };
        let governed = self.governed().await?;
        self.print_addresses(&agent_key, governed)?;
        self.print_commands(&agent_key, &played)
    }

    /// Registers the agent, unless an earlier start did.
    async fn register(&mut self) -> Result<String, Fault> {
        if let Some(key) = &self.data.keys.agent_key {
            return Ok(key.clone());
        }
        // If an earlier start ended before it stored the key, this request gets the same answer again.
        let (owner, body) = (&self.data.keys.organization_key, json!({ "name": AGENT }));
        let agent = self.client.post_once(owner, "/agents", &body, REGISTRATION).await?;
        let key = text(&agent, "agent_key")?.to_owned();
        self.data.keys.agent_key = Some(key.clone());
        self.data.keep()?;
        Ok(key)
    }

    async fn perform(&mut self, agent_key: &str) -> Result<Played, Fault> {
        self.say(format_args!("{BOLD}A mandate service of your own, on this machine.{BOLD:#}"))?;
        let mandate = self.write_mandate().await?;
        self.say(format_args!(
            "\nAn organization writes its agent {BOLD}agt_{AGENT}{BOLD:#} a mandate: at most {PER_TRANSACTION} {CURRENCY} a \
             payment and {PER_MONTH} a month,\nfor {CATEGORY} only; above {REVIEW_ABOVE} a person decides. \
             It ends on {}.\n",
            text(&mandate, "expires")?
        ))?;
        let token = self.ask_for_money(agent_key).await?;
        self.revoke_and_ask(agent_key, text(&mandate, "id")?).await?;
        let issuer = self.client.urls.verdicts.clone();
        let played = Played { token, issuer, at: self.clock.now().seconds() };
        self.verify(&played).await?;
        self.prove(&played.token).await?;
        // The commands below need a mandate in force.
        self.write_mandate().await?;
        self.data.keys.played = Some(played.clone());
        self.data.keep()?;
        Ok(played)
    }

    /// An allow, a denial, a review and its approval. Returns the token of the first.
    async fn ask_for_money(&mut self, agent_key: &str) -> Result<String, Fault> {
        let allowed = self.ask(agent_key, SMALL, Verdict::Allow).await?;
        self.row(SMALL, Verdict::Allow, "signed, and valid for five minutes")?;
        let denied = self.ask(agent_key, TOO_LARGE, Verdict::DenyLimit).await?;
        self.row(TOO_LARGE, Verdict::DenyLimit, text(&denied, "reason")?)?;
        let waiting = self.ask(agent_key, LARGE, Verdict::Review).await?;
        let review = waiting.get("review").unwrap_or(&Value::Null);
        self.row(LARGE, Verdict::Review, format_args!("waits for {}", text(review, "waits_for")?))?;
        let approve = format!("/reviews/{}/approve", text(review, "id")?);
        expect(&self.organization(&approve, &json!({})).await?, Verdict::Allow)?;
        self.row(LARGE, Verdict::Allow, "the person approves: a fresh decision, signed anew")?;
        Ok(text(&allowed, "verdict_token")?.to_owned())
    }

    async fn revoke_and_ask(&mut self, agent_key: &str, mandate: &str) -> Result<(), Fault> {
        self.organization(&format!("/mandates/{mandate}/revoke"), &json!({})).await?;
        self.say(format_args!("  {DIM}the organization revokes the mandate{DIM:#}"))?;
        let denied = self.ask(agent_key, SMALL, Verdict::DenyRevoked).await?;
        self.row(SMALL, Verdict::DenyRevoked, text(&denied, "reason")?)
    }

    /// What a counterparty does, without key or account.
    async fn verify(&mut self, played: &Played) -> Result<(), Fault> {
        let keys = self.client.key_set().await?;
        let expected = Expected {
            amount: Some(Amount::parse(&SMALL.to_string())?),
            currency: Some(Currency::parse(CURRENCY)?),
            recipient: Some(Recipient::parse(RECIPIENT)?),
            environment: Some(EnvironmentKind::Sandbox),
            ..Expected::new(&played.issuer, self.clock.now())
        };
        let verdict = verify_verdict(&played.token, &keys, &expected)
            .map_err(|e| Fault::new(format!("the first token does not verify: {e}")))?;
        let token: String = played.token.chars().take(TOKEN_SHOWN_CHARS).collect();
        self.say(format_args!(
            "\nA counterparty verifies the first token offline, with the public keys alone:\n\n  {token}…  \
             {GOOD}valid{GOOD:#}  {SMALL} {CURRENCY} for {RECIPIENT}; {} checks passed, signed by {}",
            verdict.checks().len(),
            verdict.kid(),
        ))
    }

    /// What the same counterparty does, to know that the service cannot take the verdict back.
    async fn prove(&mut self, token: &str) -> Result<(), Fault> {
        let wrong =
            |what: &str, e: &dyn fmt::Display| Fault::new(format!("the {what} of the public log: {e}"));
        let hash = token_hash(token).ok_or_else(|| wrong("proof", &"the token is none"))?;
        let hash = hash.as_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let mut proof = None;
        for _ in 0..PROOF_ATTEMPTS {
            proof = self.client.log(&format!("proof/{hash}")).await?;
            if proof.is_some() {
                break;
            }
            tokio::time::sleep(PROOF_PAUSE).await;
        }
        let Some(proof) = proof else {
            return self
                .say(format_args!("\nThe public log does not have it yet; `mandate log proof` asks again."));
        };
        let key = self.client.log("key").await?.ok_or_else(|| wrong("key", &"it is absent"))?;
        let key = VerifierKey::parse(key.trim_end()).map_err(|e| wrong("key", &e))?;
        let proof = LogProof::parse(proof.as_bytes()).map_err(|e| wrong("proof", &e))?;
        let proved = proof.verify_decision(token, Some(&key), &Policy::none());
        let size = proved.map_err(|e| wrong("proof", &e))?.checkpoint.size();
        self.say(format_args!(
            "\nIt is in the public log, where a change would be seen:\n\n  {DIM}{}{DIM:#}  {GOOD}proved{GOOD:#}  entry {} of \
             {size}",
            key.name(),
            proof.index
        ))
    }

    /// Whether the newest mandate, the one that governs, is in force.
    async fn governed(&self) -> Result<bool, Fault> {
        let newest = self.client.get(&self.data.keys.organization_key, "/mandates?limit=1").await?;
        Ok(newest.pointer("/data/0/status").and_then(Value::as_str) == Some("active"))
    }

    fn print_addresses(&mut self, agent_key: &str, governed: bool) -> Result<(), Fault> {
        let urls = self.client.urls.clone();
        let keys = &self.data.keys;
        let lines = [
            ("API", urls.base),
            ("public keys", format!("{}{KEY_SET_PATH}", urls.verdicts)),
            ("console", self.console_link.clone()),
            ("ops", format!("{}/readyz", urls.ops)),
            ("database", self.data.database()),
            ("organization key", keys.organization_key.clone()),
            ("  in production", keys.live_organization_key.clone()),
            ("agent key", agent_key.to_owned()),
        ];
        let mandate = if governed {
            "a mandate is in force"
        } else {
            "no mandate is in force: the lines below will be denied until one is written (--fresh starts over)"
        };
        self.say(format_args!("\n{BOLD}The service is running{BOLD:#}, and {mandate}.\n"))?;
        lines
            .into_iter()
            .try_for_each(|(label, value)| self.say(format_args!("  {DIM}{label:<18}{DIM:#}{value}")))
    }

    fn print_commands(&mut self, agent_key: &str, played: &Played) -> Result<(), Fault> {
        let (mandate, urls) = (command(), self.client.urls.clone());
        let Played { token, issuer, at } = played;
        let at = Timestamp::from_seconds(*at);
        let body = authorization(SMALL);
        // An earlier start may have signed under another address. The keys are the same, and are at this address.
        let jwks = if *issuer == urls.verdicts {
            String::new()
        } else {
            format!(" --jwks {}{KEY_SET_PATH}", urls.verdicts)
        };
        self.say(format_args!(
            "\n{BOLD}Paste these into another terminal:{BOLD:#}\n\n\
             curl -s {base}/authorizations -H 'Authorization: Bearer {agent_key}' -H 'Content-Type: application/json' -d '{body}'\n\n\
             MANDATE_BASE_URL={base} MANDATE_AGENT_KEY={agent_key} {mandate} authorize {SMALL} {CURRENCY} --to {RECIPIENT} --category {CATEGORY}\n\n\
             {mandate} verify {token} --issuer {issuer}{jwks} --amount {SMALL} --currency {CURRENCY} --recipient {RECIPIENT} --nonce-elsewhere --allow-sandbox --at {at}\n\n\
             {DIM}Ctrl-C stops the service. The next start finds everything as it is; --fresh starts over.{DIM:#}",
            base = urls.base,
        ))
    }

    async fn write_mandate(&self) -> Result<Value, Fault> {
        let expires = self.clock.now().plus_seconds(MANDATE_SECONDS).day();
        let mandate = json!({
            "principal": PRINCIPAL,
            "agent": format!("agt_{AGENT}"),
            "limits": { "per_transaction": PER_TRANSACTION, "per_month": PER_MONTH, "currency": CURRENCY },
            "categories": [CATEGORY],
            "review_above": REVIEW_ABOVE,
            "expires": expires.to_string(),
        });
        self.organization("/mandates", &mandate).await
    }

    async fn ask(&self, agent_key: &str, amount: u32, verdict: Verdict) -> Result<Value, Fault> {
        let answer = self.client.post(agent_key, "/authorizations", &authorization(amount)).await?;
        expect(&answer, verdict)?;
        Ok(answer)
    }

    async fn organization(&self, path: &str, body: &Value) -> Result<Value, Fault> {
        self.client.post(&self.data.keys.organization_key, path, body).await
    }

    /// Prints a request and its verdict.
    fn row(&mut self, amount: u32, verdict: Verdict, remark: impl fmt::Display) -> Result<(), Fault> {
        let style = match verdict {
            Verdict::Allow => GOOD,
            Verdict::Review => CAUTION,
            _ => BAD,
        };
        let verdict = verdict.as_str();
        self.say(format_args!(
            "  {amount:>4} {CURRENCY} for {RECIPIENT}   {style}{verdict:<14}{style:#}{remark}"
        ))
    }

    fn say(&mut self, line: fmt::Arguments<'_>) -> Result<(), Fault> {
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(unprintable)
    }
}

fn authorization(amount: u32) -> Value {
    json!({ "amount": amount, "currency": CURRENCY, "recipient": RECIPIENT, "category": CATEGORY })
}

fn expect(answer: &Value, verdict: Verdict) -> Result<(), Fault> {
    match text(answer, "verdict")? {
        given if given == verdict.as_str() => Ok(()),
        given => Err(Fault::new(format!(
            "the demonstration came to {given} where {verdict} was due; did another program, or an earlier start, use its agent \
             in the last minute? Start again in a minute, or over with --fresh"
        ))),
    }
}

fn text<'a>(answer: &'a Value, name: &str) -> Result<&'a str, Fault> {
    let text = answer.get(name).and_then(Value::as_str);
    text.ok_or_else(|| Fault::new(format!("the service's answer has no {name}")))
}
