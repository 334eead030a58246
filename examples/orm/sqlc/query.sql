-- Where the hint stands decides whether it survives: sqlc removes comments that
-- have a line to themselves, and keeps those within a line.

-- name: ProductByID :one
SELECT /* @cache ttl=30s swr=5m tags=product/{1} */ id, name, price
FROM herd_products
WHERE id = $1;

-- name: ProductsUnder :many
SELECT id, name, price
FROM herd_products /* @cache ttl=30s */
WHERE price < sqlc.arg(most)::int
ORDER BY id;

-- name: HintOnALineOfItsOwn :one
-- @cache ttl=30s
/* @cache ttl=30s */
SELECT name
FROM herd_products
WHERE id = $1;

-- name: HintInALineComment :one
SELECT name -- @cache ttl=30s
FROM herd_products
WHERE id = $1;

-- name: HintLikeAnOptimizers :one
SELECT name
/*+ @cache ttl=30s */
FROM herd_products
WHERE id = $1;

-- name: HintAtTheEnd :one
SELECT price
FROM herd_products
WHERE id = $1 /* @cache ttl=30s */;

-- name: CreateProduct :exec
INSERT INTO herd_products (id, name, price) VALUES ($1, $2, $3);

-- name: SetPrice :exec
UPDATE /* @invalidate tags=product/{1} */ herd_products SET price = $2 WHERE id = $1;
