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

-- What an operator calls a key, and the keys of one owner.
ALTER TABLE api_keys ADD COLUMN name TEXT;
CREATE INDEX api_keys_by_owner ON api_keys (environment, agent);

-- Of the keys of one kind that are not revoked exactly one signs at any instant: from `sign_from` on and before
-- `sign_until`. A key is published until `publish_until`.
ALTER TABLE signing_keys DROP COLUMN retired_at;
ALTER TABLE signing_keys ADD COLUMN sign_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE signing_keys ADD COLUMN sign_until INTEGER;
ALTER TABLE signing_keys ADD COLUMN publish_until INTEGER;
ALTER TABLE signing_keys ADD COLUMN revoked_at INTEGER;
INSERT INTO revisions (name, revision) VALUES ('signing_keys', 0);
