-- The schema of a SQLite database. Until 0.1.0 is released, a change of the schema edits this file and PostgreSQL's beside it;
-- a database made by another text is refused.
--
-- Instants are milliseconds since 1970, ids 16 bytes that begin with their time, amounts text. What is true or false is 1 or 0.
--
-- `checksum` is the CRC-32C of a row's table, key and values (store/sql/checksums.rs says which): pages have none here.
-- AUTOINCREMENT: where damage hides a row that others name by its number, no new row gets that number.

-- Organizations, their two environments each, and the keys that open them.
CREATE TABLE organizations (
    organization INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT    NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE environments (
    environment    INTEGER PRIMARY KEY AUTOINCREMENT,
    organization   INTEGER NOT NULL REFERENCES organizations (organization),
    kind           TEXT    NOT NULL CHECK (kind IN ('sandbox', 'production')),
    policy_version TEXT    NOT NULL,
    mode           TEXT    NOT NULL CHECK (mode IN ('observe', 'enforce')),
    since          INTEGER NOT NULL,
    checksum       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (organization, kind)
) STRICT;

-- Only a SHA-256 of a key is stored. `agent` is there for agent keys and for no others; `name` is what an operator calls it.
CREATE TABLE api_keys (
    api_key     INTEGER PRIMARY KEY AUTOINCREMENT,
    hash        BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    environment INTEGER NOT NULL REFERENCES environments (environment),
    agent       TEXT,
    rate        INTEGER NOT NULL CHECK (rate > 0),
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER,
    name        TEXT,
    checksum    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX api_keys_by_owner ON api_keys (environment, agent);

-- Counters that grow when something changes that servers hold in memory.
CREATE TABLE revisions (
    name     TEXT    PRIMARY KEY,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO revisions (name, revision) VALUES ('api_keys', 0), ('signing_keys', 0), ('operator', 0);

-- The high-water mark of the instants by which decisions were made: never below one of them, and at most a second ahead of
-- the newest. `held`: for how many more milliseconds of running no kept answer is forgotten, since the clock was set ahead.
CREATE TABLE clock (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    mark     INTEGER NOT NULL,
    held     INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
INSERT INTO clock (one, mark, held, checksum) VALUES (1, 0, 0, 2998605548);

-- `position` is the agent's place in the list of agents. `recent` holds the instants of its newest ten requests, 8 bytes each.
-- It is written with every few of the agent's decisions, together with its rows of `usage` and `agent_decisions`:
-- `last_decision` is the newest decision that is in them, and `sequence` its number. Later ones are found at the end of the log.
-- `newest_month` is the newest month that its metering is in, and `newest_rows` how many rows of `usage` that has: one that is not
-- found is missed.
CREATE TABLE agents (
    environment   INTEGER NOT NULL REFERENCES environments (environment),
    agent         TEXT    NOT NULL,
    position      BLOB    NOT NULL CHECK (length(position) = 16),
    created_at    INTEGER NOT NULL,
    governing     BLOB,
    recent        BLOB    NOT NULL,
    sequence      INTEGER NOT NULL DEFAULT 0,
    last_decision BLOB    NOT NULL DEFAULT x'',
    newest_month  TEXT    NOT NULL DEFAULT '',
    newest_rows   INTEGER NOT NULL DEFAULT 0,
    checksum      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, agent)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX agents_by_position ON agents (environment, position);

-- `terms` is the mandate as its organization wrote it, normalised; it never changes. `expiring_at` is when the event that
-- announces its expiry is due; null once that is written, and when the mandate was revoked or replaced. `governs_from` is the first
-- sequence of its agent that it may decide, `revoked_after` the last before it was revoked, and `governed_until` the last before another
-- mandate took its place.
CREATE TABLE mandates (
    environment    INTEGER NOT NULL,
    mandate        BLOB    NOT NULL CHECK (length(mandate) = 16),
    agent          TEXT    NOT NULL,
    terms          TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    revoked_at     INTEGER,
    replaced_by    BLOB,
    governs_from   INTEGER NOT NULL,
    revoked_after  INTEGER,
    governed_until INTEGER,
    expiring_at    INTEGER,
    checksum       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, mandate),
    FOREIGN KEY (environment, agent) REFERENCES agents (environment, agent)
) STRICT, WITHOUT ROWID;
CREATE INDEX mandates_by_agent ON mandates (environment, agent, mandate);
CREATE INDEX mandates_expiring ON mandates (expiring_at) WHERE expiring_at IS NOT NULL;

-- The issuers named in tokens (`iss`).
CREATE TABLE issuers (
    issuer INTEGER PRIMARY KEY AUTOINCREMENT,
    url    TEXT    NOT NULL UNIQUE
) STRICT;

-- `sealed` is the private part, encrypted under the master key. Of the keys of one kind that are not revoked exactly one
-- signs at any instant: from `sign_from` on and before `sign_until`. A key is published until `publish_until`.
CREATE TABLE signing_keys (
    signing_key   INTEGER PRIMARY KEY AUTOINCREMENT,
    kind          TEXT    NOT NULL CHECK (kind IN ('sandbox', 'production')),
    kid           TEXT    NOT NULL UNIQUE,
    public_key    BLOB    NOT NULL CHECK (length(public_key) = 64),
    sealed        BLOB    NOT NULL,
    created_at    INTEGER NOT NULL,
    sign_from     INTEGER NOT NULL DEFAULT 0,
    sign_until    INTEGER,
    publish_until INTEGER,
    revoked_at    INTEGER
) STRICT;

-- The log. A row holds what the claims say and the 64 bytes of the signature: the token is rebuilt from them.
CREATE TABLE decisions (
    environment     INTEGER NOT NULL,
    decision        BLOB    NOT NULL,
    sequence        INTEGER NOT NULL,
    decided_at      INTEGER NOT NULL,
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
    checksum        INTEGER NOT NULL,
    PRIMARY KEY (environment, decision)
) STRICT, WITHOUT ROWID;
-- Each verdict's rows end in time order: a new one is appended at one of eight places.
CREATE INDEX decisions_by_verdict ON decisions (environment, verdict, decision);

-- Which decisions are an agent's, all up to `agents.last_decision`. A row belongs on a page that few others share, so that they are
-- written several at once, with the agent's counters.
CREATE TABLE agent_decisions (
    environment INTEGER NOT NULL,
    agent       TEXT    NOT NULL,
    decision    BLOB    NOT NULL,
    PRIMARY KEY (environment, agent, decision)
) STRICT, WITHOUT ROWID;

-- All decisions before `since` are in agent_decisions; the agents of later ones are known by reading the end of the log.
CREATE TABLE uncounted (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    since    BLOB    NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
INSERT INTO uncounted (one, since, checksum) VALUES (1, x'', 2344968715);

-- `decision` is no foreign key: each decision that is deleted would be looked for in all reviews. `check` finds what dangles.
CREATE TABLE reviews (
    environment    INTEGER NOT NULL,
    review         BLOB    NOT NULL,
    decision       BLOB    NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'denied', 'expired')),
    waits_for      TEXT    NOT NULL,
    expires_at     INTEGER NOT NULL,
    resolved_at    INTEGER,
    resolved_after INTEGER,
    fresh          BLOB,
    reason         TEXT,
    resolved_by    TEXT,
    checksum       INTEGER NOT NULL,
    PRIMARY KEY (environment, review)
) STRICT, WITHOUT ROWID;
CREATE INDEX reviews_pending ON reviews (expires_at) WHERE status = 'pending';
CREATE INDEX reviews_pending_of_environment ON reviews (environment, expires_at) WHERE status = 'pending';

-- The metering, and the month's spending that limits are held against. What it lacks of an agent comes behind `agents.last_decision`.
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
    checksum        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, month, agent, currency)
) STRICT, WITHOUT ROWID;

-- Answers kept for 24 hours under the key that the caller chose, in the order in which they were kept: they are deleted from
-- the front, page after page, and need no index by time. `sealed` answers are encrypted under the API key.
CREATE TABLE idempotency (
    kept        INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    api_key     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    status      INTEGER NOT NULL,
    body        BLOB    NOT NULL,
    sealed      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    checksum    INTEGER NOT NULL,
    UNIQUE (environment, api_key, name)
) STRICT;

-- Where an organization's events are sent. A webhook's row is deleted with it; its deliveries keep its id. `due_at` is when its
-- deliveries are to be looked at: no later than the first that is pending is due; null when none is pending. Until
-- `leased_until` one server has them to itself.
CREATE TABLE webhooks (
    environment  INTEGER NOT NULL REFERENCES environments (environment),
    webhook      BLOB    NOT NULL CHECK (length(webhook) = 16),
    url          TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER,
    leased_until INTEGER,
    PRIMARY KEY (environment, webhook)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhooks_due ON webhooks (due_at) WHERE due_at IS NOT NULL;

-- Which types of events go to a webhook, arranged so that one range holds all webhooks of a type.
CREATE TABLE subscriptions (
    environment INTEGER NOT NULL,
    type        TEXT    NOT NULL,
    webhook     BLOB    NOT NULL,
    PRIMARY KEY (environment, type, webhook),
    FOREIGN KEY (environment, webhook) REFERENCES webhooks (environment, webhook)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscriptions_by_webhook ON subscriptions (environment, webhook);

-- The webhook, at most one an environment, that tells people in a chat that a review waits. The API does not show it. `sealed` is
-- its URL, encrypted: `webhooks.url` has only the host. `details` is 1 where messages name agent, amount and recipient.
CREATE TABLE notices (
    environment INTEGER PRIMARY KEY,
    webhook     BLOB    NOT NULL CHECK (length(webhook) = 16),
    sealed      BLOB    NOT NULL,
    format      TEXT    NOT NULL CHECK (format IN ('slack', 'teams')),
    details     INTEGER NOT NULL CHECK (details IN (0, 1)),
    FOREIGN KEY (environment, webhook) REFERENCES webhooks (environment, webhook)
) STRICT;

-- What has happened, written in the transaction of the change. Append only. `data` is the object as it was shown then:
-- too large for the tree of the keys, hence a table with row ids.
CREATE TABLE events (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    event       BLOB    NOT NULL CHECK (length(event) = 16),
    type        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    data        TEXT    NOT NULL,
    checksum    INTEGER NOT NULL,
    PRIMARY KEY (environment, event)
) STRICT;
CREATE INDEX events_by_type ON events (environment, type, event);

-- An event on its way to a webhook. `attempts` counts those that were made. `retried_at` is when the operator retried a
-- delivery that had failed: its time begins anew then.
CREATE TABLE deliveries (
    environment INTEGER NOT NULL,
    event       BLOB    NOT NULL,
    webhook     BLOB    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('pending', 'delivered', 'failed', 'ended')),
    due_at      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    retried_at  INTEGER,
    PRIMARY KEY (environment, event, webhook),
    FOREIGN KEY (environment, event) REFERENCES events (environment, event)
) STRICT, WITHOUT ROWID;
-- What of one webhook has not ended: its cost is that of what is under way, whatever the size of the log.
CREATE INDEX deliveries_pending ON deliveries (environment, webhook, due_at) WHERE state = 'pending';

-- One POST to a webhook: the status that was answered, or why there was none.
CREATE TABLE attempts (
    environment INTEGER NOT NULL,
    event       BLOB    NOT NULL,
    webhook     BLOB    NOT NULL,
    attempt     INTEGER NOT NULL CHECK (attempt > 0),
    at          INTEGER NOT NULL,
    status      INTEGER,
    error       TEXT,
    PRIMARY KEY (environment, event, webhook, attempt),
    FOREIGN KEY (environment, event, webhook) REFERENCES deliveries (environment, event, webhook)
) STRICT, WITHOUT ROWID;

-- An escrow is made from an allow decision, once; amount, currency and seller are the decision's. The seller reads it by
-- `contract`. `checksum` is also that of its states and of its newest instruction.
CREATE TABLE escrows (
    environment  INTEGER NOT NULL,
    escrow       BLOB    NOT NULL CHECK (length(escrow) = 16),
    contract     BLOB    NOT NULL UNIQUE CHECK (length(contract) = 32),
    decision     BLOB    NOT NULL,
    agent        TEXT    NOT NULL,
    arbiter      TEXT,
    condition    TEXT    NOT NULL,
    refund_after INTEGER NOT NULL,
    checksum     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, escrow),
    UNIQUE (environment, decision),
    FOREIGN KEY (environment, decision) REFERENCES decisions (environment, decision)
) STRICT, WITHOUT ROWID;
CREATE INDEX escrows_by_agent ON escrows (environment, agent, escrow);

-- The states that an escrow has been in, from 0 on; the last is the present one. A dispute that is raised while an instruction
-- is pending repeats the state, with `disputed`.
CREATE TABLE escrow_history (
    environment INTEGER NOT NULL,
    escrow      BLOB    NOT NULL,
    number      INTEGER NOT NULL,
    state       TEXT    NOT NULL
        CHECK (state IN ('opening', 'funded', 'delivered', 'released', 'refunded', 'disputed', 'failed')),
    disputed    INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    note        TEXT,
    PRIMARY KEY (environment, escrow, number),
    UNIQUE (environment, escrow, state, disputed),
    FOREIGN KEY (environment, escrow) REFERENCES escrows (environment, escrow)
) STRICT, WITHOUT ROWID;

-- Instructions to move an escrow's funds, from 0 on; only the newest can be pending. Escrow, action and attempt are its id.
-- `note` is for the state that it leads to. `sent` counts how often it was sent, and `next_at` is when it is sent again.
CREATE TABLE instructions (
    environment INTEGER NOT NULL,
    escrow      BLOB    NOT NULL,
    number      INTEGER NOT NULL,
    action      TEXT    NOT NULL CHECK (action IN ('lock', 'release', 'refund')),
    attempt     INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    note        TEXT,
    status      TEXT    NOT NULL CHECK (status IN ('pending', 'settled', 'refused')),
    reason      TEXT,
    sent        INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER,
    CHECK ((next_at IS NULL) = (status <> 'pending')),
    PRIMARY KEY (environment, escrow, number),
    UNIQUE (environment, escrow, action, attempt),
    FOREIGN KEY (environment, escrow) REFERENCES escrows (environment, escrow)
) STRICT, WITHOUT ROWID;
CREATE INDEX instructions_due ON instructions (next_at) WHERE status = 'pending';
CREATE UNIQUE INDEX instructions_pending ON instructions (environment, escrow) WHERE status = 'pending';

-- An export is asked for, built beside the requests, and kept as a file until it expires. `verdict`, `agent`, `since` and
-- `until` say which decisions are in it.
-- `incomplete_since`: the clock was set back to this instant, which is before `until`, after the export was built.
CREATE TABLE exports (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    export      BLOB    NOT NULL CHECK (length(export) = 16),
    format      TEXT    NOT NULL CHECK (format IN ('ndjson', 'csv')),
    verdict     TEXT,
    agent       TEXT,
    since       INTEGER,
    until       INTEGER,
    status      TEXT    NOT NULL CHECK (status IN ('pending', 'ready', 'failed')),
    rows        INTEGER,
    sha256      BLOB    CHECK (length(sha256) = 32),
    expires_at  INTEGER NOT NULL,
    incomplete_since INTEGER,
    PRIMARY KEY (environment, export)
) STRICT, WITHOUT ROWID;
CREATE INDEX exports_pending ON exports (export) WHERE status = 'pending';
CREATE INDEX exports_by_end ON exports (expires_at);
CREATE UNIQUE INDEX exports_by_id ON exports (export);

-- Where an agent's decisions go on after closed months: `sequence` is how many are counted in `balances`, `decision` the newest
-- of them, and `recent` the instants of its newest ten requests then. Their rows may be deleted. `check` goes on from here.
CREATE TABLE openings (
    environment INTEGER NOT NULL,
    agent       TEXT NOT NULL,
    sequence    INTEGER NOT NULL,
    decision    BLOB NOT NULL CHECK (length(decision) = 16),
    recent      BLOB NOT NULL,
    PRIMARY KEY (environment, agent),
    FOREIGN KEY (environment, agent) REFERENCES agents (environment, agent)
) STRICT, WITHOUT ROWID;

-- The metering that the decisions before `openings` make, by month and currency.
CREATE TABLE balances (
    environment     INTEGER NOT NULL,
    agent           TEXT NOT NULL,
    month           TEXT NOT NULL,
    currency        TEXT NOT NULL,
    spent           TEXT NOT NULL,
    requests        INTEGER NOT NULL,
    allow           INTEGER NOT NULL,
    review          INTEGER NOT NULL,
    deny_no_mandate INTEGER NOT NULL,
    deny_revoked    INTEGER NOT NULL,
    deny_expired    INTEGER NOT NULL,
    deny_limit      INTEGER NOT NULL,
    deny_category   INTEGER NOT NULL,
    deny_velocity   INTEGER NOT NULL,
    PRIMARY KEY (environment, agent, month, currency),
    FOREIGN KEY (environment, agent) REFERENCES agents (environment, agent)
) STRICT, WITHOUT ROWID;

-- Months that an operator closes: first their files are written into `directory`, then their rows are deleted. `behind` is the
-- first id of the next month. A review that was resolved at `began_at` or later stays.
CREATE TABLE closings (
    month     TEXT PRIMARY KEY,
    directory TEXT NOT NULL,
    step      TEXT NOT NULL CHECK (step IN ('writing', 'deleting', 'closed')),
    behind    BLOB NOT NULL CHECK (length(behind) = 16),
    began_at  INTEGER NOT NULL,
    closed_at INTEGER
) STRICT, WITHOUT ROWID;

-- The file of an environment's decisions of a month, with the first and the last of them.
CREATE TABLE closed_months (
    environment    INTEGER NOT NULL REFERENCES environments (environment),
    month          TEXT NOT NULL REFERENCES closings (month),
    file           TEXT NOT NULL,
    sha256         BLOB NOT NULL CHECK (length(sha256) = 32),
    rows           INTEGER NOT NULL,
    first_decision BLOB NOT NULL CHECK (length(first_decision) = 16),
    last_decision  BLOB NOT NULL CHECK (length(last_decision) = 16),
    PRIMARY KEY (environment, month)
) STRICT, WITHOUT ROWID;

-- The public logs. The newest one of a kind grows; the older ones are kept as they were when a new origin began. `sealed` is the
-- private key, encrypted under the master key. `frontier` is the right edge of the tree of `size` entries: 32 bytes for each
-- complete node. The first `indexed` entries are in `log_index`. `key_entries` has a line
-- for each entry of a signing key: its number and the key's id. `signed` is a checkpoint that witnesses may have cosigned, and that
-- is not published yet. `checkpoint` is the newest that was published, and `witnessed` the
-- newest that had its quorum of witnesses. Where `stopped` says why, nothing is appended.
CREATE TABLE logs (
    log          INTEGER PRIMARY KEY,
    kind         TEXT NOT NULL CHECK (kind IN ('sandbox', 'production')),
    origin       TEXT NOT NULL UNIQUE,
    verifier_key TEXT NOT NULL,
    sealed       BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    size         INTEGER NOT NULL DEFAULT 0,
    frontier     BLOB NOT NULL,
    indexed      INTEGER NOT NULL DEFAULT 0,
    key_entries  TEXT NOT NULL DEFAULT '',
    signed       TEXT,
    checkpoint   TEXT,
    witnessed    TEXT,
    stopped      TEXT
) STRICT;

-- The secret from which those of each environment's entries are made, encrypted under the master key.
CREATE TABLE log_secret (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    sealed BLOB NOT NULL
) STRICT;

-- Entries that were committed with what they say, and are not in a log yet: those of one transaction and kind, each with its length
-- before it. `at` is when the first of them was made.
CREATE TABLE log_pending (
    pending INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL CHECK (kind IN ('sandbox', 'production')),
    at      INTEGER NOT NULL,
    entries BLOB NOT NULL
) STRICT;

-- The tiles of the logs' trees, 256 hashes of 32 bytes each, and at level -1 the bundles of 256 entries. The last one of a level is
-- shorter, and is written again when it grows.
CREATE TABLE log_tiles (
    log     INTEGER NOT NULL REFERENCES logs (log),
    level   INTEGER NOT NULL,
    tile    INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (log, level, tile)
) STRICT;

-- Where a token's entry is, by the SHA-256 of its signing input: `first` is the first byte of the hash. For each of 65,536 entries,
-- which are a run, `places` has 8 more bytes of the hash and the place in the run as 2 bytes.
CREATE TABLE log_index (
    log    INTEGER NOT NULL REFERENCES logs (log),
    first  INTEGER NOT NULL,
    run    INTEGER NOT NULL,
    places BLOB NOT NULL,
    PRIMARY KEY (log, first, run)
) STRICT;

-- What governs an environment, and who changed it: 1, 2, 3 … for each, without a gap. `record` is a JSON object. `logged` is 1
-- once its entry is in a log.
CREATE TABLE log_records (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    number      INTEGER NOT NULL,
    record      TEXT NOT NULL,
    logged      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX log_records_pending ON log_records (environment, number) WHERE logged = 0;

-- The witnesses that are asked to cosign checkpoints.
CREATE TABLE log_witnesses (
    verifier_key TEXT PRIMARY KEY,
    url          TEXT NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- People who answer reviews with a passkey of their own. `roles` are the principals that they are, with spaces between;
-- `may` is what the console lets them do.
CREATE TABLE people (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    person      BLOB    NOT NULL CHECK (length(person) = 16),
    name        TEXT    NOT NULL,
    roles       TEXT    NOT NULL,
    may         TEXT    NOT NULL CHECK (may IN ('read', 'review')),
    created_at  INTEGER NOT NULL,
    disabled_at INTEGER,
    checksum    INTEGER NOT NULL,
    PRIMARY KEY (environment, person)
) STRICT, WITHOUT ROWID;

-- Passkeys, by their credential ids. `key` is the public key: 4, x, y. A withdrawn one stays, so that answers can be verified.
CREATE TABLE person_keys (
    environment  INTEGER NOT NULL,
    credential   BLOB    NOT NULL CHECK (length(credential) BETWEEN 1 AND 1023),
    person       BLOB    NOT NULL,
    key          BLOB    NOT NULL CHECK (length(key) = 65),
    label        TEXT    NOT NULL,
    origin       TEXT    NOT NULL,
    is_synced    INTEGER NOT NULL CHECK (is_synced IN (0, 1)),
    enrolled_at  INTEGER NOT NULL,
    withdrawn_at INTEGER,
    checksum     INTEGER NOT NULL,
    PRIMARY KEY (environment, credential),
    FOREIGN KEY (environment, person) REFERENCES people (environment, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX person_keys_by_person ON person_keys (environment, person);

-- Links by which a person registers a passkey, by the SHA-256 of their secrets. `used_at`: a registration was finished.
CREATE TABLE enrolments (
    environment INTEGER NOT NULL,
    hash        BLOB    NOT NULL CHECK (length(hash) = 32),
    person      BLOB    NOT NULL,
    expires_at  INTEGER NOT NULL,
    used_at     INTEGER,
    PRIMARY KEY (environment, hash),
    FOREIGN KEY (environment, person) REFERENCES people (environment, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX enrolments_by_person ON enrolments (environment, person);
CREATE INDEX enrolments_by_end ON enrolments (expires_at);

-- People who have signed in, by the SHA-256 of the secret in their cookie. A session that has ended has no row.
CREATE TABLE sessions (
    session     INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    hash        BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    person      BLOB    NOT NULL,
    credential  BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    FOREIGN KEY (environment, person) REFERENCES people (environment, person)
) STRICT;
CREATE INDEX sessions_by_person ON sessions (environment, person);
CREATE INDEX sessions_by_beginning ON sessions (created_at);

-- Challenges by which people have signed in: each is good once. The server keeps none that waits for a passkey.
CREATE TABLE challenges (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    challenge   BLOB    NOT NULL CHECK (length(challenge) = 32),
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (environment, challenge)
) STRICT, WITHOUT ROWID;
CREATE INDEX challenges_by_end ON challenges (expires_at);

-- Statements that were given to a session to be signed, by their SHA-256. Each is good once.
CREATE TABLE statements (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    challenge   BLOB    NOT NULL CHECK (length(challenge) = 32),
    session     INTEGER NOT NULL,
    statement   TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL,
    used_at     INTEGER,
    PRIMARY KEY (environment, challenge)
) STRICT, WITHOUT ROWID;
CREATE INDEX statements_by_session ON statements (environment, session);
CREATE INDEX statements_by_end ON statements (expires_at);

-- Answers of people, by the SHA-256 that the public log commits to: to a review, or by the revocation of a mandate. `content` is
-- canonical JSON: the statement and the assertion over it.
CREATE TABLE answers (
    environment INTEGER NOT NULL,
    answer      BLOB    NOT NULL CHECK (length(answer) = 32),
    person      BLOB    NOT NULL,
    review      BLOB,
    mandate     BLOB,
    at          INTEGER NOT NULL,
    content     TEXT    NOT NULL,
    checksum    INTEGER NOT NULL,
    PRIMARY KEY (environment, answer),
    CHECK ((review IS NULL) = (mandate IS NOT NULL)),
    UNIQUE (environment, review),
    FOREIGN KEY (environment, person) REFERENCES people (environment, person)
) STRICT;

-- What an operator has done, written with it. It names organizations and keys as they were called then, and outlives
-- them; `details` is a JSON object without secrets. Append only.
CREATE TABLE audit (
    audit        INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    action       TEXT    NOT NULL,
    organization TEXT,
    environment  TEXT,
    subject      TEXT    NOT NULL,
    operator     TEXT    NOT NULL,
    details      TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_by_organization ON audit (organization, audit);
-- How often an action was refused lately.
CREATE INDEX audit_by_subject ON audit (organization, environment, action, subject, at);
