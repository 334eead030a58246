// Package sqlmock_test shows unit tests with go-sqlmock beneath sqlherd: of code whose statements have hints,
// and whose caching is part of what is tested.
package sqlmock_test

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/sqlherd/sqlherd"
)

// open puts a Herd on a mocked database. Its Dialect has to be named: that of a mock cannot be told.
func open(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	mocked, mock, err := sqlmock.NewWithDSN(t.Name(), sqlmock.QueryMatcherOption(sqlmock.QueryMatcherEqual))
	if err != nil {
		t.Fatal(err)
	}
	herd, err := sqlherd.New(sqlherd.Config{Dialect: sqlherd.PostgreSQL})
	if err != nil {
		t.Fatal(err)
	}
	connector, err := herd.Driver(mocked.Driver()).(driver.DriverContext).OpenConnector(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		db.Close()
		herd.Close()
		mocked.Close()
	})
	return db, mock
}

func TestTheSecondReadAsksNoDatabase(t *testing.T) {
	db, mock := open(t)
	const query = `SELECT /* @cache ttl=30s */ price FROM products WHERE id = $1`
	// Once: what comes from the cache does not reach the mock. The hint does, with the text.
	mock.ExpectQuery(query).WithArgs(7).WillReturnRows(sqlmock.NewRows([]string{"price"}).AddRow(350))
	mock.ExpectExec(`UPDATE products SET price = $1 WHERE id = $2`).WithArgs(400, 7).WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectQuery(query).WithArgs(7).WillReturnRows(sqlmock.NewRows([]string{"price"}).AddRow(400))

	read := func(want int) {
		t.Helper()
		var price int
		if err := db.QueryRow(query, 7).Scan(&price); err != nil || price != want {
			t.Errorf("%d, %v; want %d", price, err, want)
		}
	}
	read(350)
	read(350)
	if _, err := db.Exec(`UPDATE products SET price = $1 WHERE id = $2`, 400, 7); err != nil {
		t.Fatal(err)
	}
	read(400)
	read(400)
}

// A test of the code alone, in which each read is to reach the mock, switches the cache off.
func TestWithTheHerdSwitchedOffEveryReadReachesTheMock(t *testing.T) {
	db, mock := open(t)
	herd, _ := sqlherd.FromDB(db)
	herd.SetEnabled(false)
	const query = `SELECT /* @cache ttl=30s */ price FROM products WHERE id = $1`
	for range 2 {
		mock.ExpectQuery(query).WithArgs(7).WillReturnRows(sqlmock.NewRows([]string{"price"}).AddRow(350))
		if err := db.QueryRow(query, 7).Scan(new(int)); err != nil {
			t.Error(err)
		}
	}
}
