-- The fleet's tables in PostgreSQL; README.md says what comments here do not. All
-- of them are in the schema that the migrating connection has first in its
-- search_path. Times that decide anything are this server's.

-- Numbers of this database mean nothing in another: whoever keeps some asks first
-- whether the fleet is still the same. compatible_version: the oldest program that
-- can use this schema, by the schema version that it knows.
CREATE TABLE fleet (
  fleet_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  compatible_version integer NOT NULL DEFAULT 1
);
INSERT INTO fleet DEFAULT VALUES;

CREATE TABLE environments (
  environment_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  text text NOT NULL UNIQUE,
  name text NOT NULL,
  gpu_model text NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE problems (
  problem_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  text text NOT NULL UNIQUE,
  create_time timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE nodes (
  node_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE,
  create_time timestamptz NOT NULL DEFAULT now(),
  -- The agent's last heartbeat; last_seen: its time by this server's clock.
  last_seen timestamptz NOT NULL DEFAULT now(),
  agent_version text NOT NULL DEFAULT '',
  daemon_version text NOT NULL DEFAULT '',
  daemon_start_time timestamptz,
  -- The node's clock less this server's, in microseconds.
  clock_offset_us bigint NOT NULL DEFAULT 0,
  tuning_count bigint NOT NULL DEFAULT 0,
  lookups bigint NOT NULL DEFAULT 0,
  hits bigint NOT NULL DEFAULT 0,
  outbox_depth bigint NOT NULL DEFAULT 0,
  -- For how long tunings have waited on the node without a delivery, as of the last
  -- heartbeat.
  outbox_lag_seconds real NOT NULL DEFAULT 0,
  outbox_dropped bigint NOT NULL DEFAULT 0,
  duplicate_count bigint NOT NULL DEFAULT 0,
  -- Number of the fleet release that the node serves; 0: none yet.
  release_number bigint NOT NULL DEFAULT 0,
  -- Counts of the fleet's pins and bans that the node could not apply, and for each
  -- the error of the first one.
  unapplied_pins integer NOT NULL DEFAULT 0,
  pin_error text NOT NULL DEFAULT '',
  unapplied_bans integer NOT NULL DEFAULT 0,
  ban_error text NOT NULL DEFAULT '',
  -- release_missing: problems that release_number has and the node lacks.
  -- release_extra: problems that the node has from a fleet and release_number lacks.
  release_missing integer NOT NULL DEFAULT 0,
  release_extra integer NOT NULL DEFAULT 0,
  last_error text NOT NULL DEFAULT ''
);

-- One row for each epoch of a node. Each start of the daemon that writes a row to its
-- outbox begins a new epoch, also after a restore from a backup. A sequence number
-- is never given twice in one epoch. ordinal: the epochs of a node in the order in
-- which their first deliveries came in.
CREATE TABLE node_epochs (
  node_id integer NOT NULL REFERENCES nodes,
  epoch bigint NOT NULL,
  ordinal integer NOT NULL,
  last_sequence bigint NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (node_id, epoch),
  UNIQUE (node_id, ordinal)
);

-- Devices that a node has now or had.
CREATE TABLE node_devices (
  node_id integer NOT NULL REFERENCES nodes,
  device text NOT NULL,
  environment_id integer NOT NULL REFERENCES environments,
  driver_version text NOT NULL,
  current boolean NOT NULL,
  last_seen timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (node_id, device, environment_id)
);
CREATE INDEX node_devices_by_environment ON node_devices (environment_id) WHERE current;

-- Places where measurements were taken: a node, its GPU and its libraries.
CREATE TABLE provenances (
  provenance_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id integer NOT NULL REFERENCES nodes,
  driver_version text NOT NULL,
  cuda_version text NOT NULL,
  cublaslt_build text NOT NULL,
  nvrtc_build text NOT NULL,
  gpu_uuid text NOT NULL,
  memory_bytes bigint NOT NULL,
  UNIQUE (node_id, driver_version, cuda_version, cublaslt_build, nvrtc_build, gpu_uuid,
    memory_bytes)
);

-- One row for each delivery of a tuning by a node. current: the delivery that counts
-- for the node, problem and environment. That is the one of the best standing
-- (evidence, full_listing, clean); of equals one that is not relayed; of equals the
-- newest by (epoch_ordinal, sequence).
CREATE TABLE evidence (
  evidence_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id integer NOT NULL REFERENCES nodes,
  epoch_ordinal integer NOT NULL,
  sequence bigint NOT NULL,
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  provenance_id integer NOT NULL REFERENCES provenances,
  receive_time timestamptz NOT NULL DEFAULT now(),
  evidence smallint NOT NULL,
  full_listing boolean NOT NULL,
  clean boolean NOT NULL,
  current boolean NOT NULL,
  -- The tuning came from the fleet, which lost it; this node did not measure it.
  relayed boolean NOT NULL DEFAULT false,
  digest bytea NOT NULL CHECK (length(digest) = 16),
  -- The whole tuning, without samples: convtune.v1.Tuning. NULL: not current.
  payload bytea CHECK (current = (payload IS NOT NULL)),
  UNIQUE (node_id, epoch_ordinal, sequence)
);
CREATE UNIQUE INDEX evidence_current ON evidence (environment_id, problem_id, node_id) WHERE current;
-- For thinning.
CREATE INDEX evidence_superseded ON evidence (receive_time) WHERE NOT current;

-- One row for each problem and environment: the pooled tuning of all nodes' current
-- evidence; see client/fleet/README.md, "Pooling".
CREATE TABLE pooled (
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  winner text,
  winner_us double precision,
  winner_high_us double precision,
  -- Those that can be an answer, the best first, and the low end of each one's interval
  -- (Infinity: not timed).
  candidates text[] NOT NULL,
  lows_us double precision[] NOT NULL,
  node_count integer NOT NULL,
  evidence smallint NOT NULL,
  digest bytea NOT NULL CHECK (length(digest) = 16),
  -- The input of reports: all nodes' current rows in one.
  report_rows bytea NOT NULL,
  PRIMARY KEY (environment_id, problem_id)
);
-- Report rows are numbers that do not compress, and are always read whole.
ALTER TABLE pooled ALTER COLUMN report_rows SET STORAGE EXTERNAL;

-- Keys whose evidence changed since it was pooled.
CREATE TABLE pool_queue (
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  queue_time timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (environment_id, problem_id)
);

-- Tunings that were pooled, by what is in them: convtune.v1.Tuning.
CREATE TABLE pooled_payloads (
  digest bytea PRIMARY KEY CHECK (length(digest) = 16),
  payload bytea NOT NULL
);

-- state: 1 promoted, 2 canary, 3 rolled back, as in the daemon. Numbers are given
-- under a lock that is held until the commit: whoever sees N sees all below.
CREATE TABLE releases (
  release_number bigint PRIMARY KEY CHECK (release_number > 0),
  state smallint NOT NULL CHECK (state BETWEEN 1 AND 3),
  canary_permille smallint NOT NULL CHECK (canary_permille BETWEEN 0 AND 999),
  restores bigint REFERENCES releases,
  change_count integer NOT NULL,
  author text NOT NULL,
  reason text NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now(),
  end_author text NOT NULL DEFAULT '',
  end_reason text NOT NULL DEFAULT '',
  end_time timestamptz,
  -- The database users who were logged in; author and end_author are texts that the
  -- users gave.
  login text NOT NULL DEFAULT session_user,
  end_login text NOT NULL DEFAULT ''
);
-- One canary at a time.
CREATE UNIQUE INDEX releases_one_canary ON releases (state) WHERE state = 2;

-- The choice that a problem is served from a release on, until a later one that was not
-- rolled back has another. Without a digest: nothing, and the winner is the one
-- that was withdrawn.
CREATE TABLE release_choices (
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  release_number bigint NOT NULL REFERENCES releases,
  winner text,
  winner_us double precision,
  node_count integer NOT NULL,
  evidence smallint NOT NULL,
  digest bytea REFERENCES pooled_payloads,
  PRIMARY KEY (environment_id, problem_id, release_number)
);
CREATE INDEX release_choices_by_release ON release_choices (release_number);

-- An operator's decision, which overrides releases until it ends.
CREATE TABLE pins (
  pin_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  candidate text NOT NULL,
  author text NOT NULL,
  reason text NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now(),
  expire_time timestamptz,
  end_author text NOT NULL DEFAULT '',
  end_time timestamptz,
  login text NOT NULL DEFAULT session_user
);
CREATE UNIQUE INDEX pins_active ON pins (environment_id, problem_id) WHERE end_time IS NULL;

-- Candidates that are no answer on any node, as in the daemon: texts, and numbers of
-- proto/model/enums.h, of which 0 is any.
CREATE TABLE bans (
  ban_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  candidate text NOT NULL,
  cudnn text NOT NULL,
  gpu text NOT NULL,
  operation smallint NOT NULL,
  data_type smallint NOT NULL,
  layout smallint NOT NULL,
  author text NOT NULL,
  reason text NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now(),
  expire_time timestamptz,
  end_author text NOT NULL DEFAULT '',
  end_time timestamptz,
  login text NOT NULL DEFAULT session_user,
  end_login text NOT NULL DEFAULT ''
);
CREATE INDEX bans_active ON bans (ban_id) WHERE end_time IS NULL;

-- Tasks that were queued together. kind: 1 tune, 2 verify after an upgrade.
CREATE TABLE batches (
  batch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind smallint NOT NULL CHECK (kind IN (1, 2)),
  author text NOT NULL,
  reason text NOT NULL,
  budget_ms integer NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now()
);

-- state: 1 queued, 2 leased, 3 done, 4 dead, 5 cancelled.
CREATE TABLE tasks (
  task_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch_id bigint NOT NULL REFERENCES batches,
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  weight double precision NOT NULL,
  state smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 5),
  failures smallint NOT NULL DEFAULT 0,
  lost_leases smallint NOT NULL DEFAULT 0,
  node_id integer REFERENCES nodes,
  lease_token bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  not_before timestamptz NOT NULL DEFAULT '-infinity',
  end_time timestamptz,
  UNIQUE (batch_id, environment_id, problem_id)
);
-- Tasks that may be claimed, the one with the greatest weight first.
CREATE INDEX tasks_open ON tasks (environment_id, weight DESC, task_id) WHERE state IN (1, 2);
CREATE INDEX tasks_dead ON tasks (batch_id) WHERE state = 4;

-- Every attempt that ended without a result.
CREATE TABLE task_failures (
  task_id bigint NOT NULL REFERENCES tasks ON DELETE CASCADE,
  attempt integer NOT NULL,
  node_id integer REFERENCES nodes,
  lost_lease boolean NOT NULL,
  reason text NOT NULL,
  end_time timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (task_id, attempt)
);

-- Problems that programs of a node asked for and got no answer for, with the counts
-- of that node.
CREATE TABLE wanted (
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  node_id integer NOT NULL REFERENCES nodes,
  misses bigint NOT NULL,
  PRIMARY KEY (environment_id, problem_id, node_id)
);

-- Recurring work of the fleet, each with the time when an agent did it last. The
-- first agent that finds it due does it.
CREATE TABLE upkeep (
  what text PRIMARY KEY,
  last_time timestamptz NOT NULL
);
INSERT INTO upkeep (what, last_time) VALUES ('thin', '-infinity');
