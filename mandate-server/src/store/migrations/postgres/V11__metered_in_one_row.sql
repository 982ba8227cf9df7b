-- All that a decision reads and changes of its agent stands in the agent's row: one lock, one update, and no look elsewhere.
--
-- `metered` is the newest metering in one currency and month, the words of its row of `usage` in their order; empty: none. While it
-- is there that row is older than it: whoever reads the metering reads both, and whoever else writes it puts it back first.
-- `revoked_at` is that of the mandate that governs.
ALTER TABLE agents
    ADD COLUMN metered TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN revoked_at BIGINT;

UPDATE agents a SET revoked_at = m.revoked_at FROM mandates m
    WHERE m.environment = a.environment AND m.mandate = a.governing AND m.revoked_at IS NOT NULL;

-- The copy follows by itself, whoever revokes.
CREATE FUNCTION follow_mandate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE agents SET revoked_at = NEW.revoked_at
        WHERE environment = NEW.environment AND agent = NEW.agent AND governing = NEW.mandate;
    RETURN NULL;
END $$;
CREATE TRIGGER follow_new AFTER INSERT ON mandates
    FOR EACH ROW WHEN (NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION follow_mandate();
CREATE TRIGGER follow_changed AFTER UPDATE OF revoked_at ON mandates
    FOR EACH ROW EXECUTE FUNCTION follow_mandate();

CREATE FUNCTION follow_governing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE agents SET revoked_at =
            (SELECT revoked_at FROM mandates WHERE environment = NEW.environment AND mandate = NEW.governing)
        WHERE environment = NEW.environment AND agent = NEW.agent;
    RETURN NULL;
END $$;
CREATE TRIGGER follow_governing AFTER UPDATE OF governing ON agents
    FOR EACH ROW EXECUTE FUNCTION follow_governing();

-- A server of an earlier version knows `usage` alone. It may not write what it has decided over a sum that is not the newest.
CREATE FUNCTION must_be_put_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM agents WHERE environment = NEW.environment AND agent = NEW.agent
            AND starts_with(metered, NEW.month || ' ' || NEW.currency || ' ')) THEN
        RAISE EXCEPTION 'the metering of % in % stands in its row of agents', NEW.agent, NEW.currency;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER must_be_put_back BEFORE UPDATE ON usage FOR EACH ROW EXECUTE FUNCTION must_be_put_back();
