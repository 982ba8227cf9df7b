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

-- The states that an escrow has been in, from 0 on; the last is where it stands. No state comes twice.
CREATE TABLE escrow_history (
    environment INTEGER NOT NULL,
    escrow      BLOB    NOT NULL,
    number      INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('funded', 'delivered', 'released', 'refunded', 'disputed')),
    disputed    INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    note        TEXT,
    PRIMARY KEY (environment, escrow, number),
    UNIQUE (environment, escrow, state),
    FOREIGN KEY (environment, escrow) REFERENCES escrows (environment, escrow)
) STRICT, WITHOUT ROWID;
