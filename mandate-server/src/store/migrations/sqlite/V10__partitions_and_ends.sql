-- PostgreSQL's version 10 is about what several servers do at once: nothing changes here.
SELECT 1;
