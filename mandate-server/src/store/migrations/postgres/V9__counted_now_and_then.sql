-- SQLite's schema changes here; on PostgreSQL counters are written with each decision. Both have the same number.
SELECT 1;
