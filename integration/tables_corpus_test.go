package integration_test

// The corpora: statements by hand, one a line, over the tables a, b, c, d, t, u and v, whose columns are id, x and y.
// One that begins with "~ " may name tables which the server does not touch, since it has found them to be of no use,
// and one with "+ " also names what is no table yet.

const sharedCorpus = `
SELECT 1
SELECT * FROM a
select * from a
SELECT a.* FROM a
SELECT x FROM a WHERE id = 1
SELECT t.x FROM a AS t
SELECT t.x FROM a t
SELECT * FROM a, b
SELECT * FROM a t, b AS u, c v
SELECT * FROM a JOIN b ON a.id = b.id
SELECT * FROM a INNER JOIN b USING (id)
SELECT * FROM a JOIN b USING (id, x), c
SELECT * FROM a JOIN b USING (id) JOIN c USING (id)
~ SELECT * FROM a NATURAL JOIN b
~ SELECT * FROM a NATURAL LEFT JOIN b, c
SELECT a.x, b.x FROM a LEFT JOIN b ON a.id = b.x
SELECT a.x, b.x FROM a LEFT OUTER JOIN b ON a.id = b.x AND b.y IN (1, 2), c
SELECT a.x, b.x FROM a RIGHT JOIN b ON a.id = b.x
SELECT * FROM a CROSS JOIN b
SELECT * FROM a CROSS JOIN b CROSS JOIN c
SELECT a.x, b.x, c.x FROM a LEFT JOIN b ON a.x = b.x LEFT JOIN c ON c.x = b.x
SELECT * FROM (a JOIN b ON a.id = b.id)
SELECT * FROM (a JOIN b ON a.id = b.id) JOIN c ON c.id = a.id
SELECT * FROM a JOIN (b JOIN c ON b.id = c.id) ON a.id = b.id
SELECT * FROM ((a JOIN b ON a.id = b.id) JOIN c ON c.id = a.id), d
SELECT * FROM a JOIN (b CROSS JOIN (c CROSS JOIN d)) ON a.id = d.id
SELECT q.x FROM (SELECT x FROM a) q
SELECT q.x FROM (SELECT x FROM a) AS q, b
SELECT q.x FROM (SELECT x FROM (SELECT x FROM (SELECT x FROM a) q1) q2) q
SELECT q.x, r.y FROM (SELECT x FROM a) q JOIN (SELECT y FROM b) r ON q.x = r.y
SELECT q.x FROM (SELECT a.x FROM a, b) q
SELECT q.x FROM (SELECT x FROM a UNION SELECT x FROM b) q, c
SELECT (SELECT max(x) FROM b) FROM a
SELECT (SELECT max(b.x) FROM b WHERE b.id = a.id), y FROM a
SELECT x, (SELECT count(*) FROM b) AS n, (SELECT count(*) FROM c) AS m FROM a
SELECT x + (SELECT y FROM b WHERE id = 1) FROM a
SELECT * FROM a WHERE x IN (SELECT x FROM b)
SELECT * FROM a WHERE x NOT IN (SELECT x FROM b WHERE y IN (SELECT y FROM c))
SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)
SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND EXISTS (SELECT 1 FROM c WHERE c.y = b.y))
SELECT * FROM a WHERE x = (SELECT max(x) FROM b)
SELECT * FROM a WHERE (SELECT count(*) FROM b) > 1 AND (SELECT count(*) FROM c) > 2
SELECT * FROM a WHERE x BETWEEN (SELECT min(x) FROM b) AND (SELECT max(x) FROM c)
SELECT CASE WHEN x > (SELECT max(x) FROM b) THEN (SELECT 1 FROM c WHERE id = 1) ELSE 0 END FROM a
SELECT coalesce((SELECT x FROM b WHERE id = 1), 0) FROM a
SELECT x FROM a GROUP BY x HAVING count(*) > (SELECT count(*) FROM b)
SELECT x FROM a ORDER BY (SELECT y FROM b WHERE b.id = a.id)
SELECT a.x, count(*) FROM a, b GROUP BY a.x HAVING sum(b.y) > 1 ORDER BY 1 LIMIT 5
SELECT x FROM a UNION SELECT x FROM b
SELECT x FROM a UNION ALL SELECT x FROM b UNION ALL SELECT x FROM c
SELECT x FROM a EXCEPT SELECT x FROM b
SELECT x FROM a INTERSECT SELECT x FROM b
SELECT a.x FROM a, b UNION SELECT c.y FROM c, d
SELECT x FROM a WHERE x IN (SELECT x FROM b UNION SELECT x FROM c)
SELECT DISTINCT a.x FROM a, b
SELECT count(*) FROM a
SELECT count(DISTINCT a.x), max(b.y) FROM a JOIN b USING (id)
SELECT x FROM a ORDER BY x, y LIMIT 1 OFFSET 2
SELECT t.x FROM a t JOIN b t2 ON t.id = t2.id WHERE t.x IN (SELECT x FROM c t)
SELECT b.x FROM a b, b a
SELECT a.x FROM b a
SELECT 'FROM a' FROM b
SELECT 'it''s FROM a, c' FROM b
SELECT x FROM b -- , a
SELECT c.x FROM b /* , a */, c
SELECT x /* FROM a */ FROM b
SELECT/**/a.x/**/FROM/**/a/**/,/**/b
select X from a where X = 1 and Y in (select Y from b)
SELECT sum(a.x) OVER (PARTITION BY a.y ORDER BY b.id) FROM a, b
SELECT rank() OVER w FROM a WINDOW w AS (ORDER BY (SELECT max(x) FROM b))
SELECT trim('x'), length('FROM t'), abs(x) FROM a
WITH q AS (SELECT x FROM a) SELECT * FROM q
WITH q (z) AS (SELECT x FROM a) SELECT z FROM q, b
WITH q AS (SELECT x FROM a), r AS (SELECT x FROM q) SELECT * FROM r
WITH q AS (SELECT x FROM a), r AS (SELECT y FROM b) SELECT * FROM q, r, c
WITH b AS (SELECT x FROM a) SELECT * FROM b
WITH b AS (SELECT x FROM a), c AS (SELECT x FROM b) SELECT * FROM c, d
WITH q AS (SELECT x FROM a UNION SELECT y FROM b) SELECT * FROM q WHERE x IN (SELECT x FROM c)
WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 3) SELECT n FROM q
WITH RECURSIVE q (n) AS (SELECT x FROM a UNION ALL SELECT n + 1 FROM q WHERE n < 3) SELECT n FROM q, b
WITH RECURSIVE q (n) AS (SELECT x FROM a UNION ALL SELECT q.n + b.x FROM q JOIN b ON b.id = q.n) SELECT n FROM q
WITH RECURSIVE t (n) AS (SELECT x FROM a UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT n FROM t
SELECT * FROM (WITH q AS (SELECT x FROM a) SELECT x FROM q) r, b
SELECT * FROM (WITH b AS (SELECT x FROM a) SELECT x FROM b) r, b
SELECT (WITH q AS (SELECT max(x) AS x FROM a) SELECT x FROM q) FROM b
SELECT * FROM a WHERE x IN (WITH q AS (SELECT x FROM b) SELECT x FROM q)
WITH q AS (SELECT x FROM a) SELECT (SELECT max(x) FROM q), r.x FROM b r
WITH q AS (WITH r AS (SELECT x FROM a) SELECT x FROM r) SELECT x FROM q
WITH q AS (SELECT x FROM a) SELECT x FROM q UNION SELECT x FROM q UNION SELECT y FROM b
INSERT INTO a VALUES (1, 2, 3)
INSERT INTO a (id, x) VALUES (1, 2), (3, 4)
INSERT INTO a(id,x)VALUES(1,2)
insert into a (id) values (7)
INSERT INTO a (id, x) VALUES (1, (SELECT max(x) FROM b))
INSERT INTO a SELECT * FROM b
INSERT INTO a (id, x) SELECT id, y FROM b
INSERT INTO a SELECT b.id, c.x, c.y FROM b JOIN c ON b.id = c.id
INSERT INTO a SELECT * FROM b UNION SELECT * FROM c
INSERT INTO a SELECT * FROM (SELECT * FROM b) q WHERE q.x IN (SELECT x FROM c)
INSERT INTO a WITH q AS (SELECT * FROM b) SELECT * FROM q
INSERT INTO a SELECT id + 100, x, y FROM a
UPDATE a SET x = 1
UPDATE a SET x = 1, y = 2 WHERE id = 3
update a set x = x + 1
UPDATE a SET x = (SELECT max(x) FROM b)
UPDATE a SET x = (SELECT max(x) FROM b), y = (SELECT max(y) FROM c) WHERE id IN (SELECT id FROM d)
UPDATE a SET x = 1 WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id)
UPDATE a SET x = CASE WHEN y IN (SELECT y FROM b) THEN 1 ELSE 2 END
UPDATE a AS t SET x = 1 WHERE t.id = 1
DELETE FROM a
DELETE FROM a WHERE id = 1
delete from a where x in (select x from b)
DELETE FROM a WHERE EXISTS (SELECT 1 FROM b JOIN c ON b.id = c.id WHERE b.x = a.x)
DELETE FROM a WHERE x = (SELECT max(x) FROM b)
`

const pgCorpus = sharedCorpus + `
TABLE a
TABLE a UNION TABLE b
TABLE a ORDER BY x LIMIT 1
SELECT * FROM (TABLE a) q
VALUES (1, 2), (3, 4)
SELECT * FROM (VALUES (1, 2)) AS q (x, y), a
SELECT FROM a
SELECT ALL x FROM a
SELECT DISTINCT ON (a.x) a.x, q.y FROM a, b AS q
SELECT * FROM ONLY a
SELECT * FROM ONLY (a), b
SELECT * FROM a *, b
SELECT * FROM public.a, "public"."b"
SELECT * FROM s2.t
SELECT * FROM s2."Far", "MiXed", "Order Items"
SELECT * FROM "x.y", "it's", "a""b"
SELECT * FROM A, "b", C
SELECT * FROM "select", "only", "from t"
SELECT * FROM "-- dash", "/* c */", "$$", "semi;colon"
SELECT * FROM a FULL JOIN b ON a.id = b.id
SELECT * FROM a TABLESAMPLE system (10), b
SELECT * FROM a TABLESAMPLE bernoulli (10) REPEATABLE (1) WHERE x IN (SELECT x FROM b)
SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x) q
SELECT * FROM a LEFT JOIN LATERAL (SELECT * FROM b WHERE b.x = a.x LIMIT 1) q ON true, c
SELECT * FROM a, LATERAL generate_series(1, a.x) g, b
SELECT * FROM generate_series(1, 3) g, a
SELECT * FROM generate_series(1, 3) AS g (n), a, b
SELECT * FROM ROWS FROM (generate_series(1, 3), generate_series(4, 6)) AS g (n, m), a
SELECT * FROM unnest(ARRAY[1, 2]) WITH ORDINALITY AS q (v, n), a
SELECT * FROM unnest(ARRAY(SELECT x FROM b)) q, a
SELECT * FROM json_to_recordset('[{"x": 1}]') AS q (x int, y int), a
SELECT * FROM jsonb_array_elements('[1]') q, a
SELECT ARRAY(SELECT x FROM a), (ARRAY[1, 2])[1] FROM b
SELECT extract(year FROM date '2024-01-01'), x FROM a
SELECT extract(epoch FROM (SELECT now() FROM b LIMIT 1)) FROM a
SELECT substring('abc' FROM 2), substring('abc' FROM 1 FOR 2) FROM a
SELECT trim(BOTH 'x' FROM 'xax'), trim(FROM ' a ') FROM a
SELECT overlay('abc' PLACING 'x' FROM 2 FOR 1), position('a' IN 'b') FROM a
SELECT * FROM a WHERE x IS DISTINCT FROM y
SELECT * FROM a WHERE x IS NOT DISTINCT FROM (SELECT max(x) FROM b)
SELECT * FROM a JOIN b ON a.x IS DISTINCT FROM b.x, c
SELECT * FROM a WHERE x = ANY (SELECT x FROM b) OR y < ALL (SELECT y FROM c)
SELECT * FROM a WHERE (x, y) IN (SELECT x, y FROM b)
SELECT q.x AS from, q.y AS table, q.id AS update FROM a, b q
SELECT x::text, y::numeric(10, 2) FROM a
SELECT a, b FROM a, b
SELECT (a).x FROM a
SELECT count(*) FILTER (WHERE x > (SELECT max(x) FROM b)) FROM a
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY q.x) FROM a, b q
SELECT string_agg(x::text, ',' ORDER BY y) FROM a
SELECT x, y, count(*) FROM a GROUP BY GROUPING SETS ((x), (y), ()), x, y
SELECT * FROM a FETCH FIRST 3 ROWS ONLY
SELECT * FROM a FOR UPDATE
SELECT * FROM a q, b r FOR UPDATE OF q, r
SELECT * FROM a FOR NO KEY UPDATE SKIP LOCKED
SELECT * FROM a FOR SHARE OF a NOWAIT
SELECT * FROM a WHERE x IN (SELECT x FROM b FOR KEY SHARE)
WITH q AS MATERIALIZED (SELECT * FROM a) SELECT * FROM q
WITH q AS NOT MATERIALIZED (SELECT * FROM a), r AS (SELECT * FROM b) SELECT * FROM q, r
WITH q AS (TABLE a) TABLE q
WITH Q AS (SELECT * FROM a) SELECT * FROM q, "q" r
WITH "Q" AS (SELECT * FROM a), b AS (SELECT 1) SELECT * FROM "Q", B
WITH t AS (SELECT * FROM a) SELECT * FROM t, s2.t q
WITH t AS (SELECT * FROM a) SELECT * FROM t, public.t q
WITH unused AS (SELECT * FROM a) SELECT * FROM b
(SELECT x FROM a) UNION (SELECT x FROM b) ORDER BY 1
((SELECT x FROM a))
(WITH q AS (SELECT x FROM a) SELECT x FROM q) UNION ALL (SELECT x FROM b)
WITH RECURSIVE q (n) AS (SELECT x FROM a UNION SELECT n FROM q) SEARCH DEPTH FIRST BY n SET o CYCLE n SET c USING p SELECT n FROM q, b
INSERT INTO a DEFAULT VALUES
INSERT INTO a TABLE b
INSERT INTO a AS q (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET x = excluded.x + q.x
INSERT INTO a (id) VALUES (1) ON CONFLICT DO NOTHING
INSERT INTO a (id) VALUES (1) ON CONFLICT ON CONSTRAINT a_pkey DO UPDATE SET x = (SELECT max(x) FROM b), y = (SELECT max(y) FROM c) WHERE a.x > 1
INSERT INTO a (id) VALUES (1) RETURNING id, x, (SELECT max(x) FROM b)
INSERT INTO a OVERRIDING SYSTEM VALUE SELECT * FROM b
INSERT INTO public.a SELECT * FROM s2.t
WITH q AS (SELECT * FROM b) INSERT INTO a SELECT * FROM q
WITH a AS (SELECT * FROM b) INSERT INTO a SELECT * FROM a
INSERT INTO a WITH b AS (SELECT * FROM c) SELECT * FROM b ON CONFLICT (id) DO UPDATE SET x = (SELECT max(x) FROM b)
UPDATE ONLY a SET x = 1
UPDATE a * SET x = 1
UPDATE a SET x = b.x FROM b WHERE a.id = b.id
UPDATE a q SET x = b.x FROM b, c r LEFT JOIN d ON r.id = d.id WHERE q.id = b.id
UPDATE a SET (x, y) = (SELECT x, y FROM b LIMIT 1)
UPDATE a SET x = DEFAULT RETURNING *
UPDATE a SET x = 1 FROM (SELECT * FROM b) q WHERE q.id = a.id RETURNING a.x, (SELECT max(x) FROM c)
WITH q AS (SELECT * FROM b) UPDATE a SET x = q.x FROM q
DELETE FROM ONLY a
DELETE FROM a USING b WHERE a.id = b.id
DELETE FROM a q USING b r JOIN c USING (id), d WHERE q.id = r.id
DELETE FROM a USING (SELECT * FROM b) q WHERE q.id = a.id RETURNING a.*
WITH q AS (SELECT * FROM b) DELETE FROM a USING q WHERE a.id = q.id
WITH q AS (DELETE FROM a RETURNING *) SELECT * FROM q, b
WITH q AS (DELETE FROM a RETURNING *) INSERT INTO b SELECT * FROM q
WITH q AS (INSERT INTO a SELECT * FROM b RETURNING *), r AS (UPDATE c SET x = 1 FROM d RETURNING c.id) SELECT * FROM q, r
WITH q AS (UPDATE a SET x = 1 RETURNING *) SELECT count(*) FROM q
MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN UPDATE SET x = b.x WHEN NOT MATCHED THEN INSERT (id, x) VALUES (b.id, b.x)
MERGE INTO a q USING (SELECT * FROM b JOIN c USING (id, x)) r ON q.id = r.id WHEN MATCHED AND r.x > 1 THEN DELETE WHEN MATCHED THEN DO NOTHING
MERGE INTO ONLY a USING b JOIN c USING (id) ON a.id = b.id WHEN MATCHED THEN DELETE
WITH q AS (SELECT * FROM b) MERGE INTO a USING q ON a.id = q.id WHEN NOT MATCHED THEN INSERT VALUES (1, 2, (SELECT max(x) FROM c))
+ CREATE TABLE fresh_one AS SELECT * FROM a
+ CREATE MATERIALIZED VIEW fresh_two AS SELECT * FROM a JOIN b USING (id)
+ SELECT * INTO fresh_three FROM a, b q
TRUNCATE a
TRUNCATE TABLE a, b
TRUNCATE ONLY a, public.b RESTART IDENTITY
COPY a TO '/dev/null'
COPY a (id, x) TO '/dev/null'
COPY (SELECT * FROM a JOIN b USING (id)) TO '/dev/null'
COPY a FROM '/dev/null'
COPY public.a (id) FROM '/dev/null' WITH (FORMAT csv)
ALTER TABLE a ADD COLUMN z int
ALTER TABLE ONLY public.a DROP COLUMN x
ALTER TABLE IF EXISTS a ALTER COLUMN x SET DEFAULT 1
DROP TABLE a
DROP TABLE IF EXISTS a, public.b, s2."Far"
+ CREATE INDEX fresh_index ON a (x)
+ CREATE UNIQUE INDEX IF NOT EXISTS fresh_index ON ONLY public.a (id)
`

const mariaCorpus = sharedCorpus + "" + `
SELECT * FROM a STRAIGHT_JOIN b
SELECT STRAIGHT_JOIN a.x FROM a JOIN b ON a.id = b.id
SELECT SQL_NO_CACHE x FROM a
SELECT HIGH_PRIORITY SQL_SMALL_RESULT x FROM a
SELECT * FROM (a, b)
SELECT * FROM (a, b) LEFT JOIN (c, d) ON a.id = c.id
SELECT * FROM a LEFT JOIN (b, c) ON a.id = b.id AND b.id = c.id, d
SELECT * FROM a USE INDEX (PRIMARY), b
SELECT * FROM a q FORCE INDEX FOR JOIN (PRIMARY) JOIN b IGNORE INDEX FOR ORDER BY (PRIMARY) ON q.id = b.id
SELECT * FROM { OJ a LEFT OUTER JOIN b ON a.id = b.id }
SELECT * FROM a WHERE x <=> (SELECT max(x) FROM b)
SELECT * FROM a WHERE x = ANY (SELECT x FROM b) OR y > SOME (SELECT y FROM c)
SELECT x FROM a FOR UPDATE
SELECT x FROM a LOCK IN SHARE MODE
SELECT extract(year FROM '2024-01-01'), x FROM a
SELECT substring('abc' FROM 2 FOR 1), trim(LEADING 'x' FROM 'xa') FROM a
SELECT group_concat(a.x ORDER BY q.y SEPARATOR ',') FROM a, b q
SELECT if(x, 1, 2), insert('abc', 1, 1, 'x'), replace('a', 'b', 'c'), left('a', 1) FROM a
SELECT convert(x USING utf8), convert(x, char) FROM a
SELECT CAST(x AS CHAR CHARACTER SET utf8) FROM a
SELECT * FROM a WHERE x IN (1, 2) AND y REGEXP '^FROM b'
SELECT x FROM a LIMIT 1, 2
SELECT x FROM a PROCEDURE ANALYSE(10, 200)
SELECT * FROM a WHERE MOD(x, 2) = 1 AND y DIV 2 = 0
SELECT 5--1 FROM a
SELECT 5-- FROM b
SELECT x FROM a # FROM b
SELECT x /*! FROM a */
SELECT a.x FROM a /*!50000 , b */
~ SELECT x FROM a /*!999999 , b */
SELECT x FROM a /*M!100100 JOIN b USING (x) */
SELECT 'it\'s FROM b', "FROM c" FROM a
SELECT 'a' 'FROM b' FROM a
SELECT _utf8'FROM b', N'x', X'41', b'1' FROM a
SELECT * FROM ` + "`a`, `b` AS `c`" + `
SELECT * FROM ` + "`Order Items`, `a``b`, `select`" + `
SELECT * FROM ` + "`semi;colon`, `-- dash`, `from t`, `it's`" + `
SELECT * FROM 2024_sales, ` + "`1e5x`" + `, $dollar
SELECT 2024_sales.x FROM 2024_sales
SELECT * FROM a PARTITION_less, b
SELECT * FROM a AS value, b AS role
WITH 2024_sales AS (SELECT x FROM a) SELECT * FROM 2024_sales
WITH RECURSIVE 2024_sales (n) AS (SELECT x FROM a UNION ALL SELECT n + 1 FROM 2024_sales WHERE n < 3), q AS (SELECT n FROM 2024_sales) SELECT * FROM q
WITH b AS (SELECT x FROM a) SELECT * FROM (WITH q AS (SELECT x FROM b) SELECT x FROM q) r
WITH b AS (SELECT x FROM a) SELECT * FROM (SELECT x FROM b) r
~ WITH B AS (SELECT x FROM a) SELECT * FROM B, b
~ WITH unused AS (SELECT * FROM a) SELECT * FROM b
(SELECT x FROM a) UNION (SELECT x FROM b) ORDER BY 1 LIMIT 2
SELECT * FROM a UNION ALL (SELECT * FROM b LIMIT 1)
VALUES (1, 2), (3, 4)
SELECT * FROM (VALUES (1, 2)) q, a
SELECT * FROM JSON_TABLE('[1]', '$[*]' COLUMNS (n INT PATH '$')) jt, a
SELECT * FROM a, JSON_TABLE(a.x, '$' COLUMNS (n FOR ORDINALITY, m INT PATH '$.m' DEFAULT '0' ON EMPTY)) jt, b
INSERT a VALUES (1, 2, 3)
INSERT a SET x = 1, y = (SELECT max(y) FROM b)
INSERT IGNORE a SELECT * FROM b
INSERT IGNORE INTO a (id) VALUES (1)
INSERT LOW_PRIORITY INTO a VALUES (1, 2, 3)
INSERT HIGH_PRIORITY IGNORE INTO a VALUES (1, 2, 3)
INSERT INTO a () VALUES ()
INSERT INTO a VALUE (1, 2, 3)
INSERT INTO a VALUES (1, 2, 3) ON DUPLICATE KEY UPDATE x = VALUES(x), y = 2
INSERT INTO a SELECT * FROM b ON DUPLICATE KEY UPDATE x = b.x, y = 2
INSERT INTO a (id, x) VALUES (1, 2) RETURNING id, x
REPLACE a VALUES (1, 2, 3)
REPLACE INTO a SELECT * FROM b
REPLACE a SET x = 1
REPLACE LOW_PRIORITY INTO a (id) VALUES (1)
UPDATE LOW_PRIORITY a SET x = 1
UPDATE IGNORE a SET x = 1 ORDER BY y LIMIT 1
UPDATE LOW_PRIORITY IGNORE a q SET x = 1
UPDATE a, b SET a.x = 1, b.y = 2 WHERE a.id = b.id
UPDATE a q, b r SET q.x = r.x
UPDATE a JOIN b ON a.id = b.id SET a.x = b.x
UPDATE a LEFT JOIN b USING (id) SET a.x = 1, b.x = 2 WHERE a.y IN (SELECT y FROM c)
UPDATE a INNER JOIN (SELECT * FROM b) q ON q.id = a.id SET a.x = q.x
UPDATE (a JOIN b ON a.id = b.id) JOIN c ON c.id = a.id SET a.x = 1
UPDATE a, (SELECT max(x) AS x FROM b) q SET a.x = q.x
DELETE QUICK FROM a
DELETE LOW_PRIORITY QUICK IGNORE FROM a WHERE id = 1
DELETE FROM a ORDER BY x LIMIT 1
DELETE FROM a WHERE id = 1 RETURNING id
DELETE a FROM a JOIN b ON a.id = b.id
DELETE a, b FROM a JOIN b ON a.id = b.id
DELETE a.*, b.* FROM a, b WHERE a.id = b.id
DELETE q FROM a AS q JOIN b r ON q.id = r.id
DELETE q, r FROM a q, b AS r, c WHERE q.id = r.id AND r.id = c.id
DELETE FROM a USING a JOIN b ON a.id = b.id
DELETE FROM q, r USING a q JOIN b r JOIN c ON c.id = r.id WHERE q.x IN (SELECT x FROM d)
DELETE q FROM (a AS q JOIN b ON q.id = b.id) LEFT JOIN c ON c.id = q.id
DELETE b FROM a b, c WHERE b.id = c.id
DELETE a FROM a JOIN (SELECT id FROM b) q ON a.id = q.id
DELETE LOW_PRIORITY IGNORE a FROM a, b
`

const sqliteCorpus = sharedCorpus + `
VALUES (1, 2), (3, 4)
SELECT * FROM (VALUES (1, 2)) q, a
SELECT * FROM main.a, "main"."b", [main].[c]
SELECT * FROM [a], [b] AS [c]
SELECT * FROM ` + "`a`, `Order Items`" + `
SELECT * FROM 'a', 'b' AS 'c'
SELECT * FROM "Order Items", "a""b", "select"
SELECT * FROM [semi;colon], [-- dash], [from t], [it's], [x.y]
SELECT * FROM A, "B", [C]
SELECT * FROM mixed, "MIXED" q
SELECT * FROM a INDEXED BY a_x, b WHERE a.x = 1
SELECT * FROM a NOT INDEXED, b
SELECT * FROM a FULL JOIN b ON a.id = b.id
SELECT * FROM json_each('[1]') q, a
SELECT * FROM a, json_tree('[1]') AS q, b
SELECT * FROM json_each((SELECT x FROM b)) q, a
SELECT * FROM fts
SELECT * FROM fts WHERE fts MATCH 'x'
SELECT * FROM fts('x')
SELECT * FROM main.fts('x') AS q, a
SELECT rowid, fts FROM fts WHERE body MATCH 'a FROM b'
SELECT x FROM a WHERE x IS DISTINCT FROM y
SELECT x FROM a WHERE x IS NOT DISTINCT FROM (SELECT max(x) FROM b)
SELECT x FROM a WHERE x IS y AND x IS NOT 1
SELECT x FROM a WHERE (x, y) IN (SELECT x, y FROM b)
SELECT x FROM a WHERE x IN ids
SELECT x FROM a WHERE x NOT IN main.ids AND y IN "ids"
SELECT a.x FROM a JOIN b ON a.x IN ids, c
WITH ids AS (SELECT x FROM b) SELECT x FROM a WHERE x IN ids
DELETE FROM a WHERE x IN ids
SELECT x FROM a LIMIT 1 OFFSET 2
SELECT x FROM a LIMIT 1, 2
SELECT x FROM a WHERE x = ?1 OR x = :p OR x = @q OR x = $r
SELECT substr('abc', 2), replace('a', 'b', 'c'), printf('%d', x) FROM a
SELECT group_concat(x, ',') FILTER (WHERE y > 1) FROM a
SELECT iif(x, 1, 2), max(x, y), likely(x) FROM a
SELECT x FROM a GROUP BY x HAVING x GLOB 'FROM*'
SELECT CAST(x AS TEXT) COLLATE NOCASE FROM a
SELECT * FROM a AS offset, b AS window
SELECT * FROM a AS key, b AS [order]
SELECT x AS "from", y AS [table] FROM a
SELECT 5--1 FROM b
SELECT x'41', 'C:\' FROM a
WITH q AS MATERIALIZED (SELECT * FROM a) SELECT * FROM q
WITH q AS NOT MATERIALIZED (SELECT * FROM a) SELECT * FROM q, b
WITH Q AS (SELECT x FROM a) SELECT * FROM q
WITH [q] AS (SELECT x FROM a) SELECT * FROM "Q"
~ WITH unused AS (SELECT * FROM a) SELECT * FROM b
WITH t AS (SELECT * FROM a) SELECT * FROM t, main.t q
WITH RECURSIVE q (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM q LIMIT 5) SELECT n FROM q, a
INSERT INTO a DEFAULT VALUES
INSERT OR REPLACE INTO a VALUES (1, 2, 3)
INSERT OR IGNORE INTO a SELECT * FROM b
INSERT OR ROLLBACK INTO main.a (id) VALUES (1)
INSERT OR ABORT INTO a (id) VALUES (1)
INSERT OR FAIL INTO [a] (id) VALUES (1)
REPLACE INTO a VALUES (1, 2, 3)
REPLACE INTO main.a SELECT * FROM b
INSERT INTO a AS q (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET x = excluded.x + q.x
INSERT INTO a (id) VALUES (1) ON CONFLICT DO NOTHING
INSERT INTO a (id) SELECT id FROM b WHERE true ON CONFLICT (id) DO UPDATE SET x = (SELECT max(x) FROM c), y = (SELECT max(y) FROM d)
INSERT INTO a (id) VALUES (1) RETURNING id, x
WITH q AS (SELECT * FROM b) INSERT INTO a SELECT * FROM q
WITH a AS (SELECT * FROM b) INSERT INTO a SELECT * FROM a
WITH q AS (SELECT * FROM b) REPLACE INTO a SELECT * FROM q
INSERT INTO fts (body) VALUES ('FROM a')
UPDATE OR IGNORE a SET x = 1
UPDATE OR REPLACE main.a SET x = 1
UPDATE a INDEXED BY a_x SET y = 1 WHERE x = 1
UPDATE a NOT INDEXED SET x = 1
UPDATE a SET (x, y) = (SELECT x, y FROM b)
UPDATE a SET x = b.x FROM b WHERE a.id = b.id
UPDATE a AS q SET x = r.x FROM b r JOIN c ON c.id = r.id, d WHERE q.id = r.id RETURNING x
UPDATE a SET x = 1 RETURNING *
WITH q AS (SELECT * FROM b) UPDATE a SET x = 1 WHERE id IN (SELECT id FROM q)
DELETE FROM main.a
DELETE FROM a AS q WHERE q.id = 1 RETURNING id
DELETE FROM a NOT INDEXED WHERE id = 1
WITH q AS (SELECT * FROM b) DELETE FROM a WHERE id IN (SELECT id FROM q)
+ CREATE TABLE fresh AS SELECT * FROM a
DROP TABLE a
DROP TABLE IF EXISTS main.a
+ ALTER TABLE a RENAME TO fresh
ALTER TABLE main.a ADD COLUMN z INTEGER
+ ALTER TABLE a RENAME COLUMN x TO z
`
