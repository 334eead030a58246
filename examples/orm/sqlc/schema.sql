CREATE TABLE herd_products (
	id bigint PRIMARY KEY,
	name text NOT NULL,
	price int NOT NULL
);
