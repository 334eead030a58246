-- What stampede creates. SCHEMA. and NAME are replaced by a schema of its own.

CREATE SCHEMA NAME;

CREATE TABLE SCHEMA.product (id integer PRIMARY KEY, name text NOT NULL);

-- A sequence counts queries that fail as well: it takes no part in transactions.
CREATE SEQUENCE SCHEMA.queries;

-- One row for each answered query: the connection, by its pid and when the server accepted it.
CREATE UNLOGGED TABLE SCHEMA.answered (pid integer, connected timestamptz, at timestamptz);

CREATE FUNCTION SCHEMA.slow(ms integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  accepted timestamptz;
BEGIN
  PERFORM nextval('SCHEMA.queries');
  SELECT backend_start INTO accepted FROM pg_stat_get_activity(pg_backend_pid());
  PERFORM pg_sleep(ms / 1000.0);
  INSERT INTO SCHEMA.answered VALUES (pg_backend_pid(), accepted, clock_timestamp());
  RETURN ms;
END $$;
