-- Reply    queries that began; the most connections that were open at one moment
--
-- A connection counts from when the server accepted it until its last answer.

WITH life AS (
  SELECT min(connected) AS opened, max(at) AS closed FROM SCHEMA.answered GROUP BY pid, connected
), event AS (
  SELECT opened AS at, 1 AS step FROM life
  UNION ALL
  SELECT closed, -1 FROM life
), running AS (
  SELECT sum(step) OVER (ORDER BY at, step DESC ROWS UNBOUNDED PRECEDING) AS conns FROM event
)
SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM SCHEMA.queries),
       (SELECT coalesce(max(conns), 0) FROM running)
