-- How long what waits on a node has waited, as its agent said last.
ALTER TABLE nodes ADD COLUMN outbox_lag_seconds real NOT NULL DEFAULT 0;

-- What is done now and then by whichever agent comes first.
CREATE TABLE upkeep (
  what text PRIMARY KEY,
  last_time timestamptz NOT NULL
);
INSERT INTO upkeep (what, last_time) VALUES ('thin', '-infinity');

-- What thinning looks for.
CREATE INDEX evidence_superseded ON evidence (receive_time) WHERE NOT current;
