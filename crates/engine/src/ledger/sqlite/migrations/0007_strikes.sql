-- Whether a closed order counts against its user: it held units, and nobody paid for them.
ALTER TABLE orders ADD COLUMN strike INTEGER NOT NULL DEFAULT 0;
CREATE INDEX orders_strike ON orders (sale, user) WHERE strike = 1;
