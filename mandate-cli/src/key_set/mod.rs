//! Where the issuer's public keys come from: its published address, another one, a file, or the pinned keys.

mod cache;
pub(crate) mod pins;

pub(crate) use self::cache::max_age_seconds;

use std::sync::{Arc, Mutex, PoisonError};

use mandate_core::Timestamp;
use mandate_core::jwks::{KeySet, MAX_KEY_SET_BYTES};
use mandate_core::jwt::Unverified;

use crate::environment::{self, variable};
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::http::{self, Address, REQUEST_TIMEOUT};
use crate::input::Source;
use crate::profile;

/// The path at which an issuer publishes its keys.
pub(crate) const WELL_KNOWN: &str = "/.well-known/jwks.json";
/// What an address has, and a file's name does not.
const SCHEME: &str = "://";
/// The shortest time between two fetches, whatever tokens name and whatever the issuer answers, in seconds.
const MIN_REFETCH_SECONDS: i64 = 30;
/// The longest file of keys, in bytes. It may be an issuer's archive, of all keys that it ever had.
pub(crate) const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// An issuer, and where its keys are read.
#[derive(Debug)]
pub(crate) struct Issuer {
    /// The expected `iss`.
    pub(crate) name: String,
    place: Place,
    known: Mutex<Known>,
}

/// The state of an issuer's keys.
#[derive(Debug, Default)]
struct Known {
    loaded: Option<LoadedKeys>,
    /// When and why the last fetch failed.
    failed: Option<(Timestamp, Failure)>,
}

#[derive(Debug)]
enum Place {
    Url(Address),
    /// A file, or `-` for standard input, which is read once.
    File(Source),
    Pinned,
}

/// Keys as they were read.
#[derive(Debug, Clone)]
struct LoadedKeys {
    keys: Arc<KeySet>,
    /// When they were fetched, and for how many seconds they are fresh. None for keys that do not age.
    fetched: Option<(Timestamp, i64)>,
}

/// An issuer's answer.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The key set's text.
    pub(crate) document: Vec<u8>,
    /// For how many seconds it may be cached, by its `max-age`; 0 if there is none.
    pub(crate) max_age_seconds: i64,
}

impl Issuer {
    /// The issuer from options, environment and profile. An option or a named profile overrides the environment, which
    /// overrides the current profile, and an issuer's own key set overrides a variable's.
    pub(crate) fn find(issuer: Option<&str>, jwks: Option<&str>, global: &Global) -> Result<Self, Failure> {
        let issuer = nearest(issuer, global)?;
        let keys = match (jwks, &issuer) {
            (Some(text), _) => Some(Place::read(text)?),
            (None, Some(_)) => None,
            (None, None) => variable("MANDATE_JWKS")?.map(|text| Place::read(&text)).transpose()?,
        };
        match (named(issuer)?, keys) {
            (Some(name), Some(keys)) => Ok(Self::of(name, keys)),
            (Some(name), None) => {
                let keys = Place::Url(address(&name)?.join(WELL_KNOWN));
                Ok(Self::of(name, keys))
            }
            (None, Some(keys)) => {
                match keys.publisher().map_or_else(|| of_profile(global), |name| Ok(Some(name)))? {
                    Some(name) => Ok(Self::of(name, keys)),
                    None => Err(unknown(
                        "the issuer that the token must name is not known",
                        "pass --issuer URL, or set MANDATE_ISSUER",
                        global,
                    )),
                }
            }
            (None, None) => match of_profile(global)? {
                Some(name) => {
                    let keys = Place::Url(address(&name)?.join(WELL_KNOWN));
                    Ok(Self::of(name, keys))
                }
                None => Err(unknown(
                    "neither the issuer nor its key set is known",
                    "pass --issuer URL (its keys are then fetched), or --issuer URL and --jwks FILE to stay offline",
                    global,
                )),
            },
        }
    }

    /// The issuer with its pinned keys.
    pub(crate) fn pinned(issuer: Option<&str>, global: &Global) -> Result<Self, Failure> {
        in_use(issuer, global)?.map(|name| Self::of(name, Place::Pinned)).ok_or_else(|| {
            Failure::new(Exit::Usage, "the issuer whose keys are pinned is not known")
                .next("pass --issuer URL, or set MANDATE_ISSUER; `mandate jwks list` shows what is pinned")
        })
    }

    fn of(name: String, place: Place) -> Self {
        Self { name, place, known: Mutex::default() }
    }

    /// The keys. They are read once, and again when they have aged.
    pub(crate) fn keys(&self) -> Result<Arc<KeySet>, Failure> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = environment::now();
        match &known.loaded {
            Some(loaded) if loaded.is_good_at(now) => Ok(Arc::clone(&loaded.keys)),
            _ => {
                let loaded = self.load(&mut known, now)?;
                Ok(Arc::clone(&known.loaded.insert(loaded).keys))
            }
        }
    }

    /// The keys for `token`. If they lack the one it names, they are fetched again, unless that was done or
    /// failed a moment ago: tokens with invented keys cannot cause many requests.
    pub(crate) fn keys_for(&self, token: &str) -> Result<Arc<KeySet>, Failure> {
        let keys = self.keys()?;
        let Ok(unverified) = Unverified::parse(token) else { return Ok(keys) };
        if keys.find(unverified.kid()).is_some() {
            return Ok(keys);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Place::Url(address) = &self.place else { return Ok(keys) };
        let now = environment::now();
        match &known.loaded {
            Some(loaded) if !loaded.may_be_fetched_again(now) => Ok(Arc::clone(&loaded.keys)),
            _ => {
                let loaded = known.fetched(address, now)?;
                Ok(Arc::clone(&known.loaded.insert(loaded).keys))
            }
        }
    }

    fn load(&self, known: &mut Known, now: Timestamp) -> Result<LoadedKeys, Failure> {
        match &self.place {
            Place::File(source) => {
                let keys = parse(&read_file(source)?, &source.to_string())?;
                Ok(LoadedKeys { keys: Arc::new(keys), fetched: None })
            }
            Place::Pinned => {
                let pin = pins::find(&self.name)?.ok_or_else(|| {
                    Failure::new(Exit::KeySet, format!("no keys are pinned for `{}`", self.name))
                        .next(format!("pin them: mandate jwks pin {}", self.name))
                })?;
                Ok(LoadedKeys { keys: Arc::new(pin.keys), fetched: None })
            }
            Place::Url(address) => match cache::find(address.as_str(), now)? {
                Some(kept) => {
                    let keys = parse(&kept.document, address.as_str())?;
                    Ok(LoadedKeys {
                        keys: Arc::new(keys),
                        fetched: Some((kept.fetched_at, kept.max_age_seconds)),
                    })
                }
                None => known.fetched(address, now),
            },
        }
    }
}

impl Known {
    /// The keys as published now; or the last failure, if that was a moment ago.
    fn fetched(&mut self, address: &Address, now: Timestamp) -> Result<LoadedKeys, Failure> {
        if let Some((at, failure)) = &self.failed
            && is_a_moment_ago(*at, now)
        {
            return Err(failure.clone());
        }
        let fetched = fetch_and_keep(address, now);
        // A failed fetch may take long: the moment begins at its end.
        self.failed = fetched.as_ref().err().map(|failure| (environment::now(), failure.clone()));
        fetched
    }
}

impl LoadedKeys {
    fn is_good_at(&self, now: Timestamp) -> bool {
        self.fetched.is_none_or(|(at, max_age_seconds)| {
            (0..max_age_seconds.max(MIN_REFETCH_SECONDS).saturating_mul(1000)).contains(&now.millis_since(at))
        })
    }

    fn may_be_fetched_again(&self, now: Timestamp) -> bool {
        self.fetched.is_some_and(|(at, _)| !is_a_moment_ago(at, now))
    }
}

/// Whether a fetch at `at` is too recent for another.
fn is_a_moment_ago(at: Timestamp, now: Timestamp) -> bool {
    (0..MIN_REFETCH_SECONDS.saturating_mul(1000)).contains(&now.millis_since(at))
}

impl Place {
    fn read(text: &str) -> Result<Self, Failure> {
        if text.contains(SCHEME) { address(text).map(Self::Url) } else { Ok(Self::File(Source::from(text))) }
    }

    /// The issuer that publishes its keys here, if this is such an address.
    fn publisher(&self) -> Option<String> {
        match self {
            Self::Url(address) => address.as_str().strip_suffix(WELL_KNOWN).map(str::to_owned),
            Self::File(_) | Self::Pinned => None,
        }
    }
}

/// The name of the issuer from options, environment and profile, if it is known.
pub(crate) fn in_use(issuer: Option<&str>, global: &Global) -> Result<Option<String>, Failure> {
    match named(nearest(issuer, global)?)? {
        Some(name) => Ok(Some(name)),
        None => of_profile(global),
    }
}

/// The failure for an issuer that nothing names, not the profile either.
fn unknown(what: &str, advice: &str, global: &Global) -> Failure {
    let failure = Failure::new(Exit::Usage, what);
    match profile::without_issuer(global.profile.as_deref()) {
        Some(name) => failure
            .note(
                "profile",
                format_args!("{name} knows no issuer; mandate login {name} asks its service again"),
            )
            .next(advice),
        None => failure.next(advice),
    }
}

/// The issuer that the command line names: itself, or by its profile.
fn nearest(issuer: Option<&str>, global: &Global) -> Result<Option<String>, Failure> {
    match issuer {
        Some(name) => well_formed(name).map(Some),
        None if global.profile.is_some() => of_profile(global),
        None => Ok(None),
    }
}

/// An issuer as tokens name it: its address, which never ends with a slash, since clients compare it character for character.
pub(crate) fn well_formed(issuer: &str) -> Result<String, Failure> {
    if !issuer.ends_with('/') {
        return Ok(issuer.to_owned());
    }
    let what = format!("`{issuer}` cannot be what a token names as its issuer: it ends with a slash");
    Err(Failure::new(Exit::Usage, what).next(format_args!("write {}", issuer.trim_end_matches('/'))))
}

fn of_profile(global: &Global) -> Result<Option<String>, Failure> {
    profile::issuer(global.profile.as_deref())
}

fn named(issuer: Option<String>) -> Result<Option<String>, Failure> {
    match issuer {
        Some(name) => Ok(Some(name)),
        None => variable("MANDATE_ISSUER")?.map(|text| well_formed(&text)).transpose(),
    }
}

/// The text of a key set in a file or at an address that a person names.
pub(crate) fn document(place: &str) -> Result<Vec<u8>, Failure> {
    match Place::read(place)? {
        Place::Url(address) => Ok(fetch(&address)?.document),
        Place::File(source) => read_file(&source),
        Place::Pinned => Ok(Vec::new()),
    }
}

/// Where `issuer` publishes its keys.
pub(crate) fn published_at(issuer: &str) -> Result<Address, Failure> {
    Ok(address(issuer)?.join(WELL_KNOWN))
}

/// Parses the key set `document`, which was read from `place`. What is published is bounded; a file may be an archive.
pub(crate) fn parse(document: &[u8], place: &str) -> Result<KeySet, Failure> {
    let keys = if place.contains(SCHEME) { KeySet::parse(document) } else { KeySet::parse_archive(document) };
    keys.map_err(|e| {
        Failure::new(Exit::KeySet, format!("the key set is refused: {e}")).note("read from", place)
    })
}

fn read_file(source: &Source) -> Result<Vec<u8>, Failure> {
    let text = source.read("the key set", MAX_FILE_BYTES, Exit::KeySet);
    Ok(text.map_err(|failure| failure.of_kind(Exit::KeySet))?.as_bytes().to_vec())
}

fn address(text: &str) -> Result<Address, Failure> {
    text.parse().map_err(|why| {
        Failure::new(Exit::Usage, format!("keys are not read from `{text}`: {why}"))
            .next("pass an https address, or the key set's file with --jwks FILE")
    })
}

fn fetch_and_keep(address: &Address, now: Timestamp) -> Result<LoadedKeys, Failure> {
    let fetched = fetch(address)?;
    let keys = parse(&fetched.document, address.as_str())?;
    cache::keep(address.as_str(), now, &fetched)?;
    Ok(LoadedKeys { keys: Arc::new(keys), fetched: Some((now, fetched.max_age_seconds)) })
}

/// Fetches what is published at `address`.
pub(crate) fn fetch(address: &Address) -> Result<Fetched, Failure> {
    let unreachable = |e: http::Error| {
        Failure::new(Exit::KeySet, format!("the key set cannot be fetched from {address}{}", address.why(&e)))
            .next(address.advice(&e).unwrap_or_else(|| {
                let again = "try again, or pass a key set that you have with --jwks FILE";
                if e.is_no_tls() { http::NO_TLS } else { again }.to_owned()
            }))
    };
    let request = address.transport()?.get(address.as_str());
    let response = request.and_then(|request| http::send(request, REQUEST_TIMEOUT)).map_err(unreachable)?;
    let status = response.status();
    if response.is_success() {
        let max_age_seconds = response.header("cache-control").map_or(0, cache::max_age_seconds);
        let limit = u64::try_from(MAX_KEY_SET_BYTES).unwrap_or(u64::MAX);
        let document = response.bytes(limit).map_err(unreachable)?;
        return Ok(Fetched { document, max_age_seconds });
    }
    let failure =
        Failure::new(Exit::KeySet, format!("the key set cannot be fetched from {address}: HTTP {status}"));
    match response.header("location") {
        Some(location) => {
            let advice = "redirects are not followed; if you trust that address, pass it with --jwks";
            Err(failure.note("points to", location).next(advice))
        }
        None => Err(failure.next("check the address, or pass a key set that you have with --jwks FILE")),
    }
}
