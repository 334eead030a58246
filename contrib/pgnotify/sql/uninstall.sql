{{- /* Body of a DO block. Inputs: .Schema; .Names of functions, or none for all that pgnotify has made. */ -}}
DECLARE
	fn record;
	trg record;
BEGIN
	PERFORM pg_catalog.pg_advisory_xact_lock({{lockKey}});
	FOR fn IN
		SELECT p.oid, pg_catalog.format('%I.%I()', n.nspname, p.proname) AS name
		FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = {{lit .Schema}} AND p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype
			AND pg_catalog.obj_description(p.oid, 'pg_proc') LIKE 'sqlherd pgnotify%'
{{- if .Names}}
			AND p.proname = ANY ({{array .Names}})
{{- end}}
	LOOP
		FOR trg IN SELECT tgname, tgrelid::pg_catalog.regclass AS name FROM pg_catalog.pg_trigger WHERE tgfoid = fn.oid LOOP
			EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', trg.tgname, trg.name);
		END LOOP;
		EXECUTE 'DROP FUNCTION ' || fn.name;
	END LOOP;
	-- The schema goes with its last function, if it is this role's and nobody else has put anything there.
	IF pg_catalog.to_regnamespace({{lit (ident .Schema)}}) IS NOT NULL THEN
		BEGIN
			DROP SCHEMA {{ident .Schema}} RESTRICT;
		EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
			NULL;
		END;
	END IF;
END
