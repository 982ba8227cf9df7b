-- SQLite's version 12 writes down now and then which decisions are an agent's: here an index has them, and nothing changes.
SELECT 1;
