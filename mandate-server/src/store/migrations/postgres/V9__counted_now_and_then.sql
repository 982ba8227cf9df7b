-- SQLite's version 9 has agents' counters written now and then, and `counted` says up to which decision. Here they are
-- written with each batch, with one statement a table, and nothing reads the column.
ALTER TABLE agents ADD COLUMN counted BYTEA NOT NULL DEFAULT '';
