-- An export is asked for, built beside the requests, and kept as a file until it expires. `verdict`, `agent`, `since` and
-- `until` say which decisions are in it.
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
    PRIMARY KEY (environment, export)
) STRICT, WITHOUT ROWID;
CREATE INDEX exports_pending ON exports (export) WHERE status = 'pending';
CREATE INDEX exports_by_end ON exports (expires_at);
