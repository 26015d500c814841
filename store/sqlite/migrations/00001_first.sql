-- +goose Up

-- The log. A row holds the events first..last of one session, one JSON line
-- each, or the folded ranges that retention left of them.
CREATE TABLE log (
    session TEXT NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (session, first) -- a reader looks for the row that contains its next seq
) STRICT;

-- The newest events of all logs, in the order of the commits. They move to the
-- log in larger pieces: a commit writes to one page here where it would write
-- to a page for each session there.
CREATE TABLE tail (
    n    INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- Folds of logs, so that a session is loaded without reading all of its log.
CREATE TABLE snapshots (
    session TEXT PRIMARY KEY,
    version INTEGER NOT NULL, -- of what a state holds; others are not read
    seq     INTEGER NOT NULL,
    body    BLOB NOT NULL
) STRICT;

CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    title      TEXT NOT NULL,
    search     TEXT NOT NULL, -- the title in lower case
    agent      TEXT NOT NULL,
    status     TEXT NOT NULL,
    run        TEXT NOT NULL,
    approvals  INTEGER NOT NULL,
    inbox      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    created_at INTEGER NOT NULL, -- milliseconds since 1970, here and below
    updated_at INTEGER NOT NULL
) STRICT;
-- An owner's list, the last changed first, from any place on.
CREATE INDEX sessions_of_owner ON sessions (tenant, owner, updated_at, id);

-- Messages that can no longer change.
CREATE TABLE messages (
    session TEXT NOT NULL,
    id      TEXT NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (session, id) -- a client chooses the id, so it is unique in its session only
) STRICT;

CREATE TABLE runs (
    id          TEXT PRIMARY KEY,
    session     TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    owner       TEXT NOT NULL,
    status      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    queued_at   INTEGER NOT NULL,
    finished_at INTEGER,
    first       INTEGER NOT NULL,           -- the seq at which it was queued
    last        INTEGER,                    -- the seq at which it was last changed, once it has ended
    folded      INTEGER NOT NULL DEFAULT 0, -- 1: its deltas are folded away
    body        BLOB NOT NULL
) STRICT;
-- An owner's list, the last queued first. A list of several statuses merges one range of each.
CREATE INDEX runs_of_owner ON runs (tenant, owner, status, queued_at, id);
-- A session's list, and what goes when the session does.
CREATE INDEX runs_of_session ON runs (session, queued_at, id);
-- What retention looks at next.
CREATE INDEX runs_to_fold ON runs (finished_at) WHERE finished_at IS NOT NULL AND folded = 0;

CREATE TABLE approvals (
    id           TEXT PRIMARY KEY,
    session      TEXT NOT NULL,
    run          TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    owner        TEXT NOT NULL,
    status       TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    body         BLOB NOT NULL
) STRICT;
-- As for runs.
CREATE INDEX approvals_of_owner ON approvals (tenant, owner, status, requested_at, id);
CREATE INDEX approvals_of_session ON approvals (session, requested_at, id);

-- What runs ask of the engine. A run that asks nothing has no row.
CREATE TABLE work (
    run         TEXT PRIMARY KEY,
    session     TEXT NOT NULL,
    due_at      INTEGER,          -- a worker may claim it from then on
    turn        INTEGER NOT NULL, -- its place among those with the same due_at
    worker      TEXT,             -- who holds it
    fence       INTEGER NOT NULL,
    lease_until INTEGER,          -- until when worker holds it
    cancel_by   INTEGER           -- when a recorded cancel must have taken effect
) STRICT, WITHOUT ROWID;
-- Each question that the engine asks over and over is the beginning of an index.
CREATE INDEX work_due ON work (due_at, turn) WHERE due_at IS NOT NULL;
CREATE INDEX work_leases ON work (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX work_cancels ON work (cancel_by) WHERE cancel_by IS NOT NULL;

-- Who may read which blob. The content is in a file named by the hash.
CREATE TABLE blobs (
    session    TEXT NOT NULL,
    hash       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    PRIMARY KEY (session, hash)
) STRICT, WITHOUT ROWID;
-- Whether anybody still names a file.
CREATE INDEX blobs_of_hash ON blobs (hash);

-- Files that nobody names any more and that are about to be removed.
CREATE TABLE blob_trash (
    hash TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- One row that is written to find out whether writing works.
CREATE TABLE probe (
    written_at INTEGER NOT NULL
) STRICT;
INSERT INTO probe (written_at) VALUES (0);
