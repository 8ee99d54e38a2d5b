-- Whether a closed order counts against its user: it held units, and nobody paid for them.
ALTER TABLE orders ADD COLUMN strike boolean NOT NULL DEFAULT false;
CREATE INDEX orders_strike ON orders (sale, user_id) WHERE strike;
