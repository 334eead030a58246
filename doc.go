// Package sqlherd caches annotated queries beneath database/sql and survives
// the moment a hot result expires.
//
// An application changes its driver name and puts a comment on the reads that
// it wants cached. The wrapped driver hashes the query and its arguments into a
// key, answers from memory or Redis, lets one caller in the whole fleet load
// what is missing, serves stale rows while it refreshes them, and forgets
// results when a write commits.
//
//	herd, err := sqlherd.New(sqlherd.Config{Redis: rdb})
//	sql.Register("postgres-herd", herd.Driver(&pq.Driver{}))
//	db, err := sql.Open("postgres-herd", dsn)
//	db.QueryRow(`SELECT /* @cache ttl=30s swr=5m */ name FROM products WHERE id = $1`, 7)
//
// A statement without a policy behaves as on the bare driver. The rows of a hit
// cannot be told from the rows of a miss. The README says what happens when a part
// fails, docs/reasons.md why a query was not cached, docs/design.md how it works.
package sqlherd
