{{- /* Body of a DO block. Input: .Schema. */ -}}
BEGIN
	-- One installation at a time: two that replace one function at once would fail.
	PERFORM pg_catalog.pg_advisory_xact_lock({{lockKey}});
	-- CREATE SCHEMA IF NOT EXISTS asks for a right on the database even when there is nothing to do.
	IF pg_catalog.to_regnamespace({{lit (ident .Schema)}}) IS NULL THEN
		CREATE SCHEMA {{ident .Schema}};
	END IF;
END
