package sqlherd_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The lines between the layers, which a reviewer would otherwise have to watch.
func TestEachFileImportsOnlyWhatItsLayerMay(t *testing.T) {
	const (
		sqlDriver = "database/sql/driver"
		goRedis   = "github.com/redis/go-redis/v9"
		otter     = "github.com/maypok86/otter/v2"
		sqlmw     = "github.com/ngrok/sqlmw"
		module    = "github.com/sqlherd/sqlherd"
	)
	// Which files may import what others must not.
	allowed := map[string][]string{
		sqlDriver: {
			"driver.go", "conn.go", "args.go", "budget.go", "interceptor.go", "keying.go", "loader.go", "rows.go", "plan.go", "hint.go",
			"errors.go", "identity.go", "hereload.go", "columnscan.go", "columnscan_old.go",
		},
		goRedis: {"redisstore.go", "breaker.go", "nodes.go", "config.go"},
		otter:   {"memstore.go", "plan.go", "failing.go"},
		sqlmw:   {"driver.go", "interceptor.go"},
	}
	drivers := []string{"lib/pq", "pgx", "go-sql-driver", "sqlite"}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	internal, err := filepath.Glob("internal/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, internal...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if who, ok := allowed[path]; ok && !strings.HasPrefix(file, "internal") && !slices.Contains(who, file) {
				t.Errorf("%s imports %s; only %v may", file, path, who)
			}
			for _, d := range drivers {
				if strings.Contains(path, d) {
					t.Errorf("%s imports the database driver %s", file, path)
				}
			}
			if strings.HasPrefix(file, "internal") && strings.Contains(path, ".") {
				t.Errorf("%s imports %s; internal packages keep to the standard library", file, path)
			}
			if strings.HasPrefix(path, module) && !strings.HasPrefix(path, module+"/internal/") {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}
