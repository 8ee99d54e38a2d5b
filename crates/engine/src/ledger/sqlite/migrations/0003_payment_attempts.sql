-- One order's way to pay at one provider. It is bound to its order for ever.
CREATE TABLE payment_attempt (
    id        BLOB    PRIMARY KEY,
    ord       BLOB    NOT NULL,
    provider  TEXT    NOT NULL,
    reference TEXT,
    url       TEXT,
    begun_at  INTEGER NOT NULL,
    UNIQUE (provider, reference)
) STRICT, WITHOUT ROWID;

-- What an event said, and what became of one that is not decided as a payment.
ALTER TABLE payment_event ADD COLUMN kind TEXT;
ALTER TABLE payment_event ADD COLUMN ord BLOB;
ALTER TABLE payment_event ADD COLUMN amount_minor INTEGER;
ALTER TABLE payment_event ADD COLUMN currency TEXT;
ALTER TABLE payment_event ADD COLUMN outcome TEXT;
CREATE INDEX payment_event_of_order ON payment_event (ord) WHERE ord IS NOT NULL;
