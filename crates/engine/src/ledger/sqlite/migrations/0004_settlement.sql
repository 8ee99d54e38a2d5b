-- A payment that comes too late waits (outcome LATE) for the order that buys again. Once that order is
-- paid by it, its id stands in `retake`.
ALTER TABLE payment ADD COLUMN retake BLOB;
CREATE INDEX payment_late ON payment (at, provider, payment_id) WHERE outcome = 'LATE';
CREATE INDEX payment_of_order ON payment (ord);
CREATE INDEX orders_retaken ON orders (retake_of) WHERE retake_of IS NOT NULL;

-- What was said of one payment, for a success that comes behind its own refund.
CREATE INDEX payment_event_of_payment ON payment_event (provider, payment_id) WHERE kind = 'REFUNDED';

-- Money to be given back, until the provider has confirmed it or refused for good.
CREATE TABLE refund (
    provider     TEXT    NOT NULL,
    payment_id   TEXT    NOT NULL,
    ord          BLOB    NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency     TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    reference    TEXT,
    said         TEXT,
    tries        INTEGER NOT NULL DEFAULT 0,
    -- Nobody asks before this time.
    due_at       INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (provider, payment_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX refund_due ON refund (provider, due_at) WHERE state = 'DUE';
CREATE INDEX refund_of_order ON refund (ord);
INSERT INTO refund (provider, payment_id, ord, amount_minor, currency, state, due_at, at)
    SELECT provider, payment_id, ord, amount_minor, currency, 'DUE', at, at FROM payment WHERE outcome = 'REFUND_DUE';

-- An attempt is open until the provider's side has ended. From `ask_at` on the provider is asked for
-- that: behind the order's deadline, or once the order is closed.
ALTER TABLE payment_attempt ADD COLUMN closed_at INTEGER;
ALTER TABLE payment_attempt ADD COLUMN ask_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE payment_attempt ADD COLUMN asks INTEGER NOT NULL DEFAULT 0;
UPDATE payment_attempt SET ask_at = (SELECT expires_at FROM orders WHERE orders.id = payment_attempt.ord);
CREATE INDEX payment_attempt_open ON payment_attempt (ord) WHERE closed_at IS NULL;
CREATE INDEX payment_attempt_due ON payment_attempt (provider, ask_at) WHERE closed_at IS NULL;

-- Units return at a random moment: who polls for the second of their return gains nothing.
ALTER TABLE release_row ADD COLUMN due_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX release_row_due ON release_row (due_at);
