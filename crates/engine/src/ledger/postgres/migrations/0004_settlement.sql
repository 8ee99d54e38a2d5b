-- A payment that comes too late waits (outcome LATE) for the order that buys again. Once that order is
-- paid by it, its id stands in `retake`.
ALTER TABLE payment ADD COLUMN retake uuid;
CREATE INDEX payment_late ON payment (at, provider, payment_id) WHERE outcome = 'LATE';
CREATE INDEX payment_of_order ON payment (ord);
CREATE INDEX orders_retaken ON orders (retake_of) WHERE retake_of IS NOT NULL;

-- What was said of one payment, for a success that comes behind its own refund.
CREATE INDEX payment_event_of_payment ON payment_event (provider, payment_id) WHERE kind = 'REFUNDED';

-- Money to be given back, until the provider has confirmed it or refused for good.
CREATE TABLE refund (
    provider     text   NOT NULL,
    payment_id   text   NOT NULL,
    ord          uuid   NOT NULL,
    amount_minor bigint NOT NULL,
    currency     text   NOT NULL,
    state        text   NOT NULL,
    reference    text,
    said         text,
    tries        bigint NOT NULL DEFAULT 0,
    -- Nobody asks before this time.
    due_at       bigint NOT NULL,
    at           bigint NOT NULL,
    PRIMARY KEY (provider, payment_id)
);
CREATE INDEX refund_due ON refund (provider, due_at) WHERE state = 'DUE';
CREATE INDEX refund_of_order ON refund (ord);
INSERT INTO refund (provider, payment_id, ord, amount_minor, currency, state, due_at, at)
    SELECT provider, payment_id, ord, amount_minor, currency, 'DUE', at, at FROM payment WHERE outcome = 'REFUND_DUE';

-- An attempt is open until the provider's side has ended. From `ask_at` on the provider is asked for
-- that: behind the order's deadline, or once the order is closed.
ALTER TABLE payment_attempt
    ADD COLUMN closed_at bigint,
    ADD COLUMN ask_at    bigint NOT NULL DEFAULT 0,
    ADD COLUMN asks      bigint NOT NULL DEFAULT 0;
UPDATE payment_attempt SET ask_at = (SELECT expires_at FROM orders WHERE orders.id = payment_attempt.ord);
CREATE INDEX payment_attempt_open ON payment_attempt (ord) WHERE closed_at IS NULL;
CREATE INDEX payment_attempt_due ON payment_attempt (provider, ask_at) WHERE closed_at IS NULL;

-- Units return at a random moment: who polls for the second of their return gains nothing.
ALTER TABLE release_row ADD COLUMN due_at bigint NOT NULL DEFAULT 0;
CREATE INDEX release_row_due ON release_row (due_at);
