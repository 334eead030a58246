//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// superuser is the name of the databases' administrator, database the name of
// the one made for the run.
const (
	superuser = "sqlherd"
	database  = "sqlherd_test"
)

func (f *fleet) postgres() error {
	acct, err := accountOf("postgres", "nobody")
	if err != nil {
		return err
	}
	initdb, err := find("initdb")
	if err != nil {
		return err
	}
	// The rest of the same version: initdb in the PATH may be a link.
	if path, err := filepath.EvalSymlinks(initdb); err == nil {
		initdb = path
	}
	bin := filepath.Dir(initdb)
	dir, err := f.subdir("postgres", acct)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")

	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(f.password), 0o600); err != nil {
		return err
	}
	if acct != nil {
		if err := os.Chown(secret, int(acct.uid), int(acct.gid)); err != nil {
			return err
		}
	}
	if err := f.do(acct, dir, initdb, "-D", data, "-U", superuser, "--pwfile="+secret,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"); err != nil {
		return err
	}

	port, err := f.startServer("postgres", acct, dir, filepath.Join(bin, "postgres"),
		func(port int) []string {
			args := []string{"-D", data, "-p", strconv.Itoa(port), "-k", dir}
			for _, setting := range []string{
				"listen_addresses=127.0.0.1", "max_connections=300", "timezone=UTC", "jit=off",
				"shared_buffers=64MB", "fsync=off", "synchronous_commit=off", "full_page_writes=off",
			} {
				args = append(args, "-c", setting)
			}
			return args
		},
		func(port int) error {
			return f.do(nil, f.dir, filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(port))
		})
	if err != nil {
		return err
	}
	url := func(database string) string {
		return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", superuser, f.password, port, database)
	}
	if err := f.do(nil, f.dir, filepath.Join(bin, "psql"), "-X", "-q", "-d", url("postgres"), "-c", "CREATE DATABASE "+database); err != nil {
		return err
	}
	f.setenv("SQLHERD_TEST_POSTGRES", url(database))
	return nil
}
