//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strconv"
)

func (f *fleet) mariadb() error {
	acct, err := accountOf("mysql", "nobody")
	if err != nil {
		return err
	}
	mariadbd, err := find("mariadbd")
	if err != nil {
		return err
	}
	install, err := find("mariadb-install-db")
	if err != nil {
		return err
	}
	client, err := find("mariadb")
	if err != nil {
		return err
	}
	dir, err := f.subdir("mariadb", acct)
	if err != nil {
		return err
	}
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")

	if err := f.do(acct, dir, install, "--no-defaults", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"); err != nil {
		return err
	}
	sql := func(statement string) error {
		return f.do(acct, dir, client, "--no-defaults", "--user=root", "--socket="+socket, "--execute="+statement)
	}
	port, err := f.startServer("mariadb", acct, dir, mariadbd,
		func(port int) []string {
			return []string{
				"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--pid-file=" + filepath.Join(dir, "pid"),
				"--tmpdir=" + dir, "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
				"--skip-name-resolve", "--skip-log-bin", "--max-connections=300", "--default-time-zone=+00:00",
				"--character-set-server=utf8mb4", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M",
				"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-use-native-aio=0",
			}
		},
		func(int) error { return sql("SELECT 1") })
	if err != nil {
		return err
	}
	if err := sql(fmt.Sprintf("CREATE DATABASE %[1]s; CREATE USER '%[2]s'@'%%' IDENTIFIED BY '%[3]s'; GRANT ALL ON *.* TO '%[2]s'@'%%' WITH GRANT OPTION",
		database, superuser, f.password)); err != nil {
		return err
	}
	f.setenv("SQLHERD_TEST_MYSQL", fmt.Sprintf("%s:%s@tcp(127.0.0.1:%d)/%s", superuser, f.password, port, database))
	return nil
}
