-- What the shop is told of beside the steps of orders, which are in order_event. Append only.
CREATE TABLE shop_event (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    kind  TEXT    NOT NULL,
    sale  INTEGER NOT NULL,
    item  INTEGER,
    units INTEGER,
    at    INTEGER NOT NULL
) STRICT;

-- Up to which event of each list deliveries are written down for an endpoint.
CREATE TABLE event_endpoint (
    name         TEXT    PRIMARY KEY,
    order_cursor INTEGER NOT NULL,
    shop_cursor  INTEGER NOT NULL
) STRICT;

-- One event on its way to one endpoint.
CREATE TABLE event_delivery (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint     TEXT    NOT NULL,
    -- Which list the event is in, and its number there.
    list         TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    event        TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    -- The order or the sale. Its events are told one after the other.
    subject      TEXT    NOT NULL,
    state        TEXT    NOT NULL DEFAULT 'waiting',
    -- All attempts; the number names a claim.
    attempts     INTEGER NOT NULL DEFAULT 0,
    -- Those since it was planned or replayed, for the waits between them.
    tries        INTEGER NOT NULL DEFAULT 0,
    next_at      INTEGER NOT NULL,
    leased_until INTEGER NOT NULL DEFAULT 0,
    attempted_at INTEGER,
    status       INTEGER,
    answer       TEXT,
    UNIQUE (endpoint, event)
) STRICT;
CREATE INDEX event_delivery_due ON event_delivery (endpoint, next_at, id) WHERE state = 'waiting';
CREATE INDEX event_delivery_of_subject ON event_delivery (subject, endpoint, id);
CREATE INDEX event_delivery_ended ON event_delivery (endpoint, attempted_at) WHERE state <> 'waiting';
CREATE INDEX event_delivery_dead ON event_delivery (endpoint, id) WHERE state = 'dead';
