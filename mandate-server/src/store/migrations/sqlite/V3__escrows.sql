-- An escrow is made from an allow decision, once; amount, currency and seller are the decision's. Who holds `contract`
-- may read it.
CREATE TABLE escrows (
    environment  INTEGER NOT NULL,
    escrow       BLOB    NOT NULL CHECK (length(escrow) = 16),
    contract     BLOB    NOT NULL UNIQUE CHECK (length(contract) = 32),
    decision     BLOB    NOT NULL,
    agent        TEXT    NOT NULL,
    arbiter      TEXT,
    condition    TEXT    NOT NULL,
    refund_after INTEGER NOT NULL,
    PRIMARY KEY (environment, escrow),
    UNIQUE (environment, decision),
    FOREIGN KEY (environment, decision) REFERENCES decisions (environment, decision)
) STRICT, WITHOUT ROWID;
CREATE INDEX escrows_by_agent ON escrows (environment, agent, escrow);

-- The states that an escrow has been in, from 0 on; the last is where it stands. No state comes twice, so that escrow and
-- state name the instruction that moves the funds. `settlement` says what became of it; `next_at` is when it is sent.
CREATE TABLE escrow_history (
    environment INTEGER NOT NULL,
    escrow      BLOB    NOT NULL,
    number      INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('funded', 'delivered', 'released', 'refunded', 'disputed')),
    disputed    INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    note        TEXT,
    settlement  TEXT CHECK (settlement IN ('pending', 'settled', 'refused')),
    attempts    INTEGER NOT NULL DEFAULT 0,
    next_at     INTEGER,
    PRIMARY KEY (environment, escrow, number),
    UNIQUE (environment, escrow, state),
    FOREIGN KEY (environment, escrow) REFERENCES escrows (environment, escrow)
) STRICT, WITHOUT ROWID;
CREATE INDEX escrow_history_due ON escrow_history (next_at) WHERE settlement = 'pending';
