package sqllex_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/sqlherd/sqlherd/internal/sqllex"
)

// seeds are texts that make a lexer think.
var seeds = append([]string{
	"", ";", ";;", "(", ")", "'", "\"", "`", "[", "]", "$", "$$", "$a$", "/*", "*/", "/*/", "--", "-", "#", "@", "@@", "\\", "\x00", "\v", "1.", ".1", "1e",
	"SELECT /* @cache ttl=1m */ a FROM t JOIN u USING (id), v WHERE x IN (SELECT y FROM w) FOR  /* x */ UPDATE;",
	"WITH RECURSIVE a (b) AS (SELECT 1 UNION SELECT b FROM a), c AS NOT MATERIALIZED (DELETE FROM t RETURNING *) SELECT * FROM a, c",
	"SELECT 'a' -- b\n 'c' /*+ d */ FROM t /*! e */ -- f", "SELECT E'\\'', U&'x', U&\"y\", N'z', $1, ?1, :a, @b, $c$ d $c$",
	"INSERT INTO t(a) SELECT 1 FROM `b` ON DUPLICATE KEY UPDATE c = 1; COMMIT AND CHAIN", "COPY (SELECT 1) TO STDOUT", "EXPLAIN (ANALYZE) SELECT [a] FROM 'b'",
	"CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT CASE WHEN 1 THEN 2 END; END; SELECT 1", "ALTER TABLE a.b.c RENAME TO", "RENAME TABLE a TO b, , c",
	"FROM 1a.2b.3c", "SELECT 1/*!50000 FROM /* x */ t */", "/*M!1 x */", "SELECT 1FROM t", "DELETE a.*,b FROM .c",
}, tainting...)

// FuzzAnalyze holds Analyze to what it promises of any text: it returns, the key is normalized, and no statement that
// is cacheable has an effect.
func FuzzAnalyze(f *testing.F) {
	for _, s := range seeds {
		for d := range dialects {
			f.Add(s, uint8(d))
		}
	}
	f.Fuzz(func(t *testing.T, text string, b uint8) {
		d := Dialect(b % 4)
		s := Analyze(text, d)
		if s.Guard == GuardNone && (s.Class != ClassRead || s.Taints || s.AllTables || len(s.Writes) > 0 || s.Tx != TxNone) {
			t.Fatalf("cacheable and yet: %+v", s)
		}
		if s.Tx == TxUnknown && !s.Taints {
			t.Fatalf("unknown transaction without taint: %+v", s)
		}
		if !slices.IsSorted(s.Reads) || !slices.IsSorted(s.Writes) {
			t.Fatalf("tables are not sorted: %+v", s)
		}
		pos := -1
		for _, c := range s.Comments {
			if c.Pos <= pos || c.Pos >= len(text) || !strings.Contains(text[c.Pos:], c.Text) {
				t.Fatalf("comment %+v is not where it says", c)
			}
			pos = c.Pos
		}
		if len(s.Comments) > 0 && !MayHint(text+"@") {
			t.Fatal("MayHint denies a comment")
		}
		k := Analyze(s.Key, d)
		if k.Key != s.Key {
			t.Fatalf("key of %q is %q, whose key is %q", text, s.Key, k.Key)
		}
		if s.Guard != GuardText {
			if len(k.Comments) > 0 {
				t.Fatalf("comments are left in %q", s.Key)
			}
			if k.Class != s.Class || k.Guard != s.Guard || k.Time != s.Time || k.Random != s.Random || k.Taints != s.Taints || k.Tx != s.Tx ||
				!slices.Equal(k.Reads, s.Reads) || !slices.Equal(k.Writes, s.Writes) {
				t.Fatalf("of %q: %+v\nof its key: %+v", text, s, k)
			}
		}
		if steps := Steps(text, d); steps > 40*len(text)+400 {
			t.Fatalf("%d steps for %d bytes", steps, len(text))
		}
	})
}

// FuzzSpelling spells tainting and writing statements in every way a server takes: they must not pass for anything else.
func FuzzSpelling(f *testing.F) {
	for i := range uint64(64) {
		f.Add(i, i*7919)
	}
	writes := []string{
		"INSERT INTO t VALUES ( 1 )", "UPDATE t SET a = 1", "DELETE FROM t", "MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", "TRUNCATE TABLE t",
		"WITH x AS ( DELETE FROM t RETURNING * ) SELECT * FROM x", "EXPLAIN ANALYZE DELETE FROM t", "SELECT a INTO t FROM u", "COPY t FROM STDIN",
		"DROP TABLE IF EXISTS t", "ALTER TABLE t ADD COLUMN a int", "CREATE TABLE t AS SELECT 1", "REFRESH MATERIALIZED VIEW t", "SELECT 1 ; DELETE FROM t",
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		for _, d := range dialects {
			text := spell(r, tainting[r.IntN(len(tainting))])
			if s := Analyze(text, d); !s.Taints || s.Guard == GuardNone {
				t.Errorf("%v: %q: taints %v, guard %v", d, text, s.Taints, s.Guard)
			}
			text = spell(r, writes[r.IntN(len(writes))])
			if s := Analyze(text, d); !slices.Contains(s.Writes, "t") || s.Guard == GuardNone {
				t.Errorf("%v: %q: writes %v, guard %v", d, text, s.Writes, s.Guard)
			}
			text = spell(r, "SELECT a FROM u WHERE b = ( SELECT c FROM v ) AND d = 'x'")
			if s := Analyze(text, d); s.Guard != GuardNone || s.Key != Analyze(s.Key, d).Key || !slices.Equal(s.Reads, []string{"u", "v"}) {
				t.Errorf("%v: %q: %+v", d, text, s)
			}
		}
	})
}

// spell varies case, white space and comments outside quotes.
func spell(r *rand.Rand, text string) string {
	space := []string{" ", "\n", "\t ", " /* it's */ ", "/**/", " -- \"x\n", "\r\n", " /* ; */\n-- ;\n"}
	var b strings.Builder
	quote := byte(0)
	for i := range len(text) {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '$':
			quote = c
		case c == ' ':
			b.WriteString(space[r.IntN(len(space))])
			continue
		case r.IntN(2) == 0:
			c = strings.ToUpper(string(c))[0]
		default:
			c = strings.ToLower(string(c))[0]
		}
		b.WriteByte(c)
	}
	if r.IntN(3) == 0 {
		return space[r.IntN(len(space))] + b.String() + " ;"
	}
	return b.String()
}

// F01: what grows faster than the text would be an attack. Work is counted, not timed.
func TestWorkIsLinearInTheText(t *testing.T) {
	for _, unit := range []string{
		"$", "$a", "$a$", "/*", "*/", "/*/", "/*!", "'", "''", "\"", "\\'", "\"\\\"", "`", "[", "]", "[]", "(", ")", "((", "()", ";", "--", "--\n", "-- x\r", "#", "@", "@@x",
		":a", "?", "?1", "1.", ".", "a.", "a", "1a", "a ", "FROM a,", "WITH a AS (", "WITH a AS (SELECT 1),", "a AS (SELECT * FROM a),", "SELECT ", "SELECT * FROM (", "BEGIN;",
		"EXPLAIN ANALYZE ", "EXPLAIN (", "CREATE TRIGGER BEGIN ", "CREATE a ", "RENAME TABLE a TO b;", "DECLARE a;", "date('now',", "COPY a;", "FOR ", "U&\"", "E'\\", "$1", "'a' ", "AS ",
	} {
		for _, prefix := range []string{"", "WITH x AS (SELECT 1), "} {
			for _, d := range dialects {
				short, long := 1000, 16000
				a := Steps(prefix+strings.Repeat(unit, short/len(unit)), d)
				b := Steps(prefix+strings.Repeat(unit, long/len(unit)), d)
				if b > (a+1000)*(long/short)*2 {
					t.Errorf("%v: %q×n after %q: %d steps for %d bytes, %d for %d", d, unit, prefix, a, short, b, long)
				}
			}
		}
	}
}

func TestAMegabyteOfAnythingTerminates(t *testing.T) {
	for unit, dialect := range map[string]Dialect{"$": PostgreSQL, "/*": PostgreSQL, "(": SQLite, "$a$": Unknown, "'": MySQL, "[": Unknown, "FROM a,": Unknown} {
		Analyze(strings.Repeat(unit, 1<<20/len(unit)), dialect)
	}
}

func TestPlainTextsCostFewAllocations(t *testing.T) {
	analyze := Reusing()
	for _, c := range []struct {
		text string
		max  float64
	}{
		{"SELECT id, name, price FROM products WHERE category_id = 7 AND deleted_at IS NULL ORDER BY id LIMIT 50", 1},
		{"UPDATE products SET price = 1 WHERE id = 2", 1},
		{"BEGIN", 0},
		{"SELECT /* @cache ttl=1m */ id FROM products", 4},
	} {
		for _, d := range dialects {
			if n := testing.AllocsPerRun(200, func() { analyze(c.text, d) }); n > c.max+0.5 {
				t.Errorf("%v: %s: %.1f allocations, want at most %.0f", d, c.text, n, c.max)
			}
		}
	}
}

func BenchmarkAnalyze(b *testing.B) {
	text := "SELECT p.id, p.name, p.price, c.name FROM products p JOIN categories c ON c.id = p.category_id " +
		"WHERE p.category_id = $1 AND p.deleted_at IS NULL AND lower(p.name) LIKE $2 ORDER BY p.id LIMIT 50 -- x"
	for _, d := range dialects {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Analyze(text, d)
			}
		})
	}
}
