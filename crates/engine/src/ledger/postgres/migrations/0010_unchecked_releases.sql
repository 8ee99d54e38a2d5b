-- A release row is written for an order that is there: by whoever has just written it or holds its lock, or for one that
-- is closed, which never changes. Nothing deletes orders. Checking it once more for each row took 12 of the 30 ms that
-- closing 500 orders took. Both tables are locked at once, in the order in which batches lock them.
LOCK TABLE orders, release_row IN ACCESS EXCLUSIVE MODE;
ALTER TABLE release_row DROP CONSTRAINT release_row_ord_fkey;
