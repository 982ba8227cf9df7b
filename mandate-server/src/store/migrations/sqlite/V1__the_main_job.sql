-- Organizations, their two environments each, and the keys that open them.
CREATE TABLE organizations (
    organization INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE environments (
    environment    INTEGER PRIMARY KEY,
    organization   INTEGER NOT NULL REFERENCES organizations (organization),
    kind           TEXT    NOT NULL CHECK (kind IN ('sandbox', 'production')),
    policy_version TEXT    NOT NULL,
    mode           TEXT    NOT NULL CHECK (mode IN ('observe', 'enforce')),
    since          INTEGER NOT NULL,
    UNIQUE (organization, kind)
) STRICT;

-- Only a SHA-256 of a key is stored. `agent` is there for agent keys and for no others.
CREATE TABLE api_keys (
    api_key     INTEGER PRIMARY KEY,
    hash        BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    environment INTEGER NOT NULL REFERENCES environments (environment),
    agent       TEXT,
    rate        INTEGER NOT NULL CHECK (rate > 0),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
) STRICT;

-- Counters that grow when something changes that servers hold in memory.
CREATE TABLE revisions (
    name     TEXT    PRIMARY KEY,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO revisions (name, revision) VALUES ('api_keys', 0);

-- `recent` holds the instants of the agent's newest ten requests, 8 bytes each.
CREATE TABLE agents (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    agent       TEXT    NOT NULL,
    sequence    BLOB    NOT NULL CHECK (length(sequence) = 16),
    created_at  INTEGER NOT NULL,
    governing   BLOB,
    recent      BLOB    NOT NULL,
    PRIMARY KEY (environment, agent)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX agents_by_sequence ON agents (environment, sequence);

-- `terms` is the mandate as its organization wrote it, normalised; it never changes.
CREATE TABLE mandates (
    environment INTEGER NOT NULL,
    mandate     BLOB    NOT NULL CHECK (length(mandate) = 16),
    agent       TEXT    NOT NULL,
    terms       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    revoked_at  INTEGER,
    replaced_by BLOB,
    PRIMARY KEY (environment, mandate),
    FOREIGN KEY (environment, agent) REFERENCES agents (environment, agent)
) STRICT, WITHOUT ROWID;
CREATE INDEX mandates_by_agent ON mandates (environment, agent, mandate);

-- Whose name stands in tokens (`iss`), and which keys sign them.
CREATE TABLE issuers (
    issuer INTEGER PRIMARY KEY,
    url    TEXT    NOT NULL UNIQUE
) STRICT;

-- `sealed` is the private part, encrypted under the master key.
CREATE TABLE signing_keys (
    signing_key INTEGER PRIMARY KEY,
    kind        TEXT    NOT NULL CHECK (kind IN ('sandbox', 'production')),
    kid         TEXT    NOT NULL UNIQUE,
    public_key  BLOB    NOT NULL CHECK (length(public_key) = 64),
    sealed      BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    retired_at  INTEGER
) STRICT;

-- The log. A row holds what the claims say and the 64 bytes of the signature: the token is rebuilt from them.
CREATE TABLE decisions (
    environment     INTEGER NOT NULL,
    decision        BLOB    NOT NULL,
    iat             INTEGER NOT NULL,
    verdict         TEXT    NOT NULL,
    mandate         BLOB,
    nonce           BLOB    NOT NULL,
    agent           TEXT    NOT NULL,
    amount          TEXT    NOT NULL,
    currency        TEXT    NOT NULL,
    recipient       TEXT    NOT NULL,
    category        TEXT    NOT NULL,
    mode            TEXT    NOT NULL,
    reason          TEXT,
    denials         TEXT    NOT NULL,
    spent           TEXT    NOT NULL,
    recent_requests INTEGER NOT NULL,
    supersedes      BLOB,
    review          BLOB,
    issuer          INTEGER NOT NULL,
    signing_key     INTEGER NOT NULL,
    signature       BLOB    NOT NULL,
    PRIMARY KEY (environment, decision)
) STRICT, WITHOUT ROWID;
CREATE INDEX decisions_by_agent ON decisions (environment, agent, decision);
-- Each verdict's rows end in time order: a new one is appended at one of eight places.
CREATE INDEX decisions_by_verdict ON decisions (environment, verdict, decision);

CREATE TABLE reviews (
    environment INTEGER NOT NULL,
    review      BLOB    NOT NULL,
    decision    BLOB    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired')),
    waits_for   TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL,
    resolved_at INTEGER,
    fresh       BLOB,
    reason      TEXT,
    PRIMARY KEY (environment, review),
    FOREIGN KEY (environment, decision) REFERENCES decisions (environment, decision)
) STRICT, WITHOUT ROWID;

-- The metering, and the month's spending that limits are held against. Written with each decision.
CREATE TABLE usage (
    environment     INTEGER NOT NULL,
    month           TEXT    NOT NULL,
    agent           TEXT    NOT NULL,
    currency        TEXT    NOT NULL,
    spent           TEXT    NOT NULL,
    requests        INTEGER NOT NULL,
    allow           INTEGER NOT NULL,
    review          INTEGER NOT NULL,
    deny_no_mandate INTEGER NOT NULL,
    deny_revoked    INTEGER NOT NULL,
    deny_expired    INTEGER NOT NULL,
    deny_limit      INTEGER NOT NULL,
    deny_category   INTEGER NOT NULL,
    deny_velocity   INTEGER NOT NULL,
    PRIMARY KEY (environment, month, agent, currency)
) STRICT, WITHOUT ROWID;

-- Answers kept for 24 hours under the key that the caller chose. `sealed` answers are encrypted under the API key.
CREATE TABLE idempotency (
    environment INTEGER NOT NULL,
    api_key     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    status      INTEGER NOT NULL,
    body        BLOB    NOT NULL,
    sealed      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (environment, api_key, name)
) STRICT, WITHOUT ROWID;
