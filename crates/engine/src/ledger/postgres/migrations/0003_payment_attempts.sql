-- One order's way to pay at one provider. It is bound to its order for ever.
CREATE TABLE payment_attempt (
    id        uuid   PRIMARY KEY,
    ord       uuid   NOT NULL,
    provider  text   NOT NULL,
    reference text,
    url       text,
    begun_at  bigint NOT NULL,
    UNIQUE (provider, reference)
);

-- What an event said, and what became of one that is not decided as a payment.
ALTER TABLE payment_event
    ADD COLUMN kind         text,
    ADD COLUMN ord          uuid,
    ADD COLUMN amount_minor bigint,
    ADD COLUMN currency     text,
    ADD COLUMN outcome      text;
CREATE INDEX payment_event_of_order ON payment_event (ord);
