//! Finds the service's address and the API key, in options, the environment or a profile. A key is never a
//! command-line argument.

use std::path::Path;

use mandate_core::EnvironmentKind;
use mandate_core::api_key::{ApiKey, KeyClass};

use crate::environment::{self, variable};
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::http::Address;
use crate::input::{Source, without_line_break};
use crate::output::warn;
use crate::profile::{PROFILE, Profiles};
use crate::service::Service;
use crate::style::printable;

/// What follows the host in a base URL.
pub(crate) const VERSION_PATH: &str = "/v1";
/// The option that names a file with a key.
const KEY_FILE: &str = "--key-file";
/// What comes before a key in an HTTP header.
const SCHEME: &str = "Bearer ";
/// The longest key file, in bytes: more than any key with its line break.
const MAX_KEY_FILE_BYTES: usize = 256;

/// The class of key that a command needs, or any.
pub(crate) type Class = Option<KeyClass>;

/// An address, and a key for it.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// The service's address, which ends in `/v1`.
    pub(crate) base: Address,
    /// The key.
    pub(crate) key: ApiKey,
    /// The profile that the key is from, if any.
    pub(crate) profile: Option<String>,
    /// The profile that it hides, if that would show something else.
    pub(crate) hidden: Option<Hidden>,
}

/// A profile that would be used without a variable or an option.
#[derive(Debug, Clone)]
pub(crate) struct Hidden {
    /// Where the key is from that is used.
    pub(crate) place: String,
    /// The name of the profile.
    pub(crate) profile: String,
    /// Its class.
    pub(crate) class: KeyClass,
}

impl Access {
    /// The access from `service`, the environment and the profiles, with a key of class `class`. An option
    /// overrides the environment, which overrides the current profile. A named profile overrides the
    /// environment.
    pub(crate) fn find(service: &Service, global: &Global, class: Class) -> Result<Self, Failure> {
        let base = known_address(service, global)?.ok_or_else(|| {
            Failure::new(Exit::Usage, "the service's base URL is not known")
                .next("mandate login; or set MANDATE_BASE_URL, or pass --base-url https://api.example.com/v1")
        })?;
        Self::at(base, service, global, class)?.ok_or_else(|| missing(class))
    }

    /// The same for the service at `base`. None if there is no key.
    pub(crate) fn at(
        base: Address,
        service: &Service,
        global: &Global,
        class: Class,
    ) -> Result<Option<Self>, Failure> {
        let profile = Chosen::new(global.profile.as_deref());
        if let Some(source) = &service.key_file {
            let key = read(source, class)?;
            let hidden = profile.hidden_by(&base, KEY_FILE, &key, class);
            return Ok(Some(Self { base, key, profile: None, hidden }));
        }
        if !profile.is_named()
            && let Some((variable, key)) = from_environment(class)?
        {
            let hidden = profile.hidden_by(&base, variable, &key, class);
            return Ok(Some(Self { base, key, profile: None, hidden }));
        }
        let Some((name, address, key)) = profile.load()? else { return Ok(None) };
        if address != base {
            return Err(missing(class).note(
                "profile",
                format_args!("the key of `{name}` is for {address}, and is not sent to any other address"),
            ));
        }
        must_be_of(class, &key, &format!("the profile `{name}`")).map_err(|failure| {
            let variable = class.map_or("", |class| variables(class).0);
            failure.next(format_args!(
                "set {variable} to such a key, or choose another profile with --profile NAME; mandate profile list shows all"
            ))
        })?;
        Ok(Some(Self { base, key, hidden: profile.hidden_by_name(&name), profile: Some(name) }))
    }

    /// The access of an agent's tools: an agent's key from `service` or the environment, and no profile. An organization
    /// key in the environment is refused, since whatever runs beside the tools could use it.
    pub(crate) fn of_tools(service: &Service) -> Result<Self, Failure> {
        refuse_organization_keys()?;
        let base = match (&service.base_url, variable("MANDATE_BASE_URL")?) {
            (Some(text), _) => address(text, "--base-url")?,
            (None, Some(text)) => address(&text, "MANDATE_BASE_URL")?,
            (None, None) => {
                return Err(Failure::new(Exit::Usage, "the service's base URL is not known")
                    .next("set MANDATE_BASE_URL, or pass --base-url https://api.example.com/v1; profiles are not read here"));
            }
        };
        let class = Some(KeyClass::Agent);
        let key = match &service.key_file {
            Some(Source::Stdin) => {
                return Err(Failure::new(Exit::Usage, "--key-file - is refused: standard input carries the protocol")
                    .next("name a file, or set MANDATE_AGENT_KEY_FILE"));
            }
            Some(source) => read(source, class)?,
            None => from_environment(class)?.map(|(_, key)| key).ok_or_else(|| {
                Failure::new(Exit::Unauthorized, "an agent's key is needed, and there is none")
                    .next("set MANDATE_AGENT_KEY or MANDATE_AGENT_KEY_FILE, or pass --key-file FILE; profiles are not read here")
            })?,
        };
        Ok(Self { base, key, profile: None, hidden: None })
    }

    /// Whether the key is for production.
    pub(crate) fn is_live(&self) -> bool {
        self.key.kind() == EnvironmentKind::Production
    }
}

/// The profile that applies, read when it is needed.
struct Chosen<'a> {
    asked: Option<&'a str>,
}

impl<'a> Chosen<'a> {
    fn new(asked: Option<&'a str>) -> Self {
        Self { asked }
    }

    /// Whether the command line names it.
    fn is_named(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether `key`, from `place`, hides this profile: one for the same address, and of another environment, or of the
    /// other class where either will do. A profile that cannot be read is not used, and not hidden.
    fn hidden_by(&self, base: &Address, place: &str, key: &ApiKey, needed: Class) -> Option<Hidden> {
        let (profile, address, own) = self.load().ok().flatten()?;
        let class = own.class();
        let is_other = if class == key.class() { own.kind() != key.kind() } else { needed.is_none() };
        (address == *base && is_other).then_some(Hidden { place: place.to_owned(), profile, class })
    }

    /// Whether the profile `name`, which `MANDATE_PROFILE` may have named, hides the current one.
    fn hidden_by_name(&self, name: &str) -> Option<Hidden> {
        if self.is_named() {
            return None;
        }
        let profiles = Profiles::load().ok()?;
        let profile = profiles.current.clone().filter(|current| current != name)?;
        let class = profiles.named(&profile).and_then(|current| current.key(&profile)).ok()?.class();
        Some(Hidden { place: format!("{PROFILE}={name}"), profile, class })
    }

    /// Name, address and key.
    fn load(&self) -> Result<Option<(String, Address, ApiKey)>, Failure> {
        let profiles = Profiles::load()?;
        let Some(name) = profiles.chosen(self.asked)? else { return Ok(None) };
        let profile = profiles.named(&name)?;
        let address = address(&profile.base_url, &format!("the address of the profile `{name}`"))?;
        let key = profile.key(&name)?;
        Ok(Some((name, address, key)))
    }
}

/// Reads the address of a service.
pub(crate) fn address(text: &str, name: &str) -> Result<Address, Failure> {
    let refused = |why: &str| Failure::new(Exit::Usage, format!("{name} `{text}` is refused: {why}"));
    let address: Address = text.parse().map_err(|why: String| refused(&why))?;
    if address.as_str().ends_with(VERSION_PATH) { Ok(address) } else { Err(refused("it must end in /v1")) }
}

/// The service's address from an option, the environment or a profile, if there is one.
pub(crate) fn known_address(service: &Service, global: &Global) -> Result<Option<Address>, Failure> {
    let profile = Chosen::new(global.profile.as_deref());
    if let Some(text) = &service.base_url {
        return address(text, "--base-url").map(Some);
    }
    if !profile.is_named()
        && let Some(text) = variable("MANDATE_BASE_URL")?
    {
        return address(&text, "MANDATE_BASE_URL").map(Some);
    }
    Ok(profile.load()?.map(|(_, address, _)| address))
}

/// The two variables for a key of `class`: the key itself, and the path of a file with it.
fn variables(class: KeyClass) -> (&'static str, &'static str) {
    match class {
        KeyClass::Organization => ("MANDATE_ORGANIZATION_KEY", "MANDATE_ORGANIZATION_KEY_FILE"),
        KeyClass::Agent => ("MANDATE_AGENT_KEY", "MANDATE_AGENT_KEY_FILE"),
    }
}

/// The key in the environment, and its variable. If any class will do, the organization's is used first.
fn from_environment(class: Class) -> Result<Option<(&'static str, ApiKey)>, Failure> {
    for sought in KeyClass::ALL.into_iter().filter(|sought| class.is_none_or(|class| class == *sought)) {
        let (direct, file) = variables(sought);
        match (variable(direct)?, variable(file)?) {
            (Some(_), Some(_)) => {
                return Err(Failure::new(Exit::Usage, format!("{direct} and {file} are both set"))
                    .next("unset one of them"));
            }
            (Some(text), None) => {
                let key = parse(without_line_break(&text), direct, Some(sought))?;
                return Ok(Some((direct, key)));
            }
            (None, Some(path)) => {
                let key = read(&Source::File(Path::new(path.as_str()).to_owned()), Some(sought))?;
                return Ok(Some((file, key)));
            }
            (None, None) => {}
        }
    }
    Ok(None)
}

/// Refuses variables for an organization's key, and any other variable that holds one.
fn refuse_organization_keys() -> Result<(), Failure> {
    let (direct, file) = variables(KeyClass::Organization);
    // Also within a header or JSON.
    let is_one = |text: &str| {
        let mut words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        words.any(|word| ApiKey::parse(word).is_ok_and(|key| key.class() == KeyClass::Organization))
    };
    let found = environment::variables().find(|(name, value)| {
        !value.is_empty() && ([direct, file].contains(&name.as_str()) || is_one(value))
    });
    match found {
        Some((name, _)) => Err(Failure::new(
            Exit::Forbidden,
            format!("{name} holds or names an organization's key, which an agent's tools must not have in their environment"),
        )
        .note("sent", "nothing")
        .next(format_args!("start the command without {name}; it needs an agent's key only"))),
        None => Ok(()),
    }
}

fn missing(class: Class) -> Failure {
    let (key, set) = match class {
        Some(KeyClass::Organization) => ("an organization key", variables(KeyClass::Organization)),
        Some(KeyClass::Agent) => ("an agent key", variables(KeyClass::Agent)),
        None => ("a key", variables(KeyClass::Organization)),
    };
    let (direct, file) = set;
    let failure = Failure::new(Exit::Unauthorized, format!("this command needs {key}, and there is none"));
    // A key of the other class is set. Without this note, the user would look for a misspelling.
    let others = KeyClass::ALL.into_iter().filter(|other| class.is_some_and(|class| class != *other));
    let is_set = |name: &&'static str| matches!(variable(name), Ok(Some(_)));
    let other = others.flat_map(|other| <[_; 2]>::from(variables(other))).find(is_set);
    let failure = match other {
        Some(name) => failure.note("not used", format_args!("{name}, which is for keys of the other class")),
        None => failure,
    };
    failure.next(format!(
        "mandate login; or set {direct} or {file}, or pass --key-file FILE (- for standard input)"
    ))
}

/// Reads a key from a file or standard input.
pub(crate) fn read(source: &Source, class: Class) -> Result<ApiKey, Failure> {
    let text = source.read_secret("the API key", MAX_KEY_FILE_BYTES, Exit::Unauthorized)?;
    if let Source::File(path) = source {
        warn_if_exposed(path);
    }
    parse(without_line_break(&text), &source.to_string(), class)
}

/// Reads a key that came from `place`.
pub(crate) fn parse(text: &str, place: &str, class: Class) -> Result<ApiKey, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::new(Exit::Unauthorized, format!("there is no API key: {place} is empty"))
            .note("sent", "nothing")
            .next("write the key into it, on one line"));
    }
    let key = ApiKey::parse(text).map_err(|e| {
        let advice = if text.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME)) {
            "leave out `Bearer `, which is no part of the key"
        } else {
            "copy the whole key again; the service's operator issues organization keys, mandate agent create issues agent keys"
        };
        Failure::new(Exit::Unauthorized, format!("the API key is refused: {e}"))
            .note("read from", place)
            .note("sent", "nothing")
            .next(advice)
    })?;
    must_be_of(class, &key, place)?;
    Ok(key)
}

fn must_be_of(class: Class, key: &ApiKey, place: &str) -> Result<(), Failure> {
    match class {
        Some(class) if class != key.class() => Err(Failure::new(
            Exit::Forbidden,
            format!("this command needs the key of an {class}; this is one of an {}", key.class()),
        )
        .note("read from", place)
        .note("sent", "nothing")),
        _ => Ok(()),
    }
}

/// Warns about a key file that other users of the machine can read.
#[cfg(unix)]
pub(crate) fn warn_if_exposed(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    /// Read, write and execute for group and others.
    const OTHERS: u32 = 0o077;
    let mode = std::fs::metadata(path).map_or(0, |m| m.permissions().mode());
    if mode & OTHERS != 0 {
        let path = path.display().to_string();
        let path = printable(&path);
        warn(format!(
            "the key file {path} is open to other users (mode {:03o}); chmod 600 {path}",
            mode & 0o777
        ));
    }
}

#[cfg(not(unix))]
pub(crate) fn warn_if_exposed(_: &Path) {}
