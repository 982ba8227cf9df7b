-- PostgreSQL's version 11 has a batch of decisions write one row an agent: here it is done by `counted`, and nothing changes.
SELECT 1;
