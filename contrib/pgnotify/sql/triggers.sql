{{- /* Body of a DO block. Inputs: .Qualified (the table), .Function, .Columns, .Triggers (each with .Name, .Before and .After the table's name), .TriggerNames. */ -}}
-- Gives every table whose writes can change what the table shows the triggers it lacks: the table, its partitions and
-- children, and what these are partitions and children of. Takes away those that are not wanted any more.
DECLARE
	root constant regclass := pg_catalog.to_regclass({{lit .Qualified}});
	fn constant oid := {{lit .Function}}::pg_catalog.regprocedure;
	rel record;
	trg record;
	col text;
	coltype text;
	family oid[] := '{}';
BEGIN
	IF root IS NULL THEN
		RAISE EXCEPTION 'sqlherd pgnotify: there is no table %', {{lit .Qualified}} USING ERRCODE = 'undefined_table';
	END IF;
	FOR rel IN
		{{template "family"}}
	LOOP
		IF rel.relkind NOT IN ('r', 'p') THEN
			IF rel.oid = root THEN
				RAISE EXCEPTION 'sqlherd pgnotify: % is not a table; name the tables beneath it', root USING ERRCODE = 'wrong_object_type';
			END IF;
			RAISE WARNING 'sqlherd pgnotify: writes of %, a foreign table, are not seen', rel.name;
			CONTINUE;
		END IF;
		FOREACH col IN ARRAY {{array .Columns}} LOOP
			SELECT CASE WHEN b.typtype = 'e' OR b.typname = 'citext' THEN 'text' ELSE b.typname END INTO coltype
			FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
				JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
			WHERE a.attrelid = rel.oid AND a.attname = col AND a.attnum > 0 AND NOT a.attisdropped;
			IF NOT FOUND THEN
				RAISE EXCEPTION 'sqlherd pgnotify: % has no column "%"', rel.name, col USING ERRCODE = 'undefined_column';
			ELSIF coltype NOT IN ('int2', 'int4', 'int8', 'text', 'varchar', 'bpchar', 'name', 'uuid', 'bool') THEN
				RAISE EXCEPTION 'sqlherd pgnotify: column "%" of % has type %; a tag can be made of integers, text, uuid, boolean and enums', col, rel.name, coltype
					USING ERRCODE = 'datatype_mismatch';
			END IF;
		END LOOP;
		family := family || rel.oid;
{{- range .Triggers}}
		IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgname = {{lit .Name}} AND tgfoid = fn AND tgenabled = 'A') THEN
			EXECUTE 'DROP TRIGGER IF EXISTS {{.Name}} ON ' || rel.name;
			EXECUTE 'CREATE TRIGGER {{.Name}} {{.Before}} ON ' || rel.name || ' {{.After}} FOR EACH STATEMENT EXECUTE FUNCTION ' || {{lit $.Function}};
			-- Also when session_replication_role is replica: the rows change all the same.
			EXECUTE 'ALTER TABLE ' || rel.name || ' ENABLE ALWAYS TRIGGER {{.Name}}';
		END IF;
{{- end}}
	END LOOP;
	FOR trg IN
		SELECT t.tgname, t.tgrelid::pg_catalog.regclass AS name FROM pg_catalog.pg_trigger t
		WHERE t.tgfoid = fn AND NOT (t.tgrelid = ANY (family) AND t.tgname = ANY ({{array .TriggerNames}}))
	LOOP
		EXECUTE pg_catalog.format('DROP TRIGGER %I ON %s', trg.tgname, trg.name);
	END LOOP;
END
{{- define "family" -}}
WITH RECURSIVE down(oid) AS (
			SELECT root::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN down d ON i.inhparent = d.oid
		), related(oid) AS (
			SELECT oid FROM down UNION SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN related r ON i.inhrelid = r.oid
		)
		SELECT c.oid, c.relkind, pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
		FROM related r JOIN pg_catalog.pg_class c ON c.oid = r.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid
{{- end}}
