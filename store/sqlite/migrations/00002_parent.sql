-- +goose Up

-- The session of the tool call that a subagent's session is for.
ALTER TABLE sessions ADD COLUMN parent TEXT NOT NULL DEFAULT '';
