{{- /* Body of a trigger function. Inputs: .Channel, .Changed (a payload). */ -}}
-- Equal notifications of one transaction are sent once, by the server.
BEGIN
	PERFORM pg_notify({{lit .Channel}}, {{lit .Changed}});
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	-- What is cached may be old; a write that fails would be worse.
	RAISE WARNING 'sqlherd pgnotify: a write of % is not told: %', TG_RELID::regclass, SQLERRM;
	RETURN NULL;
END
