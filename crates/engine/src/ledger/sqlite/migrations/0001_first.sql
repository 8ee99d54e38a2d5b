-- The ledger's first schema. User ids are bytes: `Bob`, `bob` and `bob ` are three users.
-- Times are milliseconds since 1970-01-01T00:00:00Z, money is minor units.

CREATE TABLE sale (
    id                INTEGER PRIMARY KEY,
    name              TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    opens_at          INTEGER NOT NULL,
    closes_at         INTEGER NOT NULL,
    payment_window_ms INTEGER NOT NULL,
    unit_limit        INTEGER NOT NULL CHECK (unit_limit >= 1),
    epoch             INTEGER NOT NULL DEFAULT 0,
    -- The highest step of this epoch's stock that an order was recorded from.
    recorded_seq      INTEGER NOT NULL DEFAULT 0,
    fence_reason      TEXT,
    fence_token       INTEGER,
    fence_since       INTEGER
) STRICT;

CREATE TABLE item (
    id               INTEGER PRIMARY KEY,
    sale             INTEGER NOT NULL REFERENCES sale (id),
    product_id       TEXT    NOT NULL,
    title            TEXT    NOT NULL,
    quantity         INTEGER NOT NULL,
    sold             INTEGER NOT NULL DEFAULT 0,
    paid             INTEGER NOT NULL DEFAULT 0,
    price_minor      INTEGER NOT NULL,
    currency         TEXT    NOT NULL,
    list_price_minor INTEGER,
    CHECK (0 <= paid AND paid <= sold AND sold <= quantity)
) STRICT;
CREATE INDEX item_of_sale ON item (sale, id);

CREATE TABLE buyer (
    sale  INTEGER NOT NULL REFERENCES sale (id),
    user  BLOB    NOT NULL,
    units INTEGER NOT NULL CHECK (units >= 0),
    PRIMARY KEY (sale, user)
) STRICT, WITHOUT ROWID;

-- Only the id is unique: a user whose order expired may order again.
CREATE TABLE orders (
    id          BLOB    PRIMARY KEY,
    sale        INTEGER NOT NULL REFERENCES sale (id),
    item        INTEGER NOT NULL REFERENCES item (id),
    user        BLOB    NOT NULL,
    units       INTEGER NOT NULL,
    total_minor INTEGER NOT NULL,
    currency    TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    reason      TEXT,
    reserved_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    hold_until  INTEGER NOT NULL,
    bucket      INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    trace       TEXT,
    retake_of   BLOB,
    -- Where the record stood that made the row; absent for rows made otherwise.
    part        INTEGER,
    part_offset INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX orders_of_user ON orders (sale, user);
CREATE INDEX orders_due ON orders (hold_until) WHERE status = 'PENDING';

CREATE TABLE release_row (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    ord  BLOB    NOT NULL UNIQUE REFERENCES orders (id),
    sale INTEGER NOT NULL REFERENCES sale (id),
    user BLOB    NOT NULL
) STRICT;

CREATE TABLE payment (
    provider     TEXT    NOT NULL,
    payment_id   TEXT    NOT NULL,
    ord          BLOB    NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency     TEXT    NOT NULL,
    outcome      TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (provider, payment_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE payment_event (
    provider   TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    payment_id TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (provider, event_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue_offset (
    topic TEXT    NOT NULL,
    part  INTEGER NOT NULL,
    next  INTEGER NOT NULL,
    PRIMARY KEY (topic, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE epoch_barrier (
    sale    INTEGER NOT NULL REFERENCES sale (id),
    epoch   INTEGER NOT NULL,
    topic   TEXT    NOT NULL,
    part    INTEGER NOT NULL,
    barrier INTEGER NOT NULL,
    PRIMARY KEY (sale, epoch, topic, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE restock (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    operation BLOB    NOT NULL UNIQUE,
    sale      INTEGER NOT NULL REFERENCES sale (id),
    item      INTEGER NOT NULL REFERENCES item (id),
    units     INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    state     TEXT    NOT NULL,
    at        INTEGER NOT NULL
) STRICT;

-- Append only: every step of every order.
CREATE TABLE order_event (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    ord         BLOB    NOT NULL,
    from_status TEXT,
    to_status   TEXT    NOT NULL,
    at          INTEGER NOT NULL
) STRICT;

CREATE TABLE dead_letter (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    topic       TEXT    NOT NULL,
    part        INTEGER NOT NULL,
    part_offset INTEGER NOT NULL,
    bytes       BLOB    NOT NULL,
    why         TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    UNIQUE (topic, part, part_offset)
) STRICT;
