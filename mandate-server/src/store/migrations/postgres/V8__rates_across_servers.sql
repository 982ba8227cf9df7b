-- The servers that work on this database, and what each has admitted of late: `rates` is its requests by key and second.
-- `at` is by the database's clock. It need not outlive a crash.
CREATE UNLOGGED TABLE servers (
    server BYTEA PRIMARY KEY,
    at     BIGINT NOT NULL,
    rates  BYTEA NOT NULL
);
ALTER TABLE servers ALTER COLUMN rates SET STORAGE EXTERNAL;
