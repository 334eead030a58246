package sqlherd

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
)

// Arguments reach a wrapped connection as the application gave them, because
// database/sql asks for their conversion before the statement is known and a hit must
// not dial. They are converted here, with the real connection's own rules,
// when the statement really runs. The order of the rules and the wording of the errors
// are those of database/sql, so that nobody can tell who converted.

// convertArgs converts args in place for the real connection and, when there is one, the real
// statement, and returns the part of them that is left: a driver may take an argument out.
func convertArgs(real driver.Conn, st driver.Stmt, args []driver.NamedValue) ([]driver.NamedValue, error) {
	want := -1
	var checker func(*driver.NamedValue) error
	var converter driver.ColumnConverter
	if st != nil {
		want = st.NumInput()
		if c, ok := st.(driver.NamedValueChecker); ok {
			checker = c.CheckNamedValue
		}
		converter, _ = st.(driver.ColumnConverter)
	}
	if checker == nil {
		if c, ok := real.(driver.NamedValueChecker); ok {
			checker = c.CheckNamedValue
		}
	}

	n := 0
	for _, arg := range args {
		nv := &args[n]
		*nv = driver.NamedValue{Name: arg.Name, Ordinal: n + 1, Value: arg.Value}
		err := driver.ErrSkip
		if checker != nil {
			err = checker(nv)
		}
		if err == driver.ErrSkip && converter != nil {
			err = convertColumn(converter, want, nv)
		}
		if err == driver.ErrSkip {
			nv.Value, err = driver.DefaultParameterConverter.ConvertValue(nv.Value)
		}
		switch err {
		case nil:
			n++
		case driver.ErrRemoveArgument:
		default:
			name := fmt.Sprintf("$%d", nv.Ordinal)
			if nv.Name != "" {
				name = fmt.Sprintf("with name %q", nv.Name)
			}
			return nil, fmt.Errorf("sql: converting argument %s type: %w", name, err)
		}
	}
	args = args[:n]
	if want != -1 && len(args) != want {
		return nil, fmt.Errorf("sql: expected %d arguments, got %d", want, len(args))
	}
	return args, nil
}

// convertColumn converts one argument with the statement's own converter for its
// column, as database/sql does: a Valuer is asked first, and what comes out
// must be a driver.Value.
func convertColumn(cc driver.ColumnConverter, want int, nv *driver.NamedValue) error {
	index := nv.Ordinal - 1
	if want >= 0 && want <= index {
		return nil // the count is refused later, in better words
	}
	if vr, ok := nv.Value.(driver.Valuer); ok {
		sv, err := callValuer(vr)
		if err != nil {
			return err
		}
		if !driver.IsValue(sv) {
			return fmt.Errorf("non-subset type %T returned from Value", sv)
		}
		nv.Value = sv
	}
	var err error
	arg := nv.Value
	nv.Value, err = cc.ColumnConverter(index).ConvertValue(arg)
	if err != nil {
		return err
	}
	if !driver.IsValue(nv.Value) {
		return fmt.Errorf("driver ColumnConverter error converted %T to unsupported type %T", arg, nv.Value)
	}
	return nil
}

// callValuer calls Value, except on a nil pointer whose method is the
// pointed-to type's: that is NULL, as for database/sql.
func callValuer(vr driver.Valuer) (driver.Value, error) {
	rv := reflect.ValueOf(vr)
	if rv.Kind() == reflect.Pointer && rv.IsNil() &&
		rv.Type().Elem().Implements(reflect.TypeFor[driver.Valuer]()) {
		return nil, nil
	}
	return vr.Value()
}

// cloneArgs copies args so far that a load can go on with them after the caller
// has left and re-uses its buffers. What a struct keeps to itself (an unexported slice of
// a driver.Valuer) cannot be copied from here: it must not be changed by who
// leaves a query early.
func cloneArgs(args []driver.NamedValue) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	copy(out, args)
	for i := range out {
		switch v := out[i].Value.(type) {
		case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64, string:
		case []byte:
			out[i].Value = bytes.Clone(v)
		default:
			out[i].Value = cloneValue(reflect.ValueOf(v), argDepthMax).Interface()
		}
	}
	return out
}

// cloneValue copies v as deep as keys look into arguments.
func cloneValue(v reflect.Value, depth int) reflect.Value {
	if depth == 0 || isBasic(v.Kind()) {
		return v
	}
	switch v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		if !isBasic(v.Type().Elem().Kind()) {
			for i := range c.Len() {
				c.Index(i).Set(cloneValue(c.Index(i), depth-1))
			}
		}
		return c
	case reflect.Array:
		if isBasic(v.Type().Elem().Kind()) {
			return v
		}
		c := reflect.New(v.Type()).Elem()
		for i := range v.Len() {
			c.Index(i).Set(cloneValue(v.Index(i), depth-1))
		}
		return c
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			c.SetMapIndex(it.Key(), cloneValue(it.Value(), depth-1))
		}
		return c
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		c := reflect.New(v.Type().Elem())
		c.Elem().Set(cloneValue(v.Elem(), depth-1))
		return c.Convert(v.Type()) // of a named pointer type
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		c := reflect.New(v.Type()).Elem()
		c.Set(cloneValue(v.Elem(), depth-1))
		return c
	case reflect.Struct:
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		for i := range v.NumField() {
			// Not what a field points to: it may be a lock, a pool, anything.
			switch f := v.Field(i); f.Kind() {
			case reflect.Slice, reflect.Map, reflect.Array:
				if v.Type().Field(i).IsExported() {
					c.Field(i).Set(cloneValue(f, depth-1))
				}
			}
		}
		return c
	}
	return v
}

// values turns named arguments into the plain ones of drivers from before Go 1.8.
func values(named []driver.NamedValue) ([]driver.Value, error) {
	out := make([]driver.Value, len(named))
	for i, nv := range named {
		if nv.Name != "" {
			return nil, errors.New("sql: driver does not support the use of Named Parameters")
		}
		out[i] = nv.Value
	}
	return out, nil
}

// The real* functions call a real driver as database/sql would, whichever of the
// optional interfaces it has.

func realQuery(ctx context.Context, real driver.Conn, query string, args []driver.NamedValue) (driver.Rows, error) {
	queryerCtx, ok := real.(driver.QueryerContext)
	queryer, old := real.(driver.Queryer) //nolint:staticcheck // what old drivers have
	if !ok && !old {
		return nil, driver.ErrSkip
	}
	args, err := convertArgs(real, nil, args)
	if err != nil {
		return nil, err
	}
	if ok {
		return queryerCtx.QueryContext(ctx, query, args)
	}
	dargs, err := values(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return queryer.Query(query, dargs)
}

func realExec(ctx context.Context, real driver.Conn, query string, args []driver.NamedValue) (driver.Result, error) {
	execerCtx, ok := real.(driver.ExecerContext)
	execer, old := real.(driver.Execer) //nolint:staticcheck // what old drivers have
	if !ok && !old {
		return nil, driver.ErrSkip
	}
	args, err := convertArgs(real, nil, args)
	if err != nil {
		return nil, err
	}
	if ok {
		return execerCtx.ExecContext(ctx, query, args)
	}
	dargs, err := values(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return execer.Exec(query, dargs)
}

func realPrepare(ctx context.Context, real driver.Conn, query string) (driver.Stmt, error) {
	if p, ok := real.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	st, err := real.Prepare(query)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		_ = st.Close() // the context's error is the one to tell
		return nil, err
	}
	return st, nil
}

func realStmtQuery(ctx context.Context, real driver.Conn, st driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	args, err := convertArgs(real, st, args)
	if err != nil {
		return nil, err
	}
	if q, ok := st.(driver.StmtQueryContext); ok {
		return q.QueryContext(ctx, args)
	}
	dargs, err := values(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return st.Query(dargs) //nolint:staticcheck // what old drivers have
}

func realStmtExec(ctx context.Context, real driver.Conn, st driver.Stmt, args []driver.NamedValue) (driver.Result, error) {
	args, err := convertArgs(real, st, args)
	if err != nil {
		return nil, err
	}
	if q, ok := st.(driver.StmtExecContext); ok {
		return q.ExecContext(ctx, args)
	}
	dargs, err := values(args)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return st.Exec(dargs) //nolint:staticcheck // what old drivers have
}

func realBegin(ctx context.Context, real driver.Conn, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := real.(driver.ConnBeginTx); ok {
		return b.BeginTx(ctx, opts)
	}
	if opts.Isolation != driver.IsolationLevel(0) {
		return nil, errors.New("sql: driver does not support non-default isolation level")
	}
	if opts.ReadOnly {
		return nil, errors.New("sql: driver does not support read-only transactions")
	}
	tx, err := real.Begin() //nolint:staticcheck // what old drivers have
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		_ = tx.Rollback() // the context's error is the one to tell
		return nil, err
	}
	return tx, nil
}
