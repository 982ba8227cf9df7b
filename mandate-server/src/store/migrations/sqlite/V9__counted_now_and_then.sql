-- An agent's newest requests and its rows of metering are written with every few of its decisions, all of them together:
-- `counted` is the newest decision that is in them. What they lack is found through decisions_by_agent.
ALTER TABLE agents ADD COLUMN counted BLOB NOT NULL DEFAULT x'';
UPDATE agents SET counted = coalesce((SELECT max(decision) FROM decisions
    WHERE decisions.environment = agents.environment AND decisions.agent = agents.agent), x'');
