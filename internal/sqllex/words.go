package sqllex

import "strings"

// fnFlags say what a word is when it is called, f(…), or, for a few, when it merely stands there.
type fnFlags uint16

const (
	fnPure     fnFlags = 1 << iota // well known, and neither changes the session nor depends on it
	fnVolatile                     // never cached
	fnTime
	fnRandom
	fnTaint   // changes the session
	fnBare    // needs no parentheses
	fnBarePG  // needs none in PostgreSQL; elsewhere it may be a column
	fnTime0   // the present when called without arguments
	fnTime1   // the present when called with at most one
	fnDate    // an argument 'now' is the present
	fnFrom    // FROM among its arguments is no clause: extract(year FROM x)
	fnNotCall // a keyword or type that may stand before a parenthesis: IN (…), numeric(10,2)
	fnCatalog // reads a catalogue
	fnWrites  // runs the SQL in its argument, somewhere
	fnType    // a type before a string makes it a literal: date 'today'
	fnCast
)

// fnKnown are the calls that are known not to leave the session changed.
const fnKnown = fnPure | fnVolatile | fnTime | fnRandom | fnNotCall | fnCatalog

// A word is what is known of one spelling.
type word struct {
	kw keyword
	fn fnFlags
}

const maxWord = 32

// lookup finds a word in any case.
func lookup(s string) word {
	if len(s) > maxWord {
		return word{}
	}
	var lower [maxWord]byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	return words[string(lower[:len(s)])]
}

// called returns what calling s means, for words and families of words.
func called(s string) fnFlags {
	if f := lookup(s).fn &^ (fnBare | fnBarePG | fnType); f != 0 {
		return f
	}
	for _, family := range families {
		if len(s) >= len(family.prefix) && strings.EqualFold(s[:len(family.prefix)], family.prefix) {
			return family.fn
		}
	}
	if len(s) > 10 && strings.EqualFold(s[len(s)-10:], "_privilege") {
		return fnVolatile // has_table_privilege and its kin answer for the current user
	}
	return 0
}

// families are functions known by how their names begin. Of PostgreSQL's pg_* the pure ones are listed one by one:
// the others tell of the server, the session or a catalogue.
var families = []struct {
	prefix string
	fn     fnFlags
}{
	{"pg_", fnVolatile},
	{"txid_", fnVolatile},
	{"lo_", fnVolatile},
	{"dblink", fnVolatile | fnWrites},
	{"crosstab", fnVolatile | fnTaint}, // runs the SQL in its argument, as do the next two
	{"connectby", fnVolatile | fnTaint},
	{"query_to_xml", fnVolatile | fnTaint},
	{"table_to_xml", fnVolatile},
	{"schema_to_xml", fnVolatile},
	{"database_to_xml", fnVolatile},
	{"cursor_to_xml", fnVolatile},
	{"uuid_generate_", fnRandom},
	{"pragma_", fnCatalog},
	{"to_reg", fnCatalog},
	{"st_", fnPure}, // PostGIS and MySQL's own
	{"json_", fnPure},
	{"jsonb_", fnPure},
	{"regr_", fnPure},
}

// words is every word that means something to the scanner.
var words = func() map[string]word {
	m := make(map[string]word, 1200)
	for k, s := range keywords {
		if s != "" {
			m[s] = word{kw: keyword(k)}
		}
	}
	for _, l := range lists {
		for s := range strings.FieldsSeq(l.words) {
			w := m[s]
			w.fn |= l.fn
			m[s] = w
		}
	}
	return m
}()

var lists = []struct {
	fn    fnFlags
	words string
}{
	// Sequences and their like: each call moves or reads something that belongs to the session.
	{fnVolatile, `nextval currval lastval setval last_insert_id row_count found_rows changes total_changes last_insert_rowid
		scope_identity ident_current`},
	// Locks.
	{fnVolatile, `get_lock release_lock release_all_locks is_free_lock is_used_lock master_pos_wait source_pos_wait
		wait_for_executed_gtid_set wait_until_sql_thread_after_gtids wait_for_lsn service_get_read_locks
		service_get_write_locks service_release_locks`},
	// Identity: who asks, and where.
	{fnVolatile, `user database schema session_user system_user current_user current_role current_schema current_schemas
		current_catalog current_database current_query connection_id roles_graphml inet_client_addr
		inet_client_port inet_server_addr inet_server_port getdatabaseencoding getpgusername
		row_security_active mysql_session_id ps_current_thread_id ps_thread_id suser_sname user_name db_name`},
	{fnBare, `current_user current_role`},
	{fnBarePG, `user session_user system_user current_schema current_catalog`},
	// Settings, and things that do something.
	{fnVolatile, `current_setting set_config sleep benchmark load_extension load_file setseed ts_stat ts_rewrite xpath_table loread lowrite
		readfile writefile sys_exec sys_eval plpgsql_call_handler binary_upgrade_set_next_pg_type_oid
		statement_digest current_xact_id_if_assigned sqlite_log`},
	{fnTaint, `set_config setseed load_extension ts_stat ts_rewrite xpath_table`}, // the last three run the SQL in an argument
	// Time.
	{fnTime, `now sysdate getdate sysdatetime curdate curtime statement_timestamp clock_timestamp transaction_timestamp
		timeofday utc_date utc_time utc_timestamp current_timestamp current_date current_time localtime
		localtimestamp`},
	{fnBare, `utc_date utc_time utc_timestamp current_timestamp current_date current_time localtime localtimestamp`},
	{fnPure | fnTime0, `unix_timestamp`},
	{fnPure | fnTime1, `age`},
	{fnPure | fnTime0 | fnDate, `date time datetime julianday unixepoch`},
	{fnPure | fnTime1 | fnDate, `strftime`},
	{fnPure | fnDate, `timediff age date_trunc date_part date_bin extract to_char timezone`},
	{fnType, `date time timestamp timestamptz timetz datetime abstime zone`},
	// Chance.
	{fnRandom, `random rand gen_random_uuid gen_random_bytes uuid uuid_short uuidv4 uuidv7 uuid_v4 uuid_v7 randomblob
		random_bytes random_normal random_string gen_salt newid newsequentialid sys_guid uuid7 uuid4 ulid`},
	// Keywords and types that may stand before a parenthesis.
	{fnNotCall, `in values value and or not exists any some all on using as select from where when then else case having by over
		filter group union except intersect distinct limit offset is like ilike between with lateral row array
		varchar numeric decimal dec character varying bit float double precision timestamp timestamptz
		timetz nchar varbinary binary varbit interval bpchar nvarchar int integer bigint smallint tinyint
		mediumint signed unsigned recursive materialized conflict set into end only returning rlike regexp glob match escape
		collate xor div mod sounds similar rows tables cross join inner outer left right full natural partition
		tablesample repeatable bernoulli system grouping sets rollup cube within fetch first next for of update
		share window order default table unique primary key check references index force ignore use view
		if insert replace oj columns nested path against separator isnull notnull asc desc null true false
		to at zone operator variadic both leading trailing placing symmetric asymmetric`},
	{fnPure | fnFrom, `extract substring substr trim overlay`},
	{fnPure | fnCast, `cast convert try_cast`},
	// MySQL functions named like a keyword.
	{fnPure, `if insert replace left right char mod format`},
	// Well-known built-ins without any of the above: a SELECT without a table that calls only these leaves the session
	// as it was.
	{fnPure, `
		count sum avg min max total group_concat string_agg array_agg every bool_and bool_or bit_and bit_or bit_xor
		stddev stddev_pop stddev_samp std variance var_pop var_samp covar_pop covar_samp corr mode percentile_cont
		percentile_disc any_value median range_agg range_intersect_agg xmlagg
		row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value
		coalesce nullif ifnull iif isnull nvl nvl2 greatest least interval decode
		abs acos acosd acosh asin asind asinh atan atan2 atan2d atand atanh cbrt ceil ceiling cos cosd cosh cot cotd crc32
		degrees div exp factorial floor gcd lcm ln log log10 log2 min_scale pi pow power radians round scale sign sin sind
		sinh sqrt tan tand tanh trim_scale trunc truncate width_bucket erf erfc conv
		ascii bin bit_count bit_length btrim char_length character_length chr concat concat_ws elt export_set field
		find_in_set from_base64 to_base64 hex unhex initcap insert instr lcase lower ltrim rtrim trim trim_array lpad rpad make_set
		mid oct octet_length ord position quote quote_ident quote_literal quote_nullable regexp_count regexp_instr
		regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
		regexp_substr repeat reverse soundex space split_part starts_with strcmp strpos string_to_array
		string_to_table array_to_string substring_index to_hex to_bin to_oct translate ucase unicode unistr upper
		weight_string length len lengthb printf format_bytes glob like likelihood likely unlikely typeof sqlite_version
		version sqlite_source_id sqlite_compileoption_used nchar convert_from convert_to encode
		md5 sha1 sha sha2 sha224 sha256 sha384 sha512 digest hmac crypt get_bit get_byte set_bit set_byte
		aes_encrypt aes_decrypt compress uncompress uncompressed_length zeroblob inet_aton inet_ntoa inet6_aton inet6_ntoa
		is_ipv4 is_ipv6 is_uuid uuid_to_bin bin_to_uuid uuid_extract_timestamp uuid_extract_version
		adddate addtime subdate subtime date_add date_sub date_format date_part date_trunc date_bin date_diff datediff
		timestampadd timestampdiff dayname day dayofmonth dayofweek dayofyear hour minute second month monthname quarter
		week weekday weekofyear year yearweek last_day makedate maketime make_date make_time make_interval
		make_timestamp make_timestamptz microsecond period_add period_diff sec_to_time time_to_sec time_format
		str_to_date to_days to_seconds from_days from_unixtime convert_tz get_format justify_days justify_hours
		justify_interval isfinite to_char to_date to_number to_timestamp timezone timestamp
		array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position
		array_positions array_prepend array_remove array_replace array_upper array_sort array_reverse array_to_json
		cardinality unnest generate_series generate_subscripts
		json jsonb to_json to_jsonb row_to_json array_to_tsvector json_each json_tree jsonb_path_query
		hstore akeys avals skeys svals
		lower_inc upper_inc lower_inf upper_inf isempty range_merge multirange int4range int8range numrange tsrange
		tstzrange daterange
		to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline
		setweight strip numnode querytree tsvector_to_array similarity word_similarity levenshtein soundex metaphone
		dmetaphone unaccent bm25 highlight snippet matchinfo
		host hostmask masklen netmask network set_masklen text family broadcast abbrev inet_merge inet_same_family
		area box circle diameter center height width path point polygon lseg line npoints pclose popen radius
		pg_typeof pg_size_pretty pg_size_bytes pg_column_size pg_input_is_valid pg_column_compression
		num_nonnulls num_nulls nlevel subpath subltree lca ltree2text text2ltree
		extractvalue updatexml xmlconcat xmlelement xmlforest xmlparse xmlpi xmlroot xmlserialize xmlexists xpath
		xpath_exists xmltable charset coercibility collation name_const any_value bit_not gtid_subset gtid_subtract
		values row rowid concat_agg group_concat stringagg grouping octet_length ceil sum0 int4 int8 float8 numeric bool
		`},
}
