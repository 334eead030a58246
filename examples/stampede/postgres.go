package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

//go:embed postgres_setup.sql
var postgresSetup string

//go:embed postgres_peak.sql
var postgresPeak string

// A postgresDatabase is a schema of its own at a PostgreSQL server, which counts queries and
// connections itself.
type postgresDatabase struct {
	dsn    string
	host   string
	schema string // and the workers' application_name
	load   time.Duration
	admin  *sql.DB

	sampler *connSampler // of the count that runs
}

func openPostgres(ctx context.Context, dsn string, load time.Duration) (_ database, err error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	p := &postgresDatabase{
		dsn:    dsn,
		host:   fmt.Sprintf("%s:%d", cfg.Host, cfg.Port),
		schema: objectName(),
		load:   load,
		admin:  sql.OpenDB(stdlib.GetConnector(*cfg)),
	}
	defer func() {
		if err != nil {
			_ = p.close() // the error that brought us here is the one to tell
		}
	}()
	if err := p.admin.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("-dsn: %w", err)
	}
	// Without arguments pgx sends several statements at once.
	if _, err := p.admin.ExecContext(ctx, p.in(postgresSetup)); err != nil {
		return nil, fmt.Errorf("-dsn: a schema, two tables, a sequence and a function have to be created: %w", err)
	}
	_, err = p.admin.ExecContext(ctx, p.in(`INSERT INTO SCHEMA.product VALUES ($1, $2)`), productID, productName)
	return p, err
}

// in puts the name of the schema into a statement.
func (p *postgresDatabase) in(statement string) string {
	return strings.NewReplacer("SCHEMA NAME", "SCHEMA "+p.schema, "SCHEMA.", p.schema+".").Replace(statement)
}

func (p *postgresDatabase) String() string { return "PostgreSQL at " + p.host + " (pgx)" }

func (p *postgresDatabase) query(comment string) string {
	return p.in(fmt.Sprintf(`SELECT %s p.id, p.name, SCHEMA.slow(%d) FROM SCHEMA.product p WHERE p.id = $1`,
		comment, p.load.Milliseconds()))
}

func (p *postgresDatabase) source(int) source {
	return source{Driver: "postgres", DSN: p.dsn, App: p.schema}
}

func postgresConnector(s source) (driver.Connector, error) {
	cfg, err := pgx.ParseConfig(s.DSN)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = s.App
	return stdlib.GetConnector(*cfg), nil
}

func (p *postgresDatabase) reset(ctx context.Context) error {
	if _, err := p.admin.ExecContext(ctx, p.in(`TRUNCATE SCHEMA.answered; ALTER SEQUENCE SCHEMA.queries RESTART`)); err != nil {
		return err
	}
	p.sampler = startSampler(p.admin, p.schema)
	return nil
}

// tally asks the server. Its peak comes from two sides, since neither alone can be trusted: the
// lives of all connections that have answered a query, from the server's own times, and
// looks at pg_stat_activity, which also see idle connections but miss short ones.
func (p *postgresDatabase) tally(ctx context.Context, _ []ledger) (c count, err error) {
	sampled := p.sampler.stop()
	row := p.admin.QueryRowContext(ctx, p.in(postgresPeak))
	err = row.Scan(&c.queries, &c.connsPeak)
	c.connsPeak = max(c.connsPeak, sampled)
	return c, err
}

func (p *postgresDatabase) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	if p.sampler != nil {
		p.sampler.stop()
	}
	_, err := p.admin.ExecContext(ctx, `DROP SCHEMA IF EXISTS `+p.schema+` CASCADE`)
	if err != nil {
		err = fmt.Errorf("schema %s could not be dropped: %w", p.schema, err)
	}
	return errors.Join(err, p.admin.Close())
}

// A connSampler looks at the server's list of connections now and then.
type connSampler struct {
	cancel context.CancelFunc
	ended  chan struct{}
	peak   int // to be read when ended is closed
}

// samplePause is long enough for the looks themselves not to count.
const samplePause = 25 * time.Millisecond

func startSampler(db *sql.DB, app string) *connSampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &connSampler{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		tick := time.NewTicker(samplePause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var n int
			err := db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, app).Scan(&n)
			if err == nil { // else it is a look less
				s.peak = max(s.peak, n)
			}
		}
	}()
	return s
}

func (s *connSampler) stop() (peak int) {
	s.cancel()
	<-s.ended
	return s.peak
}
