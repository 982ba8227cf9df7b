-- When it is to be told that a mandate is about to expire: nothing once that was done, and where there is nothing to tell
-- because it was revoked or replaced. What is found by these indexes is what is still to come, whatever has gone by.
ALTER TABLE mandates ADD COLUMN expiring_at INTEGER;
CREATE INDEX mandates_expiring ON mandates (expiring_at) WHERE expiring_at IS NOT NULL;
UPDATE mandates SET expiring_at = (unixepoch(json_extract(terms, '$.expires')) - 7 * 86400) * 1000
    WHERE revoked_at IS NULL AND replaced_by IS NULL AND json_extract(terms, '$.expires') >= date('now');

CREATE INDEX reviews_pending ON reviews (expires_at) WHERE status = 'pending';
CREATE UNIQUE INDEX exports_by_id ON exports (export);

-- Answers kept for 24 hours, in the order in which they were kept: they are deleted from the front, page after page, and
-- need no index by time. The tree that is ordered by the callers' names holds no bodies.
CREATE TABLE kept (
    kept        INTEGER PRIMARY KEY,
    environment INTEGER NOT NULL,
    api_key     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    fingerprint BLOB    NOT NULL,
    status      INTEGER NOT NULL,
    body        BLOB    NOT NULL,
    sealed      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (environment, api_key, name)
) STRICT;
INSERT INTO kept (environment, api_key, name, fingerprint, status, body, sealed, created_at)
    SELECT environment, api_key, name, fingerprint, status, body, sealed, created_at FROM idempotency ORDER BY created_at;
DROP TABLE idempotency;
ALTER TABLE kept RENAME TO idempotency;
