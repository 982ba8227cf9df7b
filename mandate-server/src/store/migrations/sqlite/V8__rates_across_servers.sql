-- PostgreSQL's version 8 has servers tell each other of request rates. A server on a file is alone: nothing changes here.
SELECT 1;
