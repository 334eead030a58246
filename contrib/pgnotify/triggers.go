package pgnotify

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/lib/pq"

	"github.com/sqlherd/sqlherd"
)

// An Execer is a *sql.DB, *sql.Conn or *sql.Tx of PostgreSQL, through any driver. Take one that is not beneath a Herd, which
// takes a connection that ran DO for one in an unknown state, and does not cache on it any more.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// A Queryer is a *sql.DB, *sql.Conn or *sql.Tx of PostgreSQL, through any driver.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// InstallSQL returns the statements that give the tables of cfg their triggers, for a migration. They
// use no transaction statement of their own: run them in one transaction, as Install does. They can be run
// again, also by another version or with another configuration: what is as it should be is left alone, and
// what is not wanted any more is taken away. A table that is taken off cfg.Tables keeps its triggers
// until Uninstall. The same cfg gives the same text.
//
// Run them again when a table has got a new partition or child: PostgreSQL fires the trigger of the table
// that a statement names, and the new one, named directly, has none yet.
//
// The role must own the tables and the schema, or be allowed to create it. It needs PostgreSQL 13 or later.
func InstallSQL(cfg Config) (string, error) {
	cfg, tables, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("-- sqlherd pgnotify: triggers that tell of writes. To be run in one transaction; may be run again.\n")
	b.WriteString("DO " + dollar(render("schema.sql", cfg)) + ";\n")
	for _, t := range tables {
		o := t.objects(cfg)
		fmt.Fprintf(&b, "\n-- %s\n", o.Qualified)
		fmt.Fprintf(&b, "CREATE OR REPLACE FUNCTION %s RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %s;\n",
			o.Function, dollar(o.Body))
		fmt.Fprintf(&b, "COMMENT ON FUNCTION %s IS %s;\n", o.Function, pq.QuoteLiteral("sqlherd pgnotify, for "+o.Qualified))
		b.WriteString("REVOKE ALL ON FUNCTION " + o.Function + " FROM PUBLIC;\n") // firing needs no right
		b.WriteString("DO " + dollar(render("triggers.sql", o)) + ";\n")
	}
	return b.String(), nil
}

// Install runs the statements of InstallSQL, as one transaction, or within that of db. A trigger that is missing is made under a lock for
// which writers to the table wait, and which itself waits for them: set lock_timeout in db's session to give up instead. Where nothing
// is missing no table is locked, so it may be called at every start.
func Install(ctx context.Context, db Execer, cfg Config) error {
	return exec(ctx, db, "Install", cfg, InstallSQL)
}

// UninstallSQL returns the statements that take away the triggers of the tables of cfg and their
// functions; without any table those of cfg.Schema altogether. The schema goes with the last of them. What is not there is no error.
func UninstallSQL(cfg Config) (string, error) {
	every := len(cfg.Tables) == 0
	if every {
		cfg.Tables = []Table{{Name: "none"}} // for the checks
	}
	cfg, tables, err := cfg.withDefaults()
	if err != nil {
		return "", err
	}
	in := struct {
		Schema string
		Names  []string
	}{Schema: cfg.Schema}
	for _, t := range tables {
		if !every {
			in.Names = append(in.Names, t.objects(cfg).FunctionName)
		}
	}
	return "DO " + dollar(render("uninstall.sql", in)) + ";\n", nil
}

// Uninstall runs the statement of UninstallSQL. It takes the tables' locks as Install does.
func Uninstall(ctx context.Context, db Execer, cfg Config) error {
	return exec(ctx, db, "Uninstall", cfg, UninstallSQL)
}

func exec(ctx context.Context, db Execer, what string, cfg Config, text func(Config) (string, error)) error {
	query, err := text(cfg)
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, query); err != nil {
		return fmt.Errorf("sqlherd/pgnotify: %s: %w", what, err)
	}
	return nil
}

// Check returns an error that names everything that keeps writes to the tables of cfg from being told: functions and
// triggers that are missing, disabled, or of another version or configuration, such as after a restore or
// on a new partition. It changes nothing, locks nothing and needs no right on the tables. A program that finds
// an error should not cache results of these tables for long.
func Check(ctx context.Context, db Queryer, cfg Config) error {
	cfg, tables, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	var problems []error
	for _, t := range tables {
		rows, err := db.QueryContext(sqlherd.Bypass(ctx), render("check.sql", t.objects(cfg)))
		if err != nil {
			return fmt.Errorf("sqlherd/pgnotify: Check: %w", err)
		}
		for rows.Next() {
			var problem string
			if err = rows.Scan(&problem); err != nil {
				break
			}
			problems = append(problems, errors.New("sqlherd/pgnotify: Check: "+problem))
		}
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			return fmt.Errorf("sqlherd/pgnotify: Check: %w", err)
		}
	}
	return errors.Join(problems...)
}

// objects are what the templates of sql/ are filled with, for one table.
type objects struct {
	Channel        string
	SchemaName     string // of the table
	TableName      string
	Qualified      string // both, quoted
	Function       string // its function, with schema and parentheses, quoted
	FunctionName   string
	FunctionSchema string
	Body           string
	Changed, Many  string // payloads
	Columns        []string
	Tags           [][]part
	Triggers       []trigger
	TagsMax        int
	TagBytesMax    int
	ChunkBytes     int
	Special        string // a regular expression, quoted: what sqlherd escapes in a tag's argument
}

type trigger struct{ Name, Before, After string }

func (o objects) TriggerNames() []string {
	names := make([]string, len(o.Triggers))
	for i, t := range o.Triggers {
		names[i] = t.Name
	}
	return names
}

func (t *table) objects(cfg Config) objects {
	o := objects{
		Channel:        cfg.Channel,
		SchemaName:     t.schema,
		TableName:      t.name,
		FunctionName:   functionName(t.schema, t.name),
		FunctionSchema: cfg.Schema,
		Qualified:      pq.QuoteIdentifier(t.schema) + "." + pq.QuoteIdentifier(t.name),
		Many:           t.many().String(),
		Columns:        t.columns,
		Tags:           t.tags,
		TagsMax:        cfg.TagsMax,
		TagBytesMax:    sqlherd.TagBytesMax,
		ChunkBytes:     chunkBytes,
		Special:        pq.QuoteLiteral(`[%/,\u0001-\u001f\u007f-\u009f]`),
	}
	if p := t.changed(); !p.empty() {
		o.Changed = p.String()
	}
	o.Function = pq.QuoteIdentifier(cfg.Schema) + "." + o.FunctionName + "()"
	name := func(kind string) string { return "sqlherd_" + o.FunctionName + "_" + kind }
	if t.tagged() {
		o.Body = render("rows.sql", o)
		o.Triggers = []trigger{
			// A trigger with transition tables has one event.
			{name("ins"), "AFTER INSERT", "REFERENCING NEW TABLE AS sqlherd_new"},
			{name("upd"), "AFTER UPDATE", "REFERENCING OLD TABLE AS sqlherd_old NEW TABLE AS sqlherd_new"},
			{name("del"), "AFTER DELETE", "REFERENCING OLD TABLE AS sqlherd_old"},
			{name("trunc"), "AFTER TRUNCATE", ""},
		}
	} else {
		o.Body = render("statement.sql", o)
		o.Triggers = []trigger{{name("stmt"), "AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE", ""}}
	}
	return o
}

// functionName is what a DBA recognises, and unique whatever the table is called. It needs no quotes.
func functionName(schema, table string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, table)
	sum := sha256.Sum256([]byte(schema + "\x00" + table))
	return "t_" + readable[:min(len(readable), 24)] + "_" + hex.EncodeToString(sum[:6])
}

//go:embed sql/*.sql
var sqlFiles embed.FS

// lockKey is that of an advisory lock, any number that nobody else has.
const lockKey = 8317989213044

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"lit":     pq.QuoteLiteral,
	"ident":   pq.QuoteIdentifier,
	"add":     func(a, b int) int { return a + b },
	"lockKey": func() int64 { return lockKey },
	"array": func(list []string) string {
		if len(list) == 0 {
			return "'{}'::text[]"
		}
		quoted := make([]string, len(list))
		for i, s := range list {
			quoted[i] = pq.QuoteLiteral(s)
		}
		return "ARRAY[" + strings.Join(quoted, ", ") + "]::text[]"
	},
	"ops": func() any {
		type op struct {
			If, Name string
			Tables   []string
		}
		return []op{
			{"IF", "INSERT", []string{"sqlherd_new"}},
			{"ELSIF", "UPDATE", []string{"sqlherd_old", "sqlherd_new"}},
			{"ELSIF", "DELETE", []string{"sqlherd_old"}},
		}
	},
}).ParseFS(sqlFiles, "sql/*.sql"))

func render(file string, in any) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, file, in); err != nil {
		panic("sqlherd/pgnotify: bug: " + err.Error())
	}
	return strings.TrimSpace(b.String())
}

// dollar quotes a body between dollars that it does not contain, whatever names are in it.
func dollar(body string) string {
	tag := "$sqlherd$"
	for n := 1; strings.Contains(body+"$", tag); n++ {
		tag = fmt.Sprintf("$sqlherd%d$", n)
	}
	return tag + "\n" + body + "\n" + tag
}
