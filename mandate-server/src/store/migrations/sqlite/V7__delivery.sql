-- When the deliveries to a webhook are to be looked at: no later than the first that is pending is due. Null: none is.
-- Whoever delivers finds work here, so that a webhook with a million deliveries stands in line as one.
ALTER TABLE webhooks ADD COLUMN due_at INTEGER;
-- Until when one server has them to itself. When it ends they are anybody's again, whatever became of that server.
ALTER TABLE webhooks ADD COLUMN leased_until INTEGER;
UPDATE webhooks SET due_at = (SELECT min(due_at) FROM deliveries
    WHERE deliveries.environment = webhooks.environment AND deliveries.webhook = webhooks.webhook AND state = 'pending');
CREATE INDEX webhooks_due ON webhooks (due_at) WHERE due_at IS NOT NULL;

-- When the operator had a delivery that has failed made again: its time begins anew then.
ALTER TABLE deliveries ADD COLUMN retried_at INTEGER;
