-- The base schema. Words are spelled as in the API. Texts that are ordered or compared with what the program
-- has sorted stand in byte order (COLLATE "C"), whatever the database's own collation is.
-- Numbers are BIGINT throughout: generations are unsigned 32-bit numbers and do not fit an INTEGER.

-- Which installation the rows belong to: a cloned database must not delete another one's accounts.
CREATE TABLE installation (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    installation_id TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);

-- Outlives the pull secret: neither a generation nor a version is ever used twice, because account names and
-- ETags are made from them. Half-filled pages let a version be raised in place: it is raised by every step.
CREATE TABLE clusters (
    cluster_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    last_generation BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE pull_secrets (
    cluster_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES clusters (cluster_id),
    state TEXT COLLATE "C" NOT NULL,
    state_since TIMESTAMPTZ NOT NULL,
    served_generation BIGINT,
    served_since TIMESTAMPTZ,
    issuing_generation BIGINT,
    refusal_registry_id TEXT,
    refusal_message TEXT,
    registries JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    last_rotated_at TIMESTAMPTZ,
    next_rotation_at TIMESTAMPTZ,
    slot_at TIMESTAMPTZ,
    slot_failures BIGINT,
    slot_retry_at TIMESTAMPTZ,
    -- From when the interval counts, and what the cluster's schedule has of its own; empty is as configured.
    interval_from TIMESTAMPTZ,
    schedule_enabled BOOLEAN,
    schedule_next_at TIMESTAMPTZ,
    schedule_cron TEXT,
    schedule_length BIGINT,
    -- Dead accounts could not be replaced: how often, and when it is tried again.
    reissue_failures BIGINT,
    reissue_at TIMESTAMPTZ,
    quarantine_since TIMESTAMPTZ,
    quarantine_retry_at TIMESTAMPTZ,
    due_at TIMESTAMPTZ,
    -- The replica that may run its effects, and how often that changed.
    owner UUID,
    epoch BIGINT NOT NULL DEFAULT 0,
    CHECK ((served_generation IS NULL) = (served_since IS NULL)),
    CHECK ((refusal_registry_id IS NULL) = (refusal_message IS NULL)),
    CHECK ((slot_at IS NULL) = (slot_failures IS NULL) AND (slot_at IS NULL) = (slot_retry_at IS NULL)),
    CHECK ((schedule_cron IS NULL) = (schedule_length IS NULL)),
    CHECK ((reissue_failures IS NULL) = (reissue_at IS NULL)),
    CHECK ((quarantine_since IS NULL) = (quarantine_retry_at IS NULL))
);
CREATE INDEX pull_secrets_due ON pull_secrets (due_at, cluster_id) WHERE due_at IS NOT NULL;
CREATE INDEX pull_secrets_owned ON pull_secrets (owner, cluster_id) WHERE owner IS NOT NULL;
CREATE INDEX pull_secrets_by_state ON pull_secrets (state, cluster_id);
CREATE INDEX pull_secrets_refused ON pull_secrets (state, state_since, cluster_id)
    WHERE refusal_registry_id IS NOT NULL;
CREATE INDEX pull_secrets_quarantined ON pull_secrets (quarantine_since, cluster_id)
    WHERE quarantine_since IS NOT NULL;

-- Rows stay for ever: they are the record of names. `position` keeps the order in which the machine made them.
CREATE TABLE accounts (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id UUID NOT NULL UNIQUE,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES clusters (cluster_id),
    registry_id TEXT NOT NULL,
    name TEXT NOT NULL,
    born_generation BIGINT NOT NULL,
    phase TEXT NOT NULL,
    remote_id TEXT,
    username TEXT,
    call TEXT,
    call_token UUID,
    call_at TIMESTAMPTZ,
    unanswered_create_at TIMESTAMPTZ,
    trouble_since TIMESTAMPTZ,
    trouble_attempts BIGINT NOT NULL,
    -- Microseconds.
    trouble_spent BIGINT NOT NULL,
    trouble_counting_since TIMESTAMPTZ,
    trouble_blocked BOOLEAN NOT NULL,
    trouble_last_error TEXT,
    trouble_refused BOOLEAN NOT NULL,
    next_attempt_at TIMESTAMPTZ NOT NULL,
    planned_at TIMESTAMPTZ NOT NULL,
    created_at TIMESTAMPTZ,
    verified_at TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    gone_at TIMESTAMPTZ,
    gone_how TEXT,
    -- The last generation that it was part of, when it is verified again, how often it was found dead in a row.
    served_in BIGINT,
    check_at TIMESTAMPTZ,
    dead_looks BIGINT NOT NULL,
    -- Since when it is served although its verification says that it is dead.
    drifted_since TIMESTAMPTZ,
    UNIQUE (registry_id, name),
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
);
CREATE INDEX accounts_live ON accounts (cluster_id, position) WHERE phase <> 'gone';
CREATE INDEX accounts_by_generation ON accounts (cluster_id, born_generation, position);
CREATE INDEX accounts_by_username ON accounts (cluster_id, username) WHERE username IS NOT NULL;
CREATE INDEX accounts_open_calls ON accounts (cluster_id) WHERE call_token IS NOT NULL;
CREATE INDEX accounts_stuck ON accounts (trouble_since, account_id)
    WHERE trouble_since IS NOT NULL AND phase NOT IN ('gone', 'residue');
CREATE INDEX accounts_residue ON accounts (trouble_since, account_id) WHERE phase = 'residue';
CREATE INDEX accounts_burnt ON accounts (phase) WHERE phase = 'burnt';
CREATE INDEX accounts_drifted ON accounts (drifted_since, account_id) WHERE drifted_since IS NOT NULL;

-- Ciphertext, in a table of its own so that no state row ever holds it. `gone_at` is set when the account is
-- gone: the secret stays for a while, so that somebody who still presents it can be recognised.
CREATE TABLE account_secrets (
    account_id UUID NOT NULL PRIMARY KEY REFERENCES accounts (account_id),
    key_id TEXT COLLATE "C" NOT NULL,
    sealed BYTEA NOT NULL,
    gone_at TIMESTAMPTZ
);
CREATE INDEX account_secrets_by_key ON account_secrets (key_id, account_id);
CREATE INDEX account_secrets_gone ON account_secrets (gone_at) WHERE gone_at IS NOT NULL;

CREATE TABLE rotations (
    rotation_id UUID NOT NULL PRIMARY KEY,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES clusters (cluster_id),
    reason TEXT NOT NULL,
    force_immediate BOOLEAN NOT NULL,
    slot TIMESTAMPTZ,
    from_generation BIGINT NOT NULL,
    to_generation BIGINT NOT NULL,
    -- Which accounts it replaces.
    scope JSONB NOT NULL,
    status TEXT NOT NULL,
    running BOOLEAN NOT NULL,
    phase TEXT NOT NULL,
    deadline TIMESTAMPTZ,
    on_deadline TEXT,
    drifted BOOLEAN NOT NULL,
    rollback_at TIMESTAMPTZ,
    decided_at TIMESTAMPTZ,
    decided_why TEXT,
    ends_as TEXT,
    old_credentials_revoked BOOLEAN,
    error_code TEXT,
    error_message TEXT,
    error_registry_id TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    started_at TIMESTAMPTZ,
    promoted_at TIMESTAMPTZ,
    completed_at TIMESTAMPTZ,
    CHECK ((error_code IS NULL) = (error_message IS NULL))
);
CREATE UNIQUE INDEX rotations_running ON rotations (cluster_id) WHERE running;
-- A partial rotation may wait for the running one.
CREATE UNIQUE INDEX rotations_waiting ON rotations (cluster_id) WHERE status = 'pending' AND NOT running;
CREATE INDEX rotations_open ON rotations (cluster_id) WHERE status IN ('pending', 'in_progress');
CREATE UNIQUE INDEX rotations_slot ON rotations (cluster_id, slot)
    WHERE status = 'completed' AND slot IS NOT NULL;
CREATE INDEX rotations_by_cluster ON rotations (cluster_id, created_at, rotation_id);
CREATE INDEX rotations_by_time ON rotations (created_at, rotation_id);
CREATE INDEX rotations_by_status ON rotations (status, created_at, rotation_id);
-- The two phases in which a deadline that has passed is a matter for a person.
CREATE INDEX rotations_deadline ON rotations (deadline, rotation_id)
    WHERE phase IN ('dual_credential_period', 'rolling_back');
CREATE INDEX rotations_phase ON rotations (phase) WHERE running;
CREATE INDEX rotations_ended ON rotations (completed_at) WHERE NOT running;

CREATE TABLE consumers (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES pull_secrets (cluster_id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    generation BIGINT NOT NULL,
    observed_at TIMESTAMPTZ NOT NULL,
    UNIQUE (cluster_id, source, name)
);

-- Append-only, in streams that need no lock of the whole. The hash columns are empty where no audit key is set.
-- `detail` is JSON and not JSONB: the hash covers its text, which JSONB would spell in its own way.
CREATE TABLE audit_events (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream TEXT COLLATE "C" NOT NULL,
    sequence BIGINT NOT NULL,
    previous_hash BYTEA,
    hash BYTEA,
    at TIMESTAMPTZ NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    cluster_id TEXT COLLATE "C",
    rotation_id UUID,
    account TEXT,
    registry_id TEXT,
    generation BIGINT,
    detail JSON NOT NULL,
    reason TEXT,
    request_id TEXT,
    UNIQUE (stream, sequence)
);
CREATE INDEX audit_by_cluster ON audit_events (cluster_id, event_id) WHERE cluster_id IS NOT NULL;
CREATE INDEX audit_by_actor ON audit_events (actor, event_id);
CREATE INDEX audit_by_action ON audit_events (action, event_id);
CREATE INDEX audit_by_time ON audit_events (at, event_id);

-- The heads. Never pruned. `anchored` is the sequence of the last checkpoint. Whoever appends to a stream, anchors
-- it or prunes it holds the lock of its row here until the commit.
CREATE TABLE audit_streams (
    stream TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sequence BIGINT NOT NULL,
    hash BYTEA,
    anchored BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX audit_streams_moved ON audit_streams (stream) WHERE anchored < sequence;

-- At most two per stream: where its rows begin (the last one that was pruned), and its latest anchor; the log has
-- the earlier anchors. The seal is a keyed hash, so that nobody without the key can make rows look pruned.
CREATE TABLE audit_checkpoints (
    stream TEXT COLLATE "C" NOT NULL,
    pruned BOOLEAN NOT NULL,
    sequence BIGINT NOT NULL,
    hash BYTEA,
    at TIMESTAMPTZ NOT NULL,
    seal BYTEA,
    PRIMARY KEY (stream, pruned)
);

CREATE TABLE outbox (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id UUID NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    at TIMESTAMPTZ NOT NULL,
    data JSONB NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_attempt_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX outbox_due ON outbox (next_attempt_at, position);

-- Keyed hashes only, never a body. `status` is empty while the request is running; it is a lease then.
CREATE TABLE idempotency_keys (
    key_hash BYTEA NOT NULL,
    caller_hash BYTEA NOT NULL,
    body_hash BYTEA NOT NULL,
    holder UUID NOT NULL,
    lease_until TIMESTAMPTZ NOT NULL,
    status BIGINT,
    location TEXT,
    resource_id TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (key_hash, caller_hash)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

CREATE TABLE replicas (
    replica_id UUID NOT NULL PRIMARY KEY,
    counter BIGINT NOT NULL,
    key_ids JSONB NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL
);

-- Sweeps: when a registry's accounts are compared with ours, who is at it, what came of the last time.
CREATE TABLE sweeps (
    registry_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    due_at TIMESTAMPTZ NOT NULL,
    holder UUID,
    lease_until TIMESTAMPTZ,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    listed BIGINT,
    ours BIGINT,
    unknown_accounts BIGINT,
    foreign_accounts BIGINT,
    missing BIGINT,
    failed_at TIMESTAMPTZ,
    last_error TEXT,
    CHECK ((holder IS NULL) = (lease_until IS NULL)),
    CHECK ((started_at IS NULL) = (finished_at IS NULL)),
    CHECK ((failed_at IS NULL) = (last_error IS NULL))
);

-- Accounts at a registry that are ours and that no row wants. With `decided_at` their deletion goes on until the
-- registry says "gone"; `call_token` is that of the announced call.
CREATE TABLE unknown_accounts (
    -- In the same order as in `accounts`, so that the index there serves a join.
    registry_id TEXT NOT NULL,
    name TEXT NOT NULL,
    remote_id TEXT,
    cluster_id TEXT COLLATE "C",
    generation BIGINT,
    first_seen_at TIMESTAMPTZ NOT NULL,
    decided_at TIMESTAMPTZ,
    call_token UUID,
    call_at TIMESTAMPTZ,
    attempts BIGINT NOT NULL DEFAULT 0,
    next_attempt_at TIMESTAMPTZ,
    last_error TEXT,
    PRIMARY KEY (registry_id, name),
    CHECK ((call_token IS NULL) = (call_at IS NULL)),
    CHECK ((decided_at IS NULL) = (next_attempt_at IS NULL)),
    CHECK (decided_at IS NOT NULL OR call_token IS NULL)
);
CREATE INDEX unknown_accounts_due ON unknown_accounts (registry_id, next_attempt_at, name)
    WHERE next_attempt_at IS NOT NULL;

-- Whether any row names an account.
CREATE INDEX accounts_by_name ON accounts (name);

-- What is handed out, by registry.
CREATE INDEX accounts_serving ON accounts (registry_id, name) WHERE phase = 'serving';

-- The last time that the database was found to be older than what it has done.
CREATE TABLE restores (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    restored_at TIMESTAMPTZ NOT NULL,
    reason TEXT NOT NULL,
    acknowledged_at TIMESTAMPTZ,
    acknowledged_by TEXT,
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
);
CREATE INDEX restores_open ON restores (restored_at) WHERE acknowledged_at IS NULL;

-- The life of the database server that the rows were last written in, where it can be told.
CREATE TABLE timelines (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    timeline TEXT NOT NULL
);

-- Rotations that wait for their turn, until their cluster's next commit says otherwise. `turn_rank`: 0 asked for
-- by somebody, 1 by the schedule. Until `called_until` a place is kept.
CREATE TABLE rotation_turns (
    cluster_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES clusters (cluster_id),
    turn_rank BIGINT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    called_until TIMESTAMPTZ
);
CREATE INDEX rotation_turns_order ON rotation_turns (turn_rank, since, cluster_id);
CREATE INDEX rotation_turns_called ON rotation_turns (called_until) WHERE called_until IS NOT NULL;
CREATE INDEX accounts_deleting ON accounts (next_attempt_at, cluster_id) WHERE phase = 'deleting';

-- When a registry's own record of use is read next, and until when the last reading told.
CREATE TABLE usage_readings (
    registry_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    due_at TIMESTAMPTZ NOT NULL,
    read_until TIMESTAMPTZ,
    PRIMARY KEY (registry_id, scope)
);

-- Campaigns of rotations. The counters go with the rows of `campaign_clusters`, in the same transactions. Whoever
-- drives one has it until `driven_until`; it is empty once nothing is left to do.
CREATE TABLE campaigns (
    campaign_id UUID NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    message TEXT,
    reason TEXT NOT NULL,
    selector TEXT NOT NULL,
    selector_value TEXT,
    max_in_flight BIGINT NOT NULL,
    max_per_minute BIGINT NOT NULL,
    canary BIGINT NOT NULL,
    abort_failure_ratio DOUBLE PRECISION NOT NULL,
    total BIGINT NOT NULL,
    pending BIGINT NOT NULL,
    running BIGINT NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    gathered BOOLEAN NOT NULL,
    gathered_to TEXT COLLATE "C" NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    state_since TIMESTAMPTZ NOT NULL,
    completed_at TIMESTAMPTZ,
    driven_until TIMESTAMPTZ,
    CHECK (total = pending + running + succeeded + failed + skipped)
);
CREATE INDEX campaigns_driven ON campaigns (driven_until) WHERE driven_until IS NOT NULL;
CREATE INDEX campaigns_ended ON campaigns (completed_at) WHERE completed_at IS NOT NULL;

-- No reference to `clusters`: a campaign may name one that never existed, and says so.
CREATE TABLE campaign_clusters (
    campaign_id UUID NOT NULL REFERENCES campaigns (campaign_id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    cluster_id TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    rotation_id UUID,
    started_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ,
    detail TEXT,
    PRIMARY KEY (campaign_id, position),
    UNIQUE (campaign_id, cluster_id)
);
CREATE INDEX campaign_clusters_by_status ON campaign_clusters (campaign_id, status, position);
CREATE INDEX campaign_clusters_started ON campaign_clusters (campaign_id, started_at)
    WHERE started_at IS NOT NULL;

-- Break-glass. One row per cluster that ever had to do with it; it is never removed, because versions of the trust
-- bundle are never used twice.
CREATE TABLE break_glass (
    cluster_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    bundle_version BIGINT NOT NULL,
    confirmed_version BIGINT NOT NULL,
    quarantine_since TIMESTAMPTZ,
    quarantine_retry_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL,
    due_at TIMESTAMPTZ,
    -- The replica that may make its calls, and how often that changed.
    owner UUID,
    epoch BIGINT NOT NULL DEFAULT 0,
    CHECK ((quarantine_since IS NULL) = (quarantine_retry_at IS NULL))
);
CREATE INDEX break_glass_owned ON break_glass (owner, cluster_id) WHERE owner IS NOT NULL;
CREATE INDEX break_glass_quarantined ON break_glass (quarantine_since, cluster_id)
    WHERE quarantine_since IS NOT NULL;
CREATE INDEX break_glass_due ON break_glass (due_at, cluster_id) WHERE due_at IS NOT NULL;

-- `created_at` is empty for records from before it was written down.
CREATE TABLE break_glass_credentials (
    credential_id UUID NOT NULL PRIMARY KEY,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES break_glass (cluster_id),
    username TEXT COLLATE "C" NOT NULL,
    signer TEXT NOT NULL,
    control BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    step TEXT,
    revocation_id UUID,
    state_since TIMESTAMPTZ NOT NULL,
    message TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    reason TEXT,
    decided_by TEXT,
    signing_request TEXT,
    expires_at TIMESTAMPTZ NOT NULL,
    not_after TIMESTAMPTZ,
    signed_at TIMESTAMPTZ,
    endpoints JSONB NOT NULL,
    created_at TIMESTAMPTZ,
    accepted_at TIMESTAMPTZ,
    issued_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    call TEXT,
    call_token UUID,
    call_at TIMESTAMPTZ,
    trouble_since TIMESTAMPTZ,
    trouble_attempts BIGINT NOT NULL,
    trouble_spent BIGINT NOT NULL,
    trouble_counting_since TIMESTAMPTZ,
    trouble_blocked BOOLEAN NOT NULL,
    trouble_last_error TEXT,
    trouble_refused BOOLEAN NOT NULL,
    next_attempt_at TIMESTAMPTZ NOT NULL,
    CHECK ((not_after IS NULL) = (signed_at IS NULL)),
    CHECK ((step IS NOT NULL) = (state = 'issuing')),
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
);
CREATE INDEX break_glass_credentials_by_cluster ON break_glass_credentials (cluster_id, credential_id);
CREATE INDEX break_glass_credentials_working ON break_glass_credentials (cluster_id, credential_id)
    WHERE state NOT IN ('revoked', 'denied', 'failed', 'expired') OR call_token IS NOT NULL;
CREATE UNIQUE INDEX break_glass_credentials_names ON break_glass_credentials (cluster_id, username)
    WHERE state NOT IN ('revoked', 'denied', 'failed', 'expired');
CREATE INDEX break_glass_credentials_open_calls ON break_glass_credentials (cluster_id)
    WHERE call_token IS NOT NULL;
CREATE INDEX break_glass_credentials_by_state
    ON break_glass_credentials (state, state_since, credential_id);
CREATE INDEX break_glass_credentials_stuck ON break_glass_credentials (trouble_since, credential_id)
    WHERE trouble_since IS NOT NULL AND state NOT IN ('revoked', 'denied', 'failed', 'expired');

CREATE TABLE break_glass_revocations (
    revocation_id UUID NOT NULL PRIMARY KEY,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES break_glass (cluster_id),
    scope TEXT NOT NULL,
    state TEXT NOT NULL,
    state_since TIMESTAMPTZ NOT NULL,
    signer TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    progress TEXT,
    cut_off TIMESTAMPTZ,
    bundle_version BIGINT NOT NULL,
    endpoints JSONB NOT NULL,
    requested_by TEXT NOT NULL,
    reason TEXT,
    created_at TIMESTAMPTZ NOT NULL,
    ended_at TIMESTAMPTZ,
    call TEXT,
    call_token UUID,
    call_at TIMESTAMPTZ,
    trouble_since TIMESTAMPTZ,
    trouble_attempts BIGINT NOT NULL,
    trouble_spent BIGINT NOT NULL,
    trouble_counting_since TIMESTAMPTZ,
    trouble_blocked BOOLEAN NOT NULL,
    trouble_last_error TEXT,
    trouble_refused BOOLEAN NOT NULL,
    next_attempt_at TIMESTAMPTZ NOT NULL,
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
);
CREATE INDEX break_glass_revocations_by_cluster
    ON break_glass_revocations (cluster_id, created_at, revocation_id);
CREATE INDEX break_glass_revocations_working ON break_glass_revocations (cluster_id)
    WHERE ended_at IS NULL OR call_token IS NOT NULL;
CREATE UNIQUE INDEX break_glass_revocations_running ON break_glass_revocations (cluster_id)
    WHERE ended_at IS NULL AND scope = 'all';
CREATE INDEX break_glass_revocations_open_calls ON break_glass_revocations (cluster_id)
    WHERE call_token IS NOT NULL;
CREATE INDEX break_glass_revocations_stuck ON break_glass_revocations (trouble_since, revocation_id)
    WHERE trouble_since IS NOT NULL AND ended_at IS NULL;
CREATE INDEX break_glass_revocations_ended ON break_glass_revocations (ended_at)
    WHERE ended_at IS NOT NULL;

-- Authorities that no credential owns.
CREATE TABLE break_glass_authorities (
    authority_id UUID NOT NULL PRIMARY KEY,
    cluster_id TEXT COLLATE "C" NOT NULL REFERENCES break_glass (cluster_id),
    kind TEXT COLLATE "C" NOT NULL,
    made_at TIMESTAMPTZ,
    not_after TIMESTAMPTZ,
    call TEXT,
    call_token UUID,
    call_at TIMESTAMPTZ,
    trouble_since TIMESTAMPTZ,
    trouble_attempts BIGINT NOT NULL,
    trouble_spent BIGINT NOT NULL,
    trouble_counting_since TIMESTAMPTZ,
    trouble_blocked BOOLEAN NOT NULL,
    trouble_last_error TEXT,
    trouble_refused BOOLEAN NOT NULL,
    next_attempt_at TIMESTAMPTZ NOT NULL,
    CHECK ((call IS NULL) = (call_token IS NULL) AND (call IS NULL) = (call_at IS NULL))
);
CREATE INDEX break_glass_authorities_by_cluster
    ON break_glass_authorities (cluster_id, authority_id);

-- Public texts (PEM) of a credential or an authority.
CREATE TABLE break_glass_certificates (
    owner UUID NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    pem TEXT NOT NULL,
    PRIMARY KEY (owner, kind)
);

-- Ciphertext, in a table of its own so that no state row ever holds it. Gone as soon as nothing needs it.
CREATE TABLE break_glass_keys (
    owner UUID NOT NULL,
    purpose TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (owner, purpose)
);
CREATE INDEX break_glass_keys_by_key ON break_glass_keys (key_id, owner);
