//! The names of databases in texts.

/// The scheme of a SQLite database's URL.
pub const SQLITE: &str = "sqlite://";
/// The schemes of a PostgreSQL database's URL.
pub const POSTGRES: [&str; 2] = ["postgres://", "postgresql://"];

/// The URL of a database with `***` in place of a password.
#[must_use]
pub fn redacted(database: &str) -> String {
    if !POSTGRES.iter().any(|scheme| database.starts_with(scheme)) {
        return database.to_owned();
    }
    let (before, query) =
        database.split_once('?').map_or((database, None), |(before, query)| (before, Some(query)));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let user = user.map(|user| match user.split_once(':') {
        Some((user, _)) => format!("{user}:***@"),
        None => format!("{user}@"),
    });
    let mut redacted = format!("{scheme}://{}{place}", user.unwrap_or_default());
    let pairs = query.map(|query| form_urlencoded::parse(query.as_bytes()).into_owned());
    for (number, (name, value)) in pairs.into_iter().flatten().enumerate() {
        let value = if name == "password" { "***" } else { &value };
        redacted.push(if number == 0 { '?' } else { '&' });
        redacted.extend([&*name, "=", value]);
    }
    redacted
}
