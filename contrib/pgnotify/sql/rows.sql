{{- /* Body of a trigger function. Inputs: .Channel; .Changed, .Many (payloads; the first may be empty); .Columns that tags are made
of; .Tags, each a list of texts and numbers of columns; .Special, a regular expression of what is escaped; .TagsMax, .TagBytesMax, .ChunkBytes. */ -}}
{{- define "columns" -}}
SELECT {{range $i, $c := .Columns}}{{if $i}}, {{end}}{{ident $c}}::text COLLATE "C" AS c{{$i}}{{end}}
{{- end -}}
-- A statement that changed no row tells nothing.
DECLARE
	told bigint; -- rows, or rather their different keys, and no more than one above the limit
BEGIN
	IF TG_OP = 'TRUNCATE' THEN
		PERFORM pg_notify({{lit .Channel}}, {{lit .Many}});
		RETURN NULL;
	END IF;
{{- range $op := ops}}
	{{$op.If}} TG_OP = '{{$op.Name}}' THEN
		WITH keys AS MATERIALIZED (
{{- range $i, $t := $op.Tables}}{{if $i}}
			UNION{{end}}
			{{template "columns" $}} FROM {{$t}}{{end}}
			{{if eq (len $op.Tables) 1}}GROUP BY {{range $i, $c := $.Columns}}{{if $i}}, {{end}}{{add $i 1}}{{end}}{{"\n\t\t\t"}}{{end}}LIMIT {{add $.TagsMax 1}}
		){{template "tell" $}}
{{- end}}
	END IF;
	IF told = 0 THEN
		RETURN NULL;
	END IF;
{{- if .Changed}}
	PERFORM pg_notify({{lit .Channel}}, {{lit .Changed}});
{{- end}}
	IF told > {{.TagsMax}} THEN
		PERFORM pg_notify({{lit .Channel}}, {{lit .Many}});
	END IF;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	-- Such as a column that was renamed. It takes back what was told above; a write that fails would be worse.
	RAISE WARNING 'sqlherd pgnotify: rows of % are not told one by one: %', TG_RELID::regclass, SQLERRM;
	BEGIN
		PERFORM pg_notify({{lit .Channel}}, {{lit .Many}});
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING 'sqlherd pgnotify: a write of % is not told: %', TG_RELID::regclass, SQLERRM;
	END;
	RETURN NULL;
END
{{- define "tell"}}, escaped AS ( -- as sqlherd writes an argument into a tag
			SELECT {{range $i, $c := .Columns}}{{if $i}},
				{{end}}CASE WHEN c{{$i}} IS NULL THEN '%null' WHEN c{{$i}} !~ {{$.Special}} THEN c{{$i}} ELSE (
					SELECT string_agg(CASE WHEN ch ~ {{$.Special}} THEN regexp_replace(upper(encode(convert_to(ch, 'UTF8'), 'hex')), '..', E'%\\&', 'g') ELSE ch END, '' ORDER BY n)
					FROM regexp_split_to_table(c{{$i}}, '') WITH ORDINALITY AS s(ch, n)) END AS v{{$i}}{{end}}
			FROM keys WHERE (SELECT count(*) FROM keys) <= {{.TagsMax}}
		), tags AS (
{{- range $i, $t := .Tags}}{{if $i}}
			UNION{{end}}
			SELECT {{range $j, $p := $t}}{{if $j}} || {{end}}{{if $p.IsColumn}}v{{$p.Column}}{{else}}{{lit $p.Text}}{{end}}{{end}} AS tag FROM escaped{{end}}
		), chunks AS ( -- a longer tag is no tag that a read can have
			SELECT to_json(tag) AS tag, sum(octet_length(to_json(tag)::text) + 2) OVER (ORDER BY tag COLLATE "C") / {{.ChunkBytes}} AS chunk
			FROM (SELECT DISTINCT tag COLLATE "C" AS tag FROM tags WHERE octet_length(convert_to(tag, 'UTF8')) <= {{.TagBytesMax}}) t
		), sent AS (
			SELECT pg_notify({{lit .Channel}}, json_build_object('v', 1, 'tags', json_agg(tag ORDER BY tag::text COLLATE "C"))::text) FROM chunks GROUP BY chunk
		)
		SELECT (SELECT count(*) FROM keys) + 0 * (SELECT count(*) FROM sent) INTO told;
{{- end}}
