-- +goose Up

-- Programs that know fewer migrations than this must not use the tables.
-- Migrations only add, so that programs of several versions work side by side;
-- one that takes something away raises this first.
CREATE TABLE compatibility (oldest bigint NOT NULL);
INSERT INTO compatibility (oldest) VALUES (1);

-- One row a session, which whoever writes to it locks: it is the order of its log.
-- Little room is taken in a page, so that each update stays in it.
CREATE TABLE heads (
    session text COLLATE "C" PRIMARY KEY,
    born    bigint NOT NULL, -- a random number for each life of an id
    seq     bigint NOT NULL  -- of the last event
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- One row for each connection that writes: which of its transactions was the
-- last. Who does not know whether a commit took effect finds out here.
CREATE TABLE writers (
    id    uuid PRIMARY KEY,
    batch bigint NOT NULL,
    at    timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The log. A row holds the events first..last of one session, one JSON line
-- each, or the folded ranges that retention left of them. A commit adds a small
-- row; retention packs them into large ones, which PostgreSQL compresses and keeps apart.
CREATE TABLE log (
    session text COLLATE "C" NOT NULL,
    first   bigint NOT NULL,
    last    bigint NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (session, first) -- a reader looks for the row that contains its next seq
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Folds of logs, so that a session is loaded without reading all of its log.
CREATE TABLE snapshots (
    session text COLLATE "C" NOT NULL,
    version integer NOT NULL, -- of what a state holds; a program reads its own
    seq     bigint NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (session, version)
);

-- Text that people and models choose is bytea: it may hold a NUL, which text may not.
CREATE TABLE sessions (
    id         text COLLATE "C" PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    title      bytea NOT NULL,
    search     bytea NOT NULL, -- the title in lower case
    agent      bytea NOT NULL,
    status     text COLLATE "C" NOT NULL,
    run        text COLLATE "C" NOT NULL,
    approvals  integer NOT NULL,
    inbox      integer NOT NULL,
    seq        bigint NOT NULL,
    created_at bigint NOT NULL, -- milliseconds since 1970, here and below
    updated_at bigint NOT NULL
);
-- An owner's list, the last changed first, from any place on.
CREATE INDEX sessions_of_owner ON sessions (tenant, owner, updated_at, id);

-- Messages that can no longer change.
CREATE TABLE messages (
    session text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (session, id) -- a client chooses the id, so it is unique in its session only
);

CREATE TABLE runs (
    id          text COLLATE "C" PRIMARY KEY,
    session     text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    queued_at   bigint NOT NULL,
    finished_at bigint,
    first       bigint NOT NULL,                -- the seq at which it was queued
    last        bigint,                         -- the seq at which it was last changed, once it has ended
    folded      boolean NOT NULL DEFAULT false, -- its deltas are folded away
    body        bytea NOT NULL
);
-- An owner's list, the last queued first. A list of several statuses merges one range of each.
CREATE INDEX runs_of_owner ON runs (tenant, owner, status, queued_at, id);
-- A session's list, and what goes when the session does.
CREATE INDEX runs_of_session ON runs (session, queued_at, id);
-- What retention looks at next.
CREATE INDEX runs_to_fold ON runs (finished_at) WHERE finished_at IS NOT NULL AND NOT folded;

CREATE TABLE approvals (
    id           text COLLATE "C" PRIMARY KEY,
    session      text COLLATE "C" NOT NULL,
    run          text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    owner        text COLLATE "C" NOT NULL,
    status       text COLLATE "C" NOT NULL,
    requested_at bigint NOT NULL,
    body         bytea NOT NULL
);
-- As for runs.
CREATE INDEX approvals_of_owner ON approvals (tenant, owner, status, requested_at, id);
CREATE INDEX approvals_of_session ON approvals (session, requested_at, id);

-- What runs ask of the engine. A run that asks nothing has no row.
CREATE SEQUENCE turns;
CREATE TABLE work (
    run         text COLLATE "C" PRIMARY KEY,
    session     text COLLATE "C" NOT NULL,
    due_at      bigint,          -- a worker may claim it from then on
    turn        bigint NOT NULL, -- its place among those with the same due_at
    worker      text,            -- who holds it
    fence       bigint NOT NULL,
    lease_until bigint,          -- until when worker holds it
    cancel_by   bigint           -- when a recorded cancel must have taken effect
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
-- Each question that the engines ask over and over is the beginning of an index.
CREATE INDEX work_due ON work (due_at, turn) WHERE due_at IS NOT NULL;
CREATE INDEX work_leases ON work (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX work_cancels ON work (cancel_by) WHERE cancel_by IS NOT NULL;
CREATE INDEX work_of_session ON work (session);

-- Large values, by session and the hash of their content, in parts of one mebibyte.
CREATE TABLE blobs (
    id         uuid PRIMARY KEY,
    session    text COLLATE "C" NOT NULL,
    hash       text COLLATE "C" NOT NULL,
    size       bigint NOT NULL,
    media_type bytea NOT NULL,
    put_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (session, hash)
);
CREATE TABLE blob_parts (
    blob uuid NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
    n    integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (blob, n)
);
