package sqlherd

import "testing"

func TestSettingsOfStringsAreFoundInDSNs(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		dsn     string
		odd     bool
	}{
		{PostgreSQL, "host=db dbname=shop", false},
		{PostgreSQL, "host=db standard_conforming_strings=off", true},
		{PostgreSQL, "host=db standard_conforming_strings=on", false},
		{PostgreSQL, "host=db standard_conforming_strings='on'", false},
		{PostgreSQL, "postgres://db/shop?Standard_Conforming_Strings=OFF", true},
		{PostgreSQL, "postgres://db/shop?options=-c%20standard_conforming_strings%3Doff", true},
		{PostgreSQL, "postgres://db/shop?options=-c%20standard_conforming_strings%3Don", false},
		{PostgreSQL, "postgres://db/shop?standard_conforming_strings=one", true}, // no value that we know
		{MySQL, "u@tcp(db)/shop?sql_mode=%27NO_BACKSLASH_ESCAPES%27", true},
		{MySQL, "u@tcp(db)/shop?sql_mode=%27ansi,no_backslash_escapes%27", true},
		{MySQL, "u@tcp(db)/shop?sql_mode=%27ANSI_QUOTES%27", false},
		{SQLite, "file:standard_conforming_strings.db", false},
	} {
		if got := stringsBy(c.dialect, c.dsn) != ""; got != c.odd {
			t.Errorf("%v %s: %v, want %v", c.dialect, c.dsn, got, c.odd)
		}
	}
	for text, turns := range map[string]bool{
		"SET standard_conforming_strings TO off":                      true,
		"SELECT set_config('Standard_Conforming_Strings', $1, false)": true,
		"SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'":   true,
		"SET sql_mode = ?":             true,
		"SET sql_mode = @old":          true,
		"SET sql_mode = 'ANSI_QUOTES'": false,
		"SET time_zone = '+00:00'":     false,
	} {
		if got := turnsStrings(text); got != turns {
			t.Errorf("%s: %v, want %v", text, got, turns)
		}
	}
}
