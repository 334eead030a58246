{{- /* A query. Inputs: .SchemaName, .TableName, .Qualified (the table); .FunctionSchema, .FunctionName, .Body; .TriggerNames. Gives one line of text for each thing that is not as installed. Asks the catalogues by name, since to_regclass and the like want rights on the schemas. */ -}}
WITH RECURSIVE root AS (
	SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = {{lit .SchemaName}} AND c.relname = {{lit .TableName}}
), fn AS (
	SELECT p.oid, p.prosrc FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = {{lit .FunctionSchema}} AND p.proname = {{lit .FunctionName}}
), down(oid) AS (
	SELECT oid FROM root UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN down d ON i.inhparent = d.oid
), related(oid) AS (
	SELECT oid FROM down UNION SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN related r ON i.inhrelid = r.oid
)
SELECT 'there is no table ' || {{lit .Qualified}} WHERE NOT EXISTS (SELECT FROM root)
UNION ALL
SELECT 'the function ' || {{lit .Function}} || ' is missing, or not of this version and configuration'
WHERE NOT EXISTS (SELECT FROM fn WHERE prosrc = E'\n' || {{lit .Body}} || E'\n')
UNION ALL
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) || ' lacks the trigger ' || w.name || ', or has it disabled'
FROM related r JOIN pg_catalog.pg_class c ON c.oid = r.oid AND c.relkind IN ('r', 'p') JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	CROSS JOIN pg_catalog.unnest({{array .TriggerNames}}) AS w(name)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = w.name AND t.tgenabled = 'A' AND t.tgfoid IN (SELECT oid FROM fn))
