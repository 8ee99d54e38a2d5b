-- Whom the staff keeps out: users and networks, of one sale or of all (sale 0). Rows are never deleted; one that was
-- lifted says by whom and why. `changed` is the number of the last thing that happened to a row, which gateways follow.
CREATE TABLE block (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    kind          TEXT    NOT NULL,
    value         TEXT    NOT NULL,
    sale          INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    set_by        TEXT    NOT NULL,
    at            INTEGER NOT NULL,
    lifted_reason TEXT,
    lifted_by     TEXT,
    lifted_at     INTEGER,
    changed       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX block_standing ON block (value, kind, sale) WHERE lifted_at IS NULL;
CREATE INDEX block_value ON block (value, id);
CREATE UNIQUE INDEX block_changed ON block (changed);

-- One row: the newest number, and how many blocks stand.
CREATE TABLE block_state (
    changed  INTEGER NOT NULL,
    standing INTEGER NOT NULL
) STRICT;
INSERT INTO block_state (changed, standing) VALUES (0, 0);
