-- A store as version 1 wrote it, by `sqlite3 history.db .dump`.
PRAGMA auto_vacuum = 2;
PRAGMA application_id = 1415137353;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE run (
  id            INTEGER PRIMARY KEY,
  uid           TEXT NOT NULL UNIQUE,
  source        TEXT NOT NULL,
  cluster       TEXT NOT NULL,
  namespace     TEXT NOT NULL,
  name          TEXT NOT NULL,
  kind          TEXT NOT NULL,
  team          TEXT NOT NULL,
  ranks         INTEGER NOT NULL,
  accelerators  INTEGER,
  created       INTEGER NOT NULL,
  began         INTEGER,
  ended         INTEGER,
  outcome       TEXT,
  cause         TEXT,
  sentence      TEXT,
  attempts      INTEGER NOT NULL DEFAULT 0,
  last_step     INTEGER,
  phase         TEXT,
  phase_since   INTEGER,
  phase_attempt INTEGER,
  seen          INTEGER NOT NULL,
  next_seq      INTEGER NOT NULL DEFAULT 0,
  complete      INTEGER NOT NULL DEFAULT 0,
  detail        INTEGER NOT NULL DEFAULT 1,
  excerpts      INTEGER NOT NULL DEFAULT 1
);
INSERT INTO run VALUES(1,'a','/runs','','default','mnist','PyTorchJob','vision',8,4,1767312000000,1767312000000,1767420000000,'succeeded',NULL,'done',2,500,NULL,NULL,NULL,1767312000000,12,1,1,1);
CREATE TABLE attempt (
  run         INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  began       INTEGER,
  ended       INTEGER,
  pod         TEXT,
  message     TEXT,
  step        INTEGER,
  account     TEXT,
  label       TEXT,
  fingerprint TEXT,
  confidence  TEXT,
  sentence    TEXT,
  rank        INTEGER,
  node        TEXT,
  verdict     TEXT,
  PRIMARY KEY (run, n)
) WITHOUT ROWID;
INSERT INTO attempt VALUES(1,1,1767312000000,1767384000000,'mnist-worker-1','exit code 1',120,'infrastructure',NULL,NULL,NULL,NULL,NULL,'node-a',NULL);
INSERT INTO attempt VALUES(1,2,1767384000000,1767420000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE span (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  began   INTEGER NOT NULL,
  ended   INTEGER NOT NULL,
  attempt INTEGER,
  phase   TEXT NOT NULL,
  ms      INTEGER NOT NULL,
  exact   INTEGER NOT NULL,
  PRIMARY KEY (run, seq, part)
) WITHOUT ROWID;
INSERT INTO span VALUES(1,3,0,1767312000000,1767315600000,1,'queued',3600000,1);
INSERT INTO span VALUES(1,4,0,1767315600000,1767319200000,1,'starting',3600000,1);
INSERT INTO span VALUES(1,5,0,1767319200000,1767384000000,1,'training',64800000,1);
INSERT INTO span VALUES(1,9,0,1767384000000,1767387600000,2,'restarting',3600000,1);
INSERT INTO span VALUES(1,10,0,1767387600000,1767420000000,2,'training',32400000,1);
CREATE TABLE seat (
  run        INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  slot       TEXT NOT NULL,
  first_rank INTEGER,
  ranks      INTEGER NOT NULL,
  node       TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
INSERT INTO seat VALUES(1,2,1767312000000,1,'Worker 1',1,1,'node-a');
INSERT INTO seat VALUES(1,8,1767384000000,2,'Worker 1',1,1,'node-b');
CREATE TABLE pod (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  slot    TEXT NOT NULL,
  state   TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE event (
  run      INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  attempt  INTEGER,
  sentence TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE checkpoint (
  run      INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  attempt  INTEGER,
  step     INTEGER NOT NULL,
  bytes    INTEGER NOT NULL,
  stall_ms INTEGER,
  write_ms INTEGER,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE excerpt (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  rank    INTEGER,
  file    TEXT NOT NULL,
  line    INTEGER NOT NULL,
  text    TEXT NOT NULL,
  PRIMARY KEY (run, seq, part)
) WITHOUT ROWID;
CREATE TABLE node_fact (
  run     INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  node    TEXT NOT NULL,
  kind    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  detail  TEXT NOT NULL,
  PRIMARY KEY (run, seq, part)
) WITHOUT ROWID;
INSERT INTO node_fact VALUES(1,6,0,1767384000000,'node-a','failed',1,'exit code 1');
CREATE TABLE gap (
  run   INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  began INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE run_day (
  run    INTEGER NOT NULL,
  day    TEXT NOT NULL,
  phase  TEXT NOT NULL,
  ms     INTEGER NOT NULL,
  gpu_ms INTEGER NOT NULL,
  PRIMARY KEY (run, day, phase)
) WITHOUT ROWID;
INSERT INTO run_day VALUES(1,'2026-01-02','queued',3600000,0);
INSERT INTO run_day VALUES(1,'2026-01-02','restarting',3600000,14400000);
INSERT INTO run_day VALUES(1,'2026-01-02','starting',3600000,14400000);
INSERT INTO run_day VALUES(1,'2026-01-02','training',75600000,302400000);
INSERT INTO run_day VALUES(1,'2026-01-03','training',21600000,86400000);
CREATE TABLE phase_day (
  day       TEXT NOT NULL,
  namespace TEXT NOT NULL,
  team      TEXT NOT NULL,
  phase     TEXT NOT NULL,
  ms        INTEGER NOT NULL,
  gpu_ms    INTEGER NOT NULL,
  PRIMARY KEY (day, namespace, team, phase)
) WITHOUT ROWID;
INSERT INTO phase_day VALUES('2026-01-02','default','vision','queued',3600000,0);
INSERT INTO phase_day VALUES('2026-01-02','default','vision','restarting',3600000,14400000);
INSERT INTO phase_day VALUES('2026-01-02','default','vision','starting',3600000,14400000);
INSERT INTO phase_day VALUES('2026-01-02','default','vision','training',75600000,302400000);
INSERT INTO phase_day VALUES('2026-01-03','default','vision','training',21600000,86400000);
CREATE INDEX run_created ON run (created);
CREATE INDEX run_ended ON run (ended);
CREATE INDEX attempt_ended ON attempt (ended);
CREATE INDEX attempt_fingerprint ON attempt (fingerprint, ended);
CREATE INDEX node_fact_node ON node_fact (node, at);
CREATE VIEW v1_run AS
  SELECT uid, cluster, namespace, name, kind, team, ranks, accelerators, created, began, ended, outcome, cause, sentence,
         attempts, last_step, phase, phase_since, seen
  FROM run;
CREATE VIEW v1_attempt AS
  SELECT run.uid AS run, run.namespace, run.name, run.kind, run.team, attempt.n AS attempt, attempt.began, attempt.ended,
         attempt.pod, attempt.message, attempt.step, attempt.account, attempt.label, attempt.fingerprint, attempt.confidence,
         attempt.sentence, attempt.rank, attempt.node, attempt.verdict
  FROM attempt JOIN run ON run.id = attempt.run;
CREATE VIEW v1_span AS
  SELECT run.uid AS run, run.namespace, run.name, run.team, span.attempt, span.phase, span.began, span.ended, span.ms, span.exact
  FROM span JOIN run ON run.id = span.run;
CREATE VIEW v1_node_fact AS
  SELECT node_fact.node, node_fact.at, node_fact.kind, run.uid AS run, run.namespace, run.name, run.team, node_fact.attempt,
         node_fact.detail
  FROM node_fact JOIN run ON run.id = node_fact.run;
CREATE VIEW v1_phase_day AS
  SELECT day, namespace, team, phase, ms, gpu_ms FROM phase_day;
COMMIT;
PRAGMA user_version = 1;
