-- Which decisions are an agent's. A row lies anywhere in it, on a page that few others share: they are written with the agent's
-- counters, several at once. All up to `agents.counted` are here; those behind it are known by reading the end of the log.
CREATE TABLE agent_decisions (
    environment INTEGER NOT NULL,
    agent       TEXT    NOT NULL,
    decision    BLOB    NOT NULL,
    PRIMARY KEY (environment, agent, decision)
) STRICT, WITHOUT ROWID;
INSERT INTO agent_decisions
    SELECT d.environment, d.agent, d.decision
    FROM agents a CROSS JOIN decisions d INDEXED BY decisions_by_agent
    WHERE d.environment = a.environment AND d.agent = a.agent AND d.decision <= a.counted
    ORDER BY a.environment, a.agent, d.decision;

-- Where that end begins: all decisions before `since` are in agent_decisions.
CREATE TABLE unsettled (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    since BLOB    NOT NULL
) STRICT;
INSERT INTO unsettled SELECT 1, coalesce(
    (SELECT min(d.decision) FROM agents a CROSS JOIN decisions d INDEXED BY decisions_by_agent
        WHERE d.environment = a.environment AND d.agent = a.agent AND d.decision > a.counted),
    (SELECT max(decision) FROM decisions),
    x'');
DROP INDEX decisions_by_agent;
