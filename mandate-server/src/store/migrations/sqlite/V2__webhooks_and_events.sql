-- Where an organization wants to hear of what happens. A webhook that is deleted leaves; its deliveries keep its id.
CREATE TABLE webhooks (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    webhook     BLOB    NOT NULL CHECK (length(webhook) = 16),
    url         TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (environment, webhook)
) STRICT, WITHOUT ROWID;

-- Which types of events a webhook hears of, arranged so that one range holds all that an event goes to.
CREATE TABLE subscriptions (
    environment INTEGER NOT NULL,
    type        TEXT    NOT NULL,
    webhook     BLOB    NOT NULL,
    PRIMARY KEY (environment, type, webhook),
    FOREIGN KEY (environment, webhook) REFERENCES webhooks (environment, webhook)
) STRICT, WITHOUT ROWID;
CREATE INDEX subscriptions_by_webhook ON subscriptions (environment, webhook);

-- What has happened, written in the transaction of the change. Append only. `data` is the object as it was shown then:
-- too large to stand in the tree of the keys, hence a table with row ids.
CREATE TABLE events (
    environment INTEGER NOT NULL REFERENCES environments (environment),
    event       BLOB    NOT NULL CHECK (length(event) = 16),
    type        TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    data        TEXT    NOT NULL,
    PRIMARY KEY (environment, event)
) STRICT;
CREATE INDEX events_by_type ON events (environment, type, event);

-- An event on its way to a webhook. `attempts` counts those that were made.
CREATE TABLE deliveries (
    environment INTEGER NOT NULL,
    event       BLOB    NOT NULL,
    webhook     BLOB    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('pending', 'delivered', 'failed', 'ended')),
    due_at      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    PRIMARY KEY (environment, event, webhook),
    FOREIGN KEY (environment, event) REFERENCES events (environment, event)
) STRICT, WITHOUT ROWID;
-- What is due, of all tenants, and what of one webhook has not ended: their cost is that of what is under way, whatever
-- the size of the log.
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE state = 'pending';
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
