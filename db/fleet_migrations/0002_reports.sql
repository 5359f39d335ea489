-- What reports read: for each key all nodes' current rows in one, made anew
-- whenever the key is pooled, in the same transaction.
CREATE TABLE report_groups (
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  row_count integer NOT NULL,
  rows bytea NOT NULL,
  PRIMARY KEY (environment_id, problem_id)
);
-- They are numbers that do not compress, and are always read whole.
ALTER TABLE report_groups ALTER COLUMN rows SET STORAGE EXTERNAL;

-- What was pooled without them.
INSERT INTO pool_queue (environment_id, problem_id) SELECT environment_id, problem_id FROM pooled
  ON CONFLICT DO NOTHING;
