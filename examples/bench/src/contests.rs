//! The core beside other libraries: signing beside `jsonwebtoken`, deciding beside `cedar-policy`.
//!
//! Both sides of a contest do the same in one thread of this process, alternately. First each must give the known
//! right result.

use std::fmt::Write as _;
use std::hint::black_box;

use mandate_core::es256::{Signer, signer};
use mandate_core::jwt::Unverified;
use mandate_server::clock::{Clock as _, SystemClock};

use crate::figures::median;
use crate::output::{Measured, Series};
use crate::pace::Pace;
use crate::rule::{self, Cedar, Core, MEASURED};
use crate::verdicts::{Keys, claims, forged, sign};
use crate::{Args, Failure};

const OURS: &str = "mandate-core";
const JSONWEBTOKEN: &str = "`jsonwebtoken` 11 on aws-lc-rs";
const CEDAR: &str = "`cedar-policy` 4";

/// What both sides do: a name, and from where to where.
type Contest = (&'static str, &'static str);

const SIGN: Contest = ("sign", "claims in, token out");
const EVALUATE: Contest = ("evaluate", "mandate, usage and request in, verdict out");
const READ: Contest = ("read and evaluate", "from the request's JSON on");

/// One side of a contest: which, whose, and how it is run for so many seconds.
type Side<'a> = (Contest, &'static str, &'a dyn Fn(u64) -> Result<Pace, Failure>);

/// What one side of a contest did.
#[derive(Debug)]
struct Row {
    contest: Contest,
    contender: &'static str,
    rounds: Vec<Pace>,
}

/// Measures all contests, one after another.
pub(crate) fn measure(args: &Args) -> Result<Measured, Failure> {
    let (core, cedar) = (Core::new()?, Cedar::new()?);
    rule::check(&core, &cedar)?;
    let body = rule::body(MEASURED);
    let (ours, theirs) = (Core::request(&body)?, cedar.request(MEASURED)?);

    let keys = Keys::new()?;
    let signer = signer(&keys.secret, keys.kid.clone())?;
    check_signing(&keys, &*signer)?;
    let claims = claims(SystemClock.now(), 1)?;

    let sides: [Side<'_>; 6] = [
        (SIGN, OURS, &|s| Pace::keep(s, || sign(&*signer, black_box(&claims)))),
        (SIGN, JSONWEBTOKEN, &|s| Pace::keep(s, || keys.sign_with_jsonwebtoken(black_box(&claims)))),
        (EVALUATE, OURS, &|s| Pace::keep(s, || Ok(black_box(&core).decide(black_box(&ours))))),
        (EVALUATE, CEDAR, &|s| Pace::keep(s, || Ok(black_box(&cedar).decide(black_box(&theirs))))),
        (READ, OURS, &|s| Pace::keep(s, || Ok(black_box(&core).decide(&Core::request(black_box(&body))?)))),
        (READ, CEDAR, &|s| {
            Pace::keep(s, || Ok(black_box(&cedar).decide(&cedar.request(black_box(MEASURED))?)))
        }),
    ];
    let mut rows: Vec<_> =
        sides.iter().map(|&(contest, contender, _)| Row { contest, contender, rounds: Vec::new() }).collect();
    for round in 1..=args.rounds() {
        for ((contest, contender, run), row) in sides.iter().zip(&mut rows) {
            let pace = run(args.seconds())?;
            eprintln!("round {round}: {}: {contender}: {}", contest.0, time(pace.cpu_microseconds));
            row.rounds.push(pace);
        }
    }
    let series = rows.iter().map(|row| Series::of(row.contest.0, row.contender, &row.rounds));
    Ok(Measured { text: render(args, &rows)?, series: series.collect::<Result<_, _>>()? })
}

/// What either library signs must be the same claims, which both verify; and both must refuse a signature that is another's.
fn check_signing(keys: &Keys, signer: &dyn Signer) -> Result<(), Failure> {
    let now = SystemClock.now();
    let expected = keys.expected(now);
    let (one, other) = (claims(now, 1)?, claims(now, 2)?);
    let ours = [sign(signer, &one)?, sign(signer, &other)?];
    let theirs = [keys.sign_with_jsonwebtoken(&one)?, keys.sign_with_jsonwebtoken(&other)?];
    for tokens in [ours, theirs] {
        for (token, claims) in tokens.iter().zip([&one, &other]) {
            keys.verify(token, &expected)?;
            keys.verify_with_jsonwebtoken(token)?;
            if Unverified::parse(token)?.unverified_claims() != claims.to_json().as_bytes() {
                return Err(format!("{token} has not the claims that were signed").into());
            }
        }
        let [one, other] = &tokens;
        let forged = forged(one, other)?;
        if keys.verify(&forged, &expected).is_ok() || keys.verify_with_jsonwebtoken(&forged).is_ok() {
            return Err("a forged token passes".into());
        }
    }
    Ok(())
}

/// A time, in the unit that fits.
fn time(microseconds: f64) -> String {
    if microseconds < 1.0 {
        format!("{:.0} ns", microseconds * 1e3)
    } else {
        format!("{microseconds:.1} µs")
    }
}

/// The table.
fn render(args: &Args, rows: &[Row]) -> Result<String, Failure> {
    let mut text = String::new();
    writeln!(
        text,
        "Medians of {} rounds of {} seconds, ratios round by round; one thread.\n",
        args.rounds(),
        args.seconds()
    )?;
    writeln!(text, "| Contest | | Processor time each | of mandate-core's |\n|---|---|---|---|")?;
    for row in rows {
        let (name, what) = row.contest;
        let ours = rows.iter().find(|other| other.contest == row.contest && other.contender == OURS);
        let ours = ours.map(|ours| ours.rounds.as_slice()).unwrap_or_default();
        let ratios =
            row.rounds.iter().zip(ours).map(|(one, ours)| one.cpu_microseconds / ours.cpu_microseconds);
        let ratio = median(ratios);
        writeln!(
            text,
            "| {name}: {what} | {} | {} | {} |",
            row.contender,
            time(median(row.rounds.iter().map(|pace| pace.cpu_microseconds))),
            if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") },
        )?;
    }
    Ok(text)
}
