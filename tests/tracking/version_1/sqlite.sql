BEGIN TRANSACTION;
CREATE TABLE checkpoints (
	id INTEGER NOT NULL, 
	uuid TEXT NOT NULL, 
	trial_id INTEGER NOT NULL, 
	run_id BIGINT NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	steps_completed BIGINT, 
	storage TEXT NOT NULL, 
	resources TEXT NOT NULL, 
	metadata TEXT NOT NULL, 
	time DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (uuid), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
);
INSERT INTO "checkpoints" VALUES(1,'c',1,1,'COMPLETED',5,'{"type":"directory"}','{"w":1}','{"steps_completed":5}','2026-11-21 02:22:59.794126');
CREATE TABLE det_schema (
	version INTEGER NOT NULL, 
	release TEXT NOT NULL
);
INSERT INTO "det_schema" VALUES(1,'0.1.0');
CREATE TABLE experiments (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	state VARCHAR(32) NOT NULL, 
	name TEXT NOT NULL, 
	description TEXT NOT NULL, 
	notes TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	job_id TEXT NOT NULL, 
	config TEXT NOT NULL, 
	original_config TEXT NOT NULL, 
	labels TEXT NOT NULL, 
	progress DOUBLE NOT NULL, 
	error TEXT, 
	unmanaged BOOLEAN NOT NULL, 
	archived BOOLEAN NOT NULL, 
	external_id TEXT, 
	forked_from INTEGER, 
	start_time DATETIME NOT NULL, 
	end_time DATETIME, 
	lease_holder TEXT, 
	lease_expires DOUBLE, 
	model_definition BLOB NOT NULL, 
	UNIQUE (external_id), 
	FOREIGN KEY(forked_from) REFERENCES experiments (id)
);
INSERT INTO "experiments" VALUES(1,'QUEUED','old','','','ada','67d73018-a990-41c7-bec5-d97b7bc86238','{"name":"old","labels":["\u00e9"]}','','["\u00e9"]',0.0,NULL,0,0,NULL,NULL,'2026-11-21 02:22:59.773814',NULL,NULL,NULL,X'00746172');
CREATE TABLE logs (
	id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	run_id BIGINT NOT NULL, 
	rank INTEGER NOT NULL, 
	stdtype TEXT NOT NULL, 
	level TEXT NOT NULL, 
	log TEXT NOT NULL, 
	time DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
);
INSERT INTO "logs" VALUES(1,1,1,0,'stdout','INFO','hello','2026-11-21 02:22:59.796460');
CREATE TABLE metrics (
	id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	run_id BIGINT NOT NULL, 
	steps_completed BIGINT NOT NULL, 
	"group" TEXT NOT NULL, 
	metrics TEXT NOT NULL, 
	batch_metrics TEXT, 
	time DATETIME NOT NULL, 
	archived BOOLEAN NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
);
INSERT INTO "metrics" VALUES(1,1,1,5,'validation','{"loss":0.5,"worst":"NaN"}',NULL,'2026-11-21 02:22:59.789056',0);
CREATE TABLE runs (
	trial_id INTEGER NOT NULL, 
	run_id BIGINT NOT NULL, 
	allocation_id TEXT NOT NULL, 
	preemption_acknowledged BOOLEAN NOT NULL, 
	early_exit TEXT, 
	start_time DATETIME NOT NULL, 
	end_time DATETIME, 
	PRIMARY KEY (trial_id, run_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
);
INSERT INTO "runs" VALUES(1,1,'first',0,NULL,'2026-11-21 02:22:59.785383','2026-11-21 02:22:59.798421');
CREATE TABLE trials (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	experiment_id INTEGER NOT NULL, 
	request_id BIGINT NOT NULL, 
	state VARCHAR(32) NOT NULL, 
	hparams TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	run_id BIGINT NOT NULL, 
	restarts BIGINT NOT NULL, 
	steps_completed BIGINT NOT NULL, 
	runner_state TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	external_id TEXT, 
	start_time DATETIME NOT NULL, 
	end_time DATETIME, 
	UNIQUE (experiment_id, external_id), 
	FOREIGN KEY(experiment_id) REFERENCES experiments (id), 
	UNIQUE (task_id)
);
INSERT INTO "trials" VALUES(1,1,0,'COMPLETED','{"lr":0.1}',7,1,0,5,'','1.f8a11337-1c83-44b4-a49c-b8c4eb660303',NULL,'2026-11-21 02:22:59.777700','2026-11-21 02:22:59.797521');
CREATE INDEX trials_of_experiment ON trials (experiment_id);
CREATE INDEX metrics_archived ON metrics (trial_id, steps_completed, "group") WHERE archived = 1;
CREATE UNIQUE INDEX metrics_live ON metrics (trial_id, steps_completed, "group") WHERE archived = 0;
CREATE INDEX checkpoints_of_trial ON checkpoints (trial_id);
CREATE INDEX logs_of_trial ON logs (trial_id, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('experiments',1);
INSERT INTO "sqlite_sequence" VALUES('trials',1);
COMMIT;
