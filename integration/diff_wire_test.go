package integration_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlherd/sqlherd"
	"github.com/sqlherd/sqlherd/integration/dbtest"
)

// A tap stands between a driver and its server and writes down what the driver sends.
type tap struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	sent   [][]byte // one piece for each time that the driver sent after the server did: a round trip
	answer bool     // the server has spoken since
}

// tapped returns d as seen through a tap.
func tapped(t *testing.T, d dbtest.Database) (dbtest.Database, *tap) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{listener: listener}
	addr := listener.Addr().String()
	switch d.Engine {
	case dbtest.EnginePostgres:
		u, err := url.Parse(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		p.target, u.Host = u.Host, addr
		d.DSN = u.String()
	case dbtest.EngineMariaDB:
		cfg, err := mysql.ParseDSN(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		p.target = cfg.Addr
		d.DSN = strings.Replace(d.DSN, "("+cfg.Addr+")", "("+addr+")", 1)
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return d, p
}

func (p *tap) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(server, client, p.fromClient) })
		p.wg.Go(func() { p.copy(client, server, p.fromServer) })
	}
}

func (p *tap) copy(dst, src net.Conn, saw func([]byte)) {
	defer dst.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			saw(buf[:n])
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *tap) fromClient(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer || len(p.sent) == 0 {
		p.sent, p.answer = append(p.sent, nil), false
	}
	last := len(p.sent) - 1
	p.sent[last] = append(p.sent[last], b...)
}

func (p *tap) fromServer([]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = true
}

// taken returns what was sent since the last call.
func (p *tap) taken() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent = nil
	return sent
}

// wireOps is what an application sends, with answers that take more than one statement, direct, prepared and in transactions.
func wireOps(e dbtest.Engine) map[string]func(ctx context.Context, c *sql.Conn, hint string) error {
	p1 := placeholder(e, 1)
	read := func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return rows.Close()
	}
	return map[string]func(context.Context, *sql.Conn, string) error{
		"a query": func(ctx context.Context, c *sql.Conn, hint string) error {
			return read(c.QueryContext(ctx, "SELECT "+hint+" id, v FROM items ORDER BY id"))
		},
		"a query with an argument": func(ctx context.Context, c *sql.Conn, hint string) error {
			return read(c.QueryContext(ctx, "SELECT "+hint+" v FROM items WHERE id = "+p1, 1))
		},
		"a row": func(ctx context.Context, c *sql.Conn, hint string) error {
			var v string
			return c.QueryRowContext(ctx, "SELECT "+hint+" v FROM items WHERE id > "+p1, 1).Scan(&v)
		},
		"a prepared query, twice": func(ctx context.Context, c *sql.Conn, hint string) error {
			st, err := c.PrepareContext(ctx, "SELECT "+hint+" v FROM items WHERE id < "+p1)
			if err != nil {
				return err
			}
			for _, id := range []int{2, 3} {
				if err := read(st.QueryContext(ctx, id)); err != nil {
					return err
				}
			}
			return st.Close()
		},
		"writes": func(ctx context.Context, c *sql.Conn, _ string) error {
			if _, err := c.ExecContext(ctx, "UPDATE items SET v = 'two' WHERE id = 2"); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "UPDATE items SET v = 'two' WHERE id = "+p1, 2)
			return err
		},
		"a transaction": func(ctx context.Context, c *sql.Conn, hint string) error {
			tx, err := c.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				return err
			}
			if err := read(tx.QueryContext(ctx, "SELECT "+hint+" v FROM items WHERE id = "+p1, 3)); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE items SET v = 'three' WHERE id = 3"); err != nil {
				return err
			}
			return tx.Commit()
		},
		"a mistake": func(ctx context.Context, c *sql.Conn, hint string) error {
			if err := read(c.QueryContext(ctx, "SELECT "+hint+" nothing FROM items")); err == nil {
				return io.EOF
			}
			return nil
		},
	}
}

// withoutIDs is what go-sql-driver/mysql sent, without the numbers of statements: the server counts on when it prepares one again
// by itself.
func withoutIDs(sent []byte) []byte {
	for p := sent; len(p) > 4; {
		n := int(p[0]) | int(p[1])<<8 | int(p[2])<<16
		body := p[4:min(4+n, len(p))]
		if len(body) >= 5 && (body[0] == 0x17 || body[0] == 0x19) { // execute, close
			copy(body[1:5], "\x00\x00\x00\x00")
		}
		p = p[4+len(body):]
	}
	return sent
}

// withoutCloses leaves out the ends of statements. They are not answered, so that those of the loads before, on the loader's
// connection, may arrive at any time.
func withoutCloses(sent []byte) (rest []byte) {
	for p := sent; len(p) > 4; {
		n := min(4+(int(p[0])|int(p[1])<<8|int(p[2])<<16), len(p))
		if p[4] != 0x19 {
			rest = append(rest, p[:n]...)
		}
		p = p[n:]
	}
	return rest
}

// sends runs op on a connection of db and returns what went to the server, without what connecting takes, and with a ping at the end:
// a statement may be closed without an answer.
func sends(t *testing.T, db *sql.DB, p *tap, op func(context.Context, *sql.Conn, string) error, hint string) [][]byte {
	t.Helper()
	ctx := withDeadline(t)
	c, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.PingContext(ctx); err != nil {
		t.Fatal(err)
	}
	// pgx keeps what it has prepared for as long as the connection lives: once to warm it up.
	if err := op(ctx, c, hint); err != nil {
		t.Fatal(err)
	}
	if err := c.PingContext(ctx); err != nil {
		t.Fatal(err)
	}
	p.taken()
	if err := op(ctx, c, hint); err != nil {
		t.Fatal(err)
	}
	if err := c.PingContext(ctx); err != nil {
		t.Fatal(err)
	}
	return p.taken()
}

func size(sent [][]byte) string {
	return fmt.Sprintf("%d bytes in %d round trips", len(bytes.Join(sent, nil)), len(sent))
}

func TestTheServerIsSentTheSameBytesInAsManyRoundTripsAndNoneForAHit(t *testing.T) {
	type wire struct {
		name string
		open func(testing.TB) dbtest.Database
		with []string
	}
	for _, w := range []wire{
		{"pq", dbtest.PQ, nil}, {"pq, binary parameters", dbtest.PQ, []string{"binary_parameters=yes"}},
		{"pgx", dbtest.PGX, nil},
		{"pgx, cache_describe", dbtest.PGX, []string{"default_query_exec_mode=cache_describe"}},
		{"pgx, describe_exec", dbtest.PGX, []string{"default_query_exec_mode=describe_exec"}},
		{"pgx, exec", dbtest.PGX, []string{"default_query_exec_mode=exec"}},
		{"pgx, simple_protocol", dbtest.PGX, []string{"default_query_exec_mode=simple_protocol"}},
		{"mariadb", dbtest.MariaDB, nil}, {"mariadb, interpolateParams", dbtest.MariaDB, []string{"interpolateParams=true"}},
	} {
		t.Run(w.name, func(t *testing.T) {
			b := newBed(t, w.open(t))
			d, p := tapped(t, b.WithParams(w.with...))
			nothing := func(context.Context, *sql.Conn, string) error { return nil }
			ping := bytes.Join(sends(t, dbtest.OpenDB(t, d.Connector(t)), p, nothing, ""), nil)
			joined := func(sent [][]byte) []byte {
				all := bytes.Join(sent, nil)
				if d.Engine == dbtest.EngineMariaDB {
					all = withoutIDs(all)
				}
				return all
			}
			for name, op := range wireOps(d.Engine) {
				bare := dbtest.OpenDB(t, d.Connector(t))
				wrapped, h := openHerd(t, d, sqlherd.Config{})
				want, got := sends(t, bare, p, op, ""), sends(t, wrapped, p, op, "")
				if !bytes.Equal(joined(got), joined(want)) || len(got) != len(want) || len(want) < 2 {
					t.Errorf("%s: %s, the bare driver %s\n%q\n%q", name, size(got), size(want), got, want)
				}
				if name == "writes" || name == "a transaction" || name == "a mistake" {
					continue
				}
				before := h.Stats().Dials
				got = sends(t, wrapped, p, op, "/* @cache ttl=10m */")
				hits := bytes.Join(got, nil)
				if d.Engine == dbtest.EngineMariaDB {
					hits = withoutCloses(hits)
				}
				if len(hits) != len(ping) {
					t.Errorf("%s: a hit sent %s, want no more than a ping: %q", name, size(got), got)
				}
				if n := h.Stats().Dials - before; n != 0 {
					t.Errorf("%s: hits dialed %d times", name, n) // Ping found the connection of before
				}
			}
		})
	}
}
