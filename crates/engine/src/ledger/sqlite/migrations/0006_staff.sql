-- What the staff turned while sales ran. Append only: of each name and sale, the newest row stands. Sale 0 is all
-- sales; without a value, the configuration stands again.
CREATE TABLE switch (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT    NOT NULL,
    sale    INTEGER NOT NULL,
    value   TEXT,
    reason  TEXT    NOT NULL,
    set_by  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;
CREATE INDEX switch_newest ON switch (name, sale, id);

-- What the staff changed, written down before it is done. Append only but for how it ended, which is missing when
-- the process died meanwhile.
CREATE TABLE staff_action (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    done_by TEXT    NOT NULL,
    role    TEXT    NOT NULL,
    method  TEXT    NOT NULL,
    path    TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    request TEXT    NOT NULL,
    status  INTEGER
) STRICT;
