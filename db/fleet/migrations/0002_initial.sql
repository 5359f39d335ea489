-- The fleet's tables in PostgreSQL; README.md says what comments here do not. All
-- of them are in the schema that the migrating connection has first in its
-- search_path. Times that decide anything are this server's.
--
-- What agents may do ends where others are served: rows of a node are its login's, what
-- is shared is written once, and decisions have digests.

-- The functions below find nothing but the tables of this schema.
DO $$ BEGIN PERFORM set_config('search_path', current_schema() || ', pg_temp', true); END $$;

-- Numbers of this database mean nothing in another: whoever keeps some asks first
-- whether the fleet is still the same. compatible_version: the oldest program that
-- can use this schema, by the schema version that it knows.
CREATE TABLE fleet (
  fleet_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  compatible_version integer NOT NULL DEFAULT 2
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

-- A node with a forget_time is gone, and the next one of its name is another. Its evidence
-- counts on, for each key until a later node of its name has its own.
CREATE TABLE nodes (
  node_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
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
  last_error text NOT NULL DEFAULT '',
  -- The login whose agent registered the node, which alone may write its rows. NULL: nobody's
  -- yet, or that of an agent which may write every node's.
  login text,
  -- Why the node does not take the release that it should serve.
  release_error text NOT NULL DEFAULT '',
  -- Numbers of the bans that hold on the node, as of its last turn.
  heeded_bans bigint[] NOT NULL DEFAULT '{}',
  forget_time timestamptz
);
CREATE UNIQUE INDEX nodes_name ON nodes (name) WHERE forget_time IS NULL;

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
  -- The node's agent takes problems that the fleet has queued (not --no-tune).
  tunes boolean NOT NULL DEFAULT true,
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

-- Tunings that were pooled, by what is in them: convtune.v1.Tuning.
CREATE TABLE pooled_payloads (
  digest bytea PRIMARY KEY CHECK (length(digest) = 16),
  payload bytea NOT NULL
);

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
  digest bytea NOT NULL CHECK (length(digest) = 16) REFERENCES pooled_payloads,
  -- The input of reports: all nodes' current rows in one.
  report_rows bytea NOT NULL,
  -- Who stands behind it: PooledTuning of db/fleet/evidence.h.
  voices integer[] NOT NULL DEFAULT '{}',
  left_out integer[] NOT NULL DEFAULT '{}',
  dissenters integer[] NOT NULL DEFAULT '{}',
  agreeing integer NOT NULL DEFAULT 0,
  PRIMARY KEY (environment_id, problem_id)
);
CREATE INDEX pooled_by_digest ON pooled (digest);
-- Report rows are numbers that do not compress, and are always read whole.
ALTER TABLE pooled ALTER COLUMN report_rows SET STORAGE EXTERNAL;

-- Keys whose evidence changed since it was pooled.
CREATE TABLE pool_queue (
  environment_id integer NOT NULL REFERENCES environments,
  problem_id integer NOT NULL REFERENCES problems,
  queue_time timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (environment_id, problem_id)
);

-- Releases, pins and bans are decisions. digest: the SHA-256 of what was decided, by the
-- program of whoever decided it. Nodes refuse a decision that has another content, or no
-- digest. public_key, signature: as of a bundle with that digest; NULL or empty: not signed.

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
  end_login text NOT NULL DEFAULT '',
  digest bytea CHECK (length(digest) = 32),
  public_key bytea,
  signature bytea,
  -- Names of the nodes that were drawn for a canary, which are in its digest.
  canary_nodes text[] NOT NULL DEFAULT '{}'
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
  login text NOT NULL DEFAULT session_user,
  digest bytea CHECK (length(digest) = 32),
  public_key bytea,
  signature bytea
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
  end_login text NOT NULL DEFAULT '',
  digest bytea CHECK (length(digest) = 32),
  public_key bytea,
  signature bytea
);
CREATE INDEX bans_active ON bans (ban_id) WHERE end_time IS NULL;

-- Names of nodes whose evidence does not count while end_time is NULL, also that of
-- forgotten and of later nodes of the name.
CREATE TABLE distrusts (
  distrust_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node text NOT NULL,
  author text NOT NULL,
  reason text NOT NULL,
  create_time timestamptz NOT NULL DEFAULT now(),
  end_author text NOT NULL DEFAULT '',
  end_time timestamptz,
  login text NOT NULL DEFAULT session_user,
  end_login text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX distrusts_active ON distrusts (node) WHERE end_time IS NULL;

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
  -- How many nodes are to measure it, and those that did: never one twice.
  nodes_wanted smallint NOT NULL DEFAULT 1,
  tuned_by integer[] NOT NULL DEFAULT '{}',
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

ALTER TABLE nodes ENABLE ROW LEVEL SECURITY;
CREATE POLICY nodes_read ON nodes FOR SELECT USING (true);
CREATE POLICY nodes_add ON nodes FOR INSERT
  WITH CHECK (login = session_user AND forget_time IS NULL);
CREATE POLICY nodes_own ON nodes FOR UPDATE
  USING (forget_time IS NULL AND (login IS NULL OR login = session_user))
  WITH CHECK (forget_time IS NULL AND login = session_user);

DO $$
DECLARE
  each text;
BEGIN
  FOREACH each IN ARRAY '{node_epochs,node_devices,provenances,evidence,wanted}'::text[] LOOP
    EXECUTE format('ALTER TABLE %1$I ENABLE ROW LEVEL SECURITY;'
      'CREATE POLICY %1$s_read ON %1$I FOR SELECT USING (true);'
      'CREATE POLICY %1$s_own ON %1$I USING ((SELECT n.login FROM nodes n WHERE n.node_id = '
      '%1$I.node_id) = session_user)', each);
  END LOOP;
END $$;

-- An agent takes what waits or was lost, and ends what its node has. Whoever decides
-- may end all.
ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY tasks_read ON tasks FOR SELECT USING (true);
CREATE POLICY tasks_add ON tasks FOR INSERT WITH CHECK (state = 1);
CREATE POLICY tasks_take ON tasks FOR UPDATE
  USING (state = 1 OR (state = 2 AND (lease_until < clock_timestamp() OR
    (SELECT n.login FROM nodes n WHERE n.node_id = tasks.node_id) = session_user)))
  WITH CHECK (node_id IS NULL OR
    (SELECT n.login FROM nodes n WHERE n.node_id = tasks.node_id) = session_user);
CREATE POLICY tasks_decide ON tasks FOR UPDATE
  USING (has_table_privilege('releases'::regclass, 'INSERT'));

-- Has the evidence of these keys pooled by whoever decides next.
CREATE FUNCTION queue_pooling(environment_ids integer[], problem_ids integer[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  -- In one order, so that two who deliver cannot block each other.
  INSERT INTO pool_queue (environment_id, problem_id)
    SELECT DISTINCT e, p FROM unnest(environment_ids, problem_ids) AS k(e, p) ORDER BY 1, 2
    ON CONFLICT (environment_id, problem_id) DO UPDATE SET queue_time = now();
$$;

-- True for the first who asks within a day.
CREATE FUNCTION thin_is_due() RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH due AS (UPDATE upkeep SET last_time = now() WHERE what = 'thin' AND last_time < now() -
    interval '1 day' RETURNING 1)
  SELECT EXISTS (SELECT 1 FROM due);
$$;

-- Removes up to so many rows of each kind that count for nothing any more, and are older
-- than `keep`.
CREATE FUNCTION thin(keep interval, most bigint, OUT evidence_count bigint,
  OUT task_count bigint, OUT payload_count bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM evidence WHERE evidence_id IN (SELECT evidence_id FROM evidence WHERE NOT current
    AND receive_time < now() - keep LIMIT most);
  GET DIAGNOSTICS evidence_count = ROW_COUNT;
  DELETE FROM tasks WHERE task_id IN (SELECT task_id FROM tasks WHERE state IN (3, 5) AND
    end_time < now() - keep LIMIT most);
  GET DIAGNOSTICS task_count = ROW_COUNT;
  DELETE FROM batches b WHERE create_time < now() - keep AND NOT EXISTS (SELECT 1 FROM tasks t
    WHERE t.batch_id = b.batch_id);
  -- Whoever pools writes a payload and refers to it in one transaction, and may refer to
  -- one that was there: the lock waits for those, and keeps others out until what nothing
  -- refers to is gone.
  LOCK TABLE pooled_payloads IN SHARE ROW EXCLUSIVE MODE;
  DELETE FROM pooled_payloads y WHERE NOT EXISTS (SELECT 1 FROM pooled p WHERE p.digest =
    y.digest) AND NOT EXISTS (SELECT 1 FROM release_choices c WHERE c.digest = y.digest);
  GET DIAGNOSTICS payload_count = ROW_COUNT;
END $$;

CREATE FUNCTION forget_node(gone integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  UPDATE nodes SET forget_time = now() WHERE node_id = gone AND forget_time IS NULL;
  UPDATE node_devices SET current = false WHERE node_id = gone;
  DELETE FROM wanted WHERE node_id = gone;
$$;

REVOKE ALL ON FUNCTION queue_pooling, thin_is_due, thin, forget_node FROM PUBLIC;
