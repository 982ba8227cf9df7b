-- A server that stops in order says so, and is not counted among those that share a rate from then on.
ALTER TABLE servers ADD COLUMN ended BIGINT NOT NULL DEFAULT 0;

-- As before, but that whether the partition is there is looked up in the catalog itself once the lock is had: to_regclass may
-- answer from what this session has remembered, and does not see what another has made meanwhile.
CREATE OR REPLACE FUNCTION make_partition(parent TEXT, month TEXT, first BYTEA, behind BYTEA) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    part  TEXT := parent || '_' || month;
    id    TEXT := rtrim(parent, 's');
    taken BIGINT;
BEGIN
    IF to_regclass(quote_ident(part)) IS NOT NULL THEN
        RETURN 0;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(part, 0));
    PERFORM set_config('lock_timeout', '200ms', true);
    IF EXISTS (SELECT FROM pg_class WHERE relname = part AND relnamespace = current_schema()::regnamespace) THEN
        RETURN 0;
    END IF;
    EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I WHERE %I >= $1 AND %I < $2 LIMIT 1) AS taken',
        parent || '_default', id, id) INTO taken USING first, behind;
    IF taken > 0 THEN
        RETURN -1;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, first, behind);
    RETURN 1;
END $$;
