package main

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/examples/orm/internal/ormtest"
	"github.com/sqlherd/sqlherd/integration/dbtest"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/hints"
)

// GORM never ends what expires its prepared statements.
func TestMain(m *testing.M) {
	dbtest.Main(m, goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

func TestTheProgramReadsOnceAndAgainAfterTheWrite(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), dbtest.PGX(t).DSN, &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != ormtest.Transcript {
		t.Errorf("got\n%s\nwant\n%s", &out, ormtest.Transcript)
	}
}

type item struct {
	ID      int64
	Name    string `gorm:"unique;size:100"`
	Price   int
	Reviews []review
}

type review struct {
	ID     int64
	ItemID int64
	Text   string
}

// bare opens GORM on an empty database, and on gives it two items of which one has a review.
func bare(t *testing.T, d dbtest.Database, cfg sqlherd.Config, gcfg gorm.Config) (*gorm.DB, *ormtest.Bed) {
	t.Helper()
	bed := ormtest.Open(t, d, cfg)
	return over(t, d, bed.DB, gcfg), bed
}

// over opens GORM on a pool of d.
func over(t *testing.T, d dbtest.Database, pool *sql.DB, cfg gorm.Config) *gorm.DB {
	t.Helper()
	var dialector gorm.Dialector
	switch d.Engine {
	case dbtest.EnginePostgres:
		dialector = postgres.New(postgres.Config{Conn: pool, DriverName: map[string]string{"pgx": "", "pq": "postgres"}[d.Name]})
	case dbtest.EngineMariaDB:
		dialector = mysql.New(mysql.Config{Conn: pool})
	case dbtest.EngineSQLite:
		dialector = sqlite.New(sqlite.Config{Conn: pool})
	}
	cfg.TranslateError = true
	cfg.Logger = logger.Discard
	db, err := gorm.Open(dialector, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func on(t *testing.T, d dbtest.Database, cfg sqlherd.Config, gcfg gorm.Config) (*gorm.DB, *ormtest.Bed) {
	t.Helper()
	db, bed := bare(t, d, cfg, gcfg)
	must(t, db.AutoMigrate(&item{}, &review{}))
	items := []item{{ID: 1, Name: "tea", Price: 350, Reviews: []review{{ID: 1, Text: "hot"}}}, {ID: 2, Name: "milk", Price: 120}}
	must(t, db.Create(&items).Error)
	bed.Log.Take()
	return db, bed
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eachDatabase(t *testing.T, f func(t *testing.T, d dbtest.Database)) {
	for _, open := range []func(testing.TB) dbtest.Database{dbtest.PGX, dbtest.PQ, dbtest.MariaDB, dbtest.SQLiteCgo} {
		d := open(t)
		t.Run(d.Name, func(t *testing.T) { f(t, d) })
	}
}

var placeholders = regexp.MustCompile(`\$\d`)

// spelled turns PostgreSQL's spelling of what GORM writes into that of the other databases.
func spelled(d dbtest.Database, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		if d.Engine != dbtest.EnginePostgres {
			l = strings.ReplaceAll(placeholders.ReplaceAllString(l, "?"), `"`, "`")
		}
		if d.Engine == dbtest.EngineSQLite {
			l = strings.ReplaceAll(l, "LIMIT ?", "LIMIT 1")
		}
		out[i] = l
	}
	return out
}

// Which of GORM's statements have the hint of the call that makes them.
func TestAScopesHintIsInTheStatementOfItsCallAndInNoOther(t *testing.T) {
	hint := cached("ttl=30s")
	var items []item
	calls := []struct {
		call string
		run  func(db *gorm.DB) error
		want []string
	}{
		{"Find", func(db *gorm.DB) error { return db.Scopes(hint).Find(&items).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ * FROM "items"`}},
		{"First by key", func(db *gorm.DB) error { return db.Scopes(hint).First(&item{}, 1).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."id" = $1 ORDER BY "items"."id" LIMIT $2`}},
		{"Take with a condition", func(db *gorm.DB) error { return db.Scopes(hint).Take(&item{}, "name = ?", "tea").Error },
			[]string{`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE name = $1 LIMIT $2`}},
		{"Select", func(db *gorm.DB) error { return db.Scopes(hint).Select("id", "price").Find(&items).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ "id","price" FROM "items"`}},
		{"Distinct", func(db *gorm.DB) error { return db.Scopes(hint).Distinct("name").Find(&items).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ DISTINCT "name" FROM "items"`}},
		{"Count", func(db *gorm.DB) error { return db.Model(&item{}).Scopes(hint).Count(new(int64)).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ count(*) FROM "items"`}},
		{"Count of Distinct", func(db *gorm.DB) error {
			return db.Model(&item{}).Scopes(hint).Distinct("name").Count(new(int64)).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ COUNT(DISTINCT("name")) FROM "items"`}},
		{"Pluck", func(db *gorm.DB) error { return db.Model(&item{}).Scopes(hint).Pluck("name", &[]string{}).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ "name" FROM "items"`}},
		{"Scan", func(db *gorm.DB) error {
			return db.Model(&item{}).Scopes(hint).Select("price").Scan(&[]int{}).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ "price" FROM "items"`}},
		{"Joins", func(db *gorm.DB) error {
			return db.Scopes(hint).Joins("JOIN reviews ON reviews.item_id = items.id").Find(&items).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ "items"."id","items"."name","items"."price" FROM "items" JOIN reviews ON reviews.item_id = items.id`}},
		{"Count of groups", func(db *gorm.DB) error {
			return db.Model(&item{}).Scopes(hint).Group("price").Count(new(int64)).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ count(*) FROM "items" GROUP BY "price"`}},
		{"Row and Rows", func(db *gorm.DB) error {
			err := db.Model(&item{}).Scopes(hint).Select("max(price)").Row().Scan(new(int))
			rows, rowsErr := db.Model(&item{}).Scopes(hint).Select("min(price)").Rows()
			if rowsErr == nil {
				rowsErr = rows.Close()
			}
			return errors.Join(err, rowsErr)
		}, []string{`miss SELECT /* @cache ttl=30s */ max(price) FROM "items"`, `miss SELECT /* @cache ttl=30s */ min(price) FROM "items"`}},
		{"a clause without a scope", func(db *gorm.DB) error {
			return db.Clauses(hints.Comment("select", "@cache ttl=30s")).Last(&item{}).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ * FROM "items" ORDER BY "items"."id" DESC LIMIT $1`}},
		{"a session keeps the hint for all that begins with it", func(db *gorm.DB) error {
			s := db.Clauses(hints.Comment("select", "@cache ttl=30s")).Session(&gorm.Session{})
			return errors.Join(s.Take(&item{}, 2).Error, s.Model(&item{}).Count(new(int64)).Error, s.FirstOrCreate(&item{}, item{Name: "tea"}).Error,
				s.Model(&item{ID: 2}).Update("price", 120).Error)
		}, []string{
			`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."id" = $1 LIMIT $2`,
			`miss SELECT /* @cache ttl=30s */ count(*) FROM "items"`,
			`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."name" = $1 ORDER BY "items"."id" LIMIT $2`,
			`begin`, `exec UPDATE "items" SET "price"=$1 WHERE "id" = $2`, `commit`,
		}},
		{"Raw", func(db *gorm.DB) error {
			return db.Raw("SELECT /* @cache ttl=30s */ price FROM items WHERE id = ?", 1).Scan(new(int)).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ price FROM items WHERE id = $1`}},
		{"FindInBatches: every batch", func(db *gorm.DB) error {
			return db.Scopes(hint).FindInBatches(&items, 1, func(*gorm.DB, int) error { return nil }).Error
		}, []string{
			`miss SELECT /* @cache ttl=30s */ * FROM "items" ORDER BY "items"."id" LIMIT $1`,
			`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."id" > $1 ORDER BY "items"."id" LIMIT $2`,
			`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."id" > $1 ORDER BY "items"."id" LIMIT $2`,
		}},
		{"Preload: not the preload", func(db *gorm.DB) error { return db.Scopes(hint).Preload("Reviews").Find(&items).Error }, []string{
			`miss SELECT /* @cache ttl=30s */ * FROM "items"`,
			`passthrough SELECT * FROM "reviews" WHERE "reviews"."item_id" IN ($1,$2)`,
		}},
		{"Preload with the scope", func(db *gorm.DB) error { return db.Preload("Reviews", hint).Find(&items).Error }, []string{
			`passthrough SELECT * FROM "items"`,
			`miss SELECT /* @cache ttl=30s */ * FROM "reviews" WHERE "reviews"."item_id" IN ($1,$2)`,
		}},
		{"Association", func(db *gorm.DB) error {
			return db.Model(&item{ID: 1}).Scopes(hint).Association("Reviews").Find(&[]review{})
		}, []string{`miss SELECT /* @cache ttl=30s */ * FROM "reviews" WHERE "reviews"."item_id" = $1`}},
		// A hint is of the statement, wherever in it it stands: the tables of both queries count.
		{"a subquery in a query with a hint", func(db *gorm.DB) error {
			return db.Scopes(hint).Find(&items, "id IN (?)", db.Model(&review{}).Select("item_id")).Error
		}, []string{`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE id IN (SELECT "item_id" FROM "reviews")`}},
		{"a subquery with a hint", func(db *gorm.DB) error {
			return db.Find(&items, "id IN (?)", db.Model(&review{}).Scopes(hint).Select("item_id")).Error
		}, []string{`miss SELECT * FROM "items" WHERE id IN (SELECT /* @cache ttl=30s */ "item_id" FROM "reviews")`}},
		{"FirstOrInit", func(db *gorm.DB) error { return db.Scopes(hint).FirstOrInit(&item{}, item{Name: "rum"}).Error },
			[]string{`miss SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."name" = $1 ORDER BY "items"."id" LIMIT $2`}},
		{"a transaction", func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error { return tx.Scopes(hint).Take(&item{}, 1).Error })
		}, []string{`begin`, `bypass(tx) SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."id" = $1 LIMIT $2`, `commit`}},
		{"without a hint nothing is: FirstOrCreate that finds", func(db *gorm.DB) error {
			return db.FirstOrCreate(&item{}, item{Name: "tea"}).Error
		}, []string{`passthrough SELECT * FROM "items" WHERE "items"."name" = $1 ORDER BY "items"."id" LIMIT $2`}},
		{"FirstOrCreate that creates", func(db *gorm.DB) error {
			return db.FirstOrCreate(&item{}, item{ID: 3, Name: "rum"}).Error
		}, []string{
			`passthrough SELECT * FROM "items" WHERE "items"."id" = $1 AND "items"."name" = $2 ORDER BY "items"."id" LIMIT $3`,
			`begin`, `passthrough INSERT INTO "items" ("name","price","id") VALUES ($1,$2,$3) RETURNING "id"`, `commit`,
		}},
		{"Save has no SELECT, and what it has takes no hint", func(db *gorm.DB) error {
			return db.Scopes(hint).Save(&item{ID: 1, Name: "tea", Price: 400}).Error
		}, []string{`begin`, `exec UPDATE "items" SET "name"=$1,"price"=$2 WHERE "id" = $3`, `commit`}},
		{"Save of what is not there", func(db *gorm.DB) error {
			return db.Scopes(hint).Omit(clause.Associations).Save(&item{ID: 4, Name: "gin"}).Error
		}, nil}, // below, since the databases differ in it
	}
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, bed := on(t, d, sqlherd.Config{}, gorm.Config{})
		for _, c := range calls {
			must(t, bed.Herd.InvalidateAll(t.Context()))
			if err := c.run(db); err != nil {
				t.Error(c.call, err)
			}
			if c.want != nil {
				bed.Log.Want(t, c.call, spelled(d, c.want)...)
			} else if got := bed.Log.Outcomes(); got != "begin exec commit begin passthrough commit" {
				t.Error(c.call, got)
			}
		}
	})
}

func TestALockingReadIsNotCached(t *testing.T) {
	db, bed := on(t, dbtest.PGX(t), sqlherd.Config{}, gorm.Config{})
	must(t, db.Scopes(cached("ttl=30s")).Clauses(clause.Locking{Strength: "UPDATE"}).Take(&item{}, 1).Error)
	bed.Log.Want(t, "Locking", `bypass(locking) SELECT /* @cache ttl=30s */ * FROM "items" WHERE "items"."id" = $1 LIMIT $2 FOR UPDATE`)
}

// A FirstOrCreate whose SELECT is cached decides by what was there a while ago.
func TestFirstOrCreateWithAHintCreatesWhatAnotherProgramHasJustCreated(t *testing.T) {
	d := dbtest.PGX(t)
	db, _ := on(t, d, sqlherd.Config{}, gorm.Config{})
	rum := item{ID: 3, Name: "rum"}
	if err := db.Scopes(cached("ttl=30s")).Take(&item{}, &rum).Error; !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Fatal(err)
	}
	// The same SELECT: what FirstOrCreate begins with.
	if err := db.Scopes(cached("ttl=30s")).First(&item{}, &rum).Error; !errors.Is(err, gorm.ErrRecordNotFound) {
		t.Fatal(err)
	}
	d.Exec(t, `INSERT INTO items (id, name) VALUES (3, 'rum')`)
	if err := db.Scopes(cached("ttl=30s")).FirstOrCreate(&item{}, &rum).Error; !errors.Is(err, gorm.ErrDuplicatedKey) {
		t.Error("with the hint:", err)
	}
	var found item
	must(t, db.FirstOrCreate(&found, &rum).Error)
	if found.ID != 3 {
		t.Error("without: ", found)
	}
}

// GORM numbers its own arguments; the hint needs none of ? @ : $ to say which one it means.
func TestATagTakesTheArgumentThatItsStatementHasAtThatPlace(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, bed := on(t, d, sqlherd.Config{}, gorm.Config{})
		reads := map[string]func(id int64) error{
			"First": func(id int64) error {
				return db.Scopes(cached("ttl=30s tags=item/{1} tables=none")).First(&item{}, id).Error
			},
			"Raw": func(id int64) error {
				return db.Raw("SELECT /* @cache ttl=30s tags=item/{1} tables=none */ * FROM items WHERE id = ?", id).Scan(&item{}).Error
			},
			"Raw, by name": func(id int64) error {
				return db.Raw("SELECT /* @cache ttl=30s tags=item/{1} tables=none */ * FROM items WHERE id = @id AND 1 = 1", sql.Named("id", id)).Scan(&item{}).Error
			},
		}
		for name, read := range reads {
			must(t, errors.Join(read(1), read(2)))
			bed.Log.Take()
			must(t, bed.Herd.Invalidate(t.Context(), "item/1"))
			must(t, errors.Join(read(1), read(2)))
			if got := bed.Log.Outcomes(); got != "miss hit" {
				t.Errorf("%s: %s", name, got)
			}
			// An UPDATE that names the tag, and would forget the table's results besides if these did not say tables=none.
			must(t, db.Clauses(hints.Comment("update", "@invalidate tags=item/{2}")).Model(&item{ID: 2}).Update("price", 5).Error)
			bed.Log.Take()
			must(t, errors.Join(read(1), read(2)))
			if got := bed.Log.Outcomes(); got != "hit miss" {
				t.Errorf("%s, after the UPDATE: %s", name, got)
			}
		}
	})
}

func TestNoOptionOfAHintIsTakenForAnArgument(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		d.Exec(t, "CREATE TABLE herd_products (id bigint PRIMARY KEY, price int)", "INSERT INTO herd_products VALUES (7, 350)")
		db, bed := bare(t, d, sqlherd.Config{}, gorm.Config{})
		bed.Log.Take() // GORM has asked for the version
		without := over(t, d, d.Open(t), gorm.Config{})
		raw := func(db *gorm.DB, query string, arg any) func() (int, error) {
			return func() (n int, err error) { err = db.Raw(query, arg).Row().Scan(&n); return n, err }
		}
		scoped := func(db *gorm.DB) func() (int, error) {
			full := strings.TrimSuffix(strings.TrimPrefix(ormtest.FullHint, "/* "), " */")
			return func() (n int, err error) {
				var all []int
				err = db.Table("herd_products").Clauses(hints.Comment("select", full)).Where("id = ? AND price > ?", 7, 1).Pluck("price", &all).Error
				return append(all, -1)[0], err
			}
		}
		sent := func(s string) string { return spelled(d, []string{s})[0] }
		const full = " SELECT " + ormtest.FullHint
		query := "SELECT " + ormtest.FullHint + " price FROM herd_products WHERE id = "
		first := sent(query + "$1")
		bed.SameAsBare(t, "Raw", raw(without, query+"?", 7), raw(db, query+"?", 7), "miss "+first, "hit "+first)
		bed.SameAsBare(t, "Raw, by name", raw(without, query+"@id", sql.Named("id", 7)), raw(db, query+"@id", sql.Named("id", 7)), "hit "+first, "hit "+first)
		second := sent(full + ` "price" FROM "herd_products" WHERE id = $1 AND price > $2`)
		bed.SameAsBare(t, "a clause", scoped(without), scoped(db), "miss"+second, "hit"+second)

		// GORM takes a ? for an argument wherever it stands, and an @id where the arguments have names. What is sent then
		// has another number of them, or half a tag under which nothing is cached.
		postgres := d.Engine == dbtest.EnginePostgres
		for _, c := range []struct {
			tag     string
			arg     any
			outcome string
			sent    string // on PostgreSQL
		}{
			{"user?id", 7, "bypass(hint)", "user$1id */ price FROM herd_products WHERE id = ?"},
			{"user$1", 7, "bypass(hint)", "user$1 */ price FROM herd_products WHERE id = $1"},
			{"user:id", 7, "miss", "user:id */ price FROM herd_products WHERE id = $1"},
			{"user@id", 7, "miss", "user@id */ price FROM herd_products WHERE id = $1"},
			{"user@id", sql.Named("id", 7), "bypass(hint)", "user$1 */ price FROM herd_products WHERE id = $2"},
		} {
			placeholder := "?"
			if _, named := c.arg.(sql.NamedArg); named {
				placeholder = "@id"
			}
			query := "SELECT /* @cache ttl=30s tags=" + c.tag + " */ price FROM herd_products WHERE id = " + placeholder
			text := "SELECT /* @cache ttl=30s tags=" + c.sent
			if !postgres {
				text = strings.ReplaceAll(strings.ReplaceAll(text, "$1id", "?id"), "= $", "= ?$")
				text = strings.NewReplacer("= ?$1", "= ?", "= ?$2", "= ?").Replace(text)
				if placeholder == "@id" {
					text = strings.Replace(text, "user$1", "user?", 1)
				}
			}
			lines := []string{c.outcome + " " + text, strings.Replace(c.outcome, "miss", "hit", 1) + " " + text}
			bed.SameAsBare(t, c.tag, raw(without, query, c.arg), raw(db, query, c.arg), lines...)
		}
	})
}

func TestEveryWriteThroughGORMIsSeenByTheNextRead(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, bed := on(t, d, sqlherd.Config{}, gorm.Config{})
		count := func(want int64, outcome string) {
			t.Helper()
			var n int64
			must(t, db.Model(&item{}).Scopes(cached("ttl=30s")).Where("price > ?", 0).Count(&n).Error)
			if got := bed.Log.Outcomes(); n != want || got != outcome {
				t.Errorf("%d (%s), want %d (%s)", n, got, want, outcome)
			}
		}
		count(2, "miss")
		for _, w := range []struct {
			name  string
			write func() error
			items int64
		}{
			{"Create", func() error { return db.Create(&item{ID: 3, Name: "rum", Price: 1}).Error }, 3},
			{"Save", func() error { return db.Save(&item{ID: 3, Name: "rum", Price: 0}).Error }, 2},
			{"Save of a new one", func() error { return db.Save(&item{ID: 4, Name: "gin", Price: 1}).Error }, 3},
			{"Update", func() error { return db.Model(&item{ID: 3}).Update("price", 5).Error }, 4},
			{"Updates", func() error { return db.Model(&item{ID: 3}).Updates(map[string]any{"price": 0}).Error }, 3},
			{"UpdateColumn", func() error { return db.Model(&item{ID: 3}).UpdateColumn("price", 7).Error }, 4},
			{"upsert", func() error {
				return db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&item{ID: 3, Name: "rum", Price: 0}).Error
			}, 3},
			{"Delete", func() error { return db.Delete(&item{}, 4).Error }, 2},
			{"Exec", func() error { return db.Exec("UPDATE items SET price = ? WHERE id = ?", 9, 3).Error }, 3},
			{"CreateInBatches", func() error {
				return db.CreateInBatches([]item{{ID: 5, Name: "a", Price: 1}, {ID: 6, Name: "b", Price: 1}}, 1).Error
			}, 5},
			{"without GORM's own transaction", func() error {
				return db.Session(&gorm.Session{SkipDefaultTransaction: true}).Delete(&item{}, []int{5, 6}).Error
			}, 3},
			{"Transaction", func() error {
				return db.Transaction(func(tx *gorm.DB) error {
					return errors.Join(tx.Delete(&item{}, 3).Error, tx.Transaction(func(in *gorm.DB) error { // a savepoint
						return in.Create(&item{ID: 7, Name: "c", Price: 1}).Error
					}))
				})
			}, 3},
		} {
			count(count1(t, d), "hit")
			must(t, w.write())
			bed.Log.Take()
			t.Log(w.name)
			count(w.items, "miss")
		}
		// What is rolled back costs nothing.
		undo := errors.New("undo")
		if err := db.Transaction(func(tx *gorm.DB) error {
			must(t, tx.Delete(&item{}, 2).Error)
			return undo
		}); err != undo {
			t.Error(err)
		}
		bed.Log.Take()
		count(3, "hit")
	})
}

// count1 asks the database itself.
func count1(t *testing.T, d dbtest.Database) (n int64) {
	t.Helper()
	must(t, d.Open(t).QueryRow("SELECT count(*) FROM items WHERE price > 0").Scan(&n))
	return n
}

func TestMigrationsAreNotCachedAndTheirChangesAreSeen(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		if d.Name == "pgx" {
			// As it comes, pgx keeps the plan of SELECT * on a connection, and the server refuses it once after the
			// ALTER TABLE, on the bare driver as well.
			d = d.WithParams("default_query_exec_mode=exec")
		}
		db, bed := on(t, d, sqlherd.Config{}, gorm.Config{})
		var rows []map[string]any
		read := func() { must(t, db.Table("items").Scopes(cached("ttl=30s")).Find(&rows).Error) }
		read()
		bed.Log.Take()

		// Even where a context asks for all to be cached.
		ctx := sqlherd.WithPolicy(t.Context(), sqlherd.Policy{TTL: time.Minute})
		type item struct { // as the next release has it
			ID    int64
			Name  string `gorm:"unique;size:100"`
			Price int
			Stock int `gorm:"default:3"`
		}
		must(t, db.WithContext(ctx).AutoMigrate(&item{}))
		altered := false
		for _, l := range bed.Log.Take() {
			altered = altered || strings.Contains(l, "ALTER TABLE")
			if strings.HasPrefix(l, "hit") {
				t.Error("the migration was answered from the cache:", l)
			}
		}
		if !altered {
			t.Error("no ALTER TABLE was seen")
		}
		rows = nil
		read()
		if got := bed.Log.Outcomes(); got != "miss" || len(rows) != 2 || rows[0]["stock"] == nil {
			t.Errorf("after the migration: %s %v", got, rows)
		}
		// A second run finds everything as it is, by looking.
		must(t, db.WithContext(ctx).AutoMigrate(&item{}))
		for _, l := range bed.Log.Take() {
			if strings.HasPrefix(l, "exec") && !strings.Contains(l, "ALTER TABLE") || strings.Contains(l, "ADD") {
				t.Error("the second migration changed something:", l)
			}
		}
		must(t, db.Migrator().DropTable("reviews", "items"))
		if err := db.Table("items").Scopes(cached("ttl=30s")).Find(&rows).Error; err == nil {
			t.Error("rows of a dropped table")
		}
	})
}

func TestErrorsKeepTheTypeThatGORMTranslates(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, bed := on(t, d, sqlherd.Config{}, gorm.Config{})
		if err := db.Create(&item{ID: 1, Name: "other"}).Error; !errors.Is(err, gorm.ErrDuplicatedKey) {
			t.Errorf("a second key 1: %T %v", err, err)
		}
		if d.Engine != dbtest.EngineSQLite { // which looks at foreign keys when asked to
			if err := db.Create(&review{ID: 50, ItemID: 99}).Error; !errors.Is(err, gorm.ErrForeignKeyViolated) {
				t.Errorf("a review of nothing: %T %v", err, err)
			}
		}
		bed.Log.Take()
		for _, outcome := range []string{"miss", "hit"} {
			err := db.Scopes(cached("ttl=30s")).First(&item{}, 99).Error
			if got := bed.Log.Outcomes(); err != gorm.ErrRecordNotFound || got != outcome {
				t.Errorf("%v (%s), want %v (%s)", err, got, gorm.ErrRecordNotFound, outcome)
			}
		}
		// The driver's own type, of a statement that is cached, without errors.As.
		err := db.Raw("SELECT /* @cache ttl=30s */ nothing FROM items").Scan(&[]item{}).Error
		ok := false
		switch d.Name {
		case "pgx":
			var e *pgconn.PgError
			ok = errors.As(err, &e) && e.Code == "42703"
		case "pq":
			var e *pq.Error
			ok = errors.As(err, &e) && e.Code == "42703"
		case "mariadb":
			_, ok = err.(*gomysql.MySQLError)
		case "sqlite-cgo":
			ok = isSQLiteError(err)
		}
		if !ok {
			t.Errorf("%T %v", err, err)
		}
	})
}

func TestAContextsPolicyHoldsForEverythingThatIsReadUnderIt(t *testing.T) {
	db, bed := on(t, dbtest.PGX(t), sqlherd.Config{}, gorm.Config{})
	db = db.WithContext(sqlherd.WithPolicy(t.Context(), sqlherd.Policy{TTL: time.Minute}))
	var items []item
	must(t, db.Preload("Reviews").Find(&items).Error)
	must(t, db.Preload("Reviews").Find(&items).Error)
	if len(items) != 2 || len(items[0].Reviews) != 1 {
		t.Errorf("%+v", items)
	}
	bed.Log.Want(t, "Preload twice",
		`miss SELECT * FROM "items"`, `miss SELECT * FROM "reviews" WHERE "reviews"."item_id" IN ($1,$2)`,
		`hit SELECT * FROM "items"`, `hit SELECT * FROM "reviews" WHERE "reviews"."item_id" IN ($1,$2)`)
	must(t, db.Create(&item{ID: 3, Name: "rum"}).Error)
	bed.Log.Want(t, "a write under it", `begin`,
		`bypass(write) INSERT INTO "items" ("name","price","id") VALUES ($1,$2,$3) RETURNING "id"`, `commit`)
	must(t, db.WithContext(sqlherd.Bypass(db.Statement.Context)).Find(&items).Error)
	if len(items) != 3 {
		t.Errorf("%+v", items)
	}
	bed.Log.Want(t, "Bypass", `bypass(off) SELECT * FROM "items"`)
}

// With PrepareStmt GORM keeps every statement prepared, in its own way.
func TestPreparedStatementsOfGORMAreCachedAndSeeWrites(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d dbtest.Database) {
		db, bed := on(t, d, sqlherd.Config{}, gorm.Config{PrepareStmt: true})
		read := func() (it item) {
			must(t, db.Scopes(cached("ttl=30s tags=item/{1}")).First(&it, 1).Error)
			return it
		}
		read()
		read()
		must(t, db.Model(&item{ID: 1}).Update("price", 400).Error)
		if it := read(); it.Price != 400 {
			t.Error(it)
		}
		must(t, db.Transaction(func(tx *gorm.DB) error {
			return errors.Join(tx.Model(&item{ID: 1}).Update("price", 500).Error, tx.Scopes(cached("ttl=30s tags=item/{1}")).First(&item{}, 1).Error)
		}))
		if it := read(); it.Price != 500 {
			t.Error(it)
		}
		if got := bed.Log.Outcomes(); got != "miss hit begin exec commit miss begin exec bypass(tx) commit miss" {
			t.Error(got)
		}
		pool, err := db.DB()
		must(t, err)
		must(t, pool.Close())
	})
}

// A rule needs no change of the queries, but cannot know which call made them.
func TestARuleCachesWhatGORMReadsOfATable(t *testing.T) {
	db, bed := on(t, dbtest.PQ(t), sqlherd.Config{Rules: []sqlherd.Rule{{Tables: []string{"reviews"}}}}, gorm.Config{})
	var items []item
	must(t, db.Preload("Reviews").Find(&items).Error)
	must(t, db.Preload("Reviews").Find(&items).Error)
	if got := bed.Log.Outcomes(); got != "passthrough miss passthrough hit" {
		t.Error(got)
	}
}

func TestACancelledCallIsCancelledInTheCacheAsWell(t *testing.T) {
	db, _ := on(t, dbtest.PGX(t), sqlherd.Config{}, gorm.Config{})
	must(t, db.Scopes(cached("ttl=30s")).First(&item{}, 1).Error)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.WithContext(ctx).Scopes(cached("ttl=30s")).First(&item{}, 1).Error; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
