-- What waits for the fleet, and where this node stands there. Programs that do
-- not know it can use the file; what they commit does not get into the outbox.

-- A tuning of this node that the fleet has not been given yet; what is
-- delivered is what the tuning is then. sequence: never given twice in one
-- epoch. epoch: of the daemon's start that wrote the row. One row for each key,
-- the newest.
CREATE TABLE outbox (
  sequence INTEGER NOT NULL PRIMARY KEY,
  epoch INTEGER NOT NULL,
  environment_id INTEGER NOT NULL REFERENCES environments (environment_id),
  problem_text TEXT NOT NULL,
  checksum INTEGER NOT NULL,
  UNIQUE (environment_id, problem_text)
) STRICT;

-- outbox_sequence: the last one that was given. outbox_depth: rows of the
-- outbox. outbox_dropped: rows that its bound removed, outbox_superseded: rows
-- that a newer one of their key replaced, since the file was made.
-- fleet_release: the fleet's release that this node has taken; 0: none.
INSERT INTO meta (key, value) VALUES
  ('outbox_sequence', 0), ('outbox_depth', 0), ('outbox_dropped', 0), ('outbox_superseded', 0),
  ('fleet_release', 0);
