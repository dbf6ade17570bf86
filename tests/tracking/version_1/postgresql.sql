CREATE TABLE public.checkpoints (
    id bigint NOT NULL,
    uuid text NOT NULL,
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    state character varying(32) NOT NULL,
    steps_completed bigint,
    storage text NOT NULL,
    resources text NOT NULL,
    metadata text NOT NULL,
    "time" timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.checkpoints_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.checkpoints_id_seq OWNED BY public.checkpoints.id;
CREATE TABLE public.det_schema (
    version integer NOT NULL,
    release text NOT NULL
);
CREATE TABLE public.experiments (
    id bigint NOT NULL,
    state character varying(32) NOT NULL,
    name text NOT NULL,
    description text NOT NULL,
    notes text NOT NULL,
    owner text NOT NULL,
    job_id text NOT NULL,
    config text NOT NULL,
    original_config text NOT NULL,
    labels text NOT NULL,
    progress double precision NOT NULL,
    error text,
    unmanaged boolean NOT NULL,
    archived boolean NOT NULL,
    external_id text,
    forked_from bigint,
    start_time timestamp with time zone NOT NULL,
    end_time timestamp with time zone,
    lease_holder text,
    lease_expires double precision,
    model_definition bytea NOT NULL
);
CREATE SEQUENCE public.experiments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.experiments_id_seq OWNED BY public.experiments.id;
CREATE TABLE public.logs (
    id bigint NOT NULL,
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    rank integer NOT NULL,
    stdtype text NOT NULL,
    level text NOT NULL,
    log text NOT NULL,
    "time" timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.logs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.logs_id_seq OWNED BY public.logs.id;
CREATE TABLE public.metrics (
    id bigint NOT NULL,
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    steps_completed bigint NOT NULL,
    "group" text NOT NULL,
    metrics text NOT NULL,
    batch_metrics text,
    "time" timestamp with time zone NOT NULL,
    archived boolean NOT NULL
);
CREATE SEQUENCE public.metrics_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.metrics_id_seq OWNED BY public.metrics.id;
CREATE TABLE public.runs (
    trial_id bigint NOT NULL,
    run_id bigint NOT NULL,
    allocation_id text NOT NULL,
    preemption_acknowledged boolean NOT NULL,
    early_exit text,
    start_time timestamp with time zone NOT NULL,
    end_time timestamp with time zone
);
CREATE TABLE public.trials (
    id bigint NOT NULL,
    experiment_id bigint NOT NULL,
    request_id bigint NOT NULL,
    state character varying(32) NOT NULL,
    hparams text NOT NULL,
    seed bigint NOT NULL,
    run_id bigint NOT NULL,
    restarts bigint NOT NULL,
    steps_completed bigint NOT NULL,
    runner_state text NOT NULL,
    task_id text NOT NULL,
    external_id text,
    start_time timestamp with time zone NOT NULL,
    end_time timestamp with time zone
);
CREATE SEQUENCE public.trials_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trials_id_seq OWNED BY public.trials.id;
ALTER TABLE ONLY public.checkpoints ALTER COLUMN id SET DEFAULT nextval('public.checkpoints_id_seq'::regclass);
ALTER TABLE ONLY public.experiments ALTER COLUMN id SET DEFAULT nextval('public.experiments_id_seq'::regclass);
ALTER TABLE ONLY public.logs ALTER COLUMN id SET DEFAULT nextval('public.logs_id_seq'::regclass);
ALTER TABLE ONLY public.metrics ALTER COLUMN id SET DEFAULT nextval('public.metrics_id_seq'::regclass);
ALTER TABLE ONLY public.trials ALTER COLUMN id SET DEFAULT nextval('public.trials_id_seq'::regclass);
INSERT INTO public.checkpoints VALUES (1, 'c', 1, 1, 'COMPLETED', 5, '{"type":"directory"}', '{"w":1}', '{"steps_completed":5}', '2026-11-21 02:23:01.054129+00');
INSERT INTO public.det_schema VALUES (1, '0.1.0');
INSERT INTO public.experiments VALUES (1, 'QUEUED', 'old', '', '', 'ada', '882b3d89-e64e-4a4f-8e2d-b797a4a5974c', '{"name":"old","labels":["\u00e9"]}', '', '["\u00e9"]', 0, NULL, false, false, NULL, NULL, '2026-11-21 02:23:01.027479+00', NULL, NULL, NULL, '\x00746172');
INSERT INTO public.logs VALUES (1, 1, 1, 0, 'stdout', 'INFO', 'hello', '2026-11-21 02:23:01.057229+00');
INSERT INTO public.metrics VALUES (1, 1, 1, 5, 'validation', '{"loss":0.5,"worst":"NaN"}', NULL, '2026-11-21 02:23:01.045629+00', false);
INSERT INTO public.runs VALUES (1, 1, 'first', false, NULL, '2026-11-21 02:23:01.043207+00', '2026-11-21 02:23:01.061374+00');
INSERT INTO public.trials VALUES (1, 1, 0, 'COMPLETED', '{"lr":0.1}', 7, 1, 0, 5, '', '1.775d925d-252b-4b32-badf-37bcb736527a', NULL, '2026-11-21 02:23:01.032937+00', '2026-11-21 02:23:01.059746+00');
SELECT pg_catalog.setval('public.checkpoints_id_seq', 1, true);
SELECT pg_catalog.setval('public.experiments_id_seq', 1, true);
SELECT pg_catalog.setval('public.logs_id_seq', 1, true);
SELECT pg_catalog.setval('public.metrics_id_seq', 1, true);
SELECT pg_catalog.setval('public.trials_id_seq', 1, true);
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_uuid_key UNIQUE (uuid);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT experiments_external_id_key UNIQUE (external_id);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT experiments_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.logs
    ADD CONSTRAINT logs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT metrics_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (trial_id, run_id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_experiment_id_external_id_key UNIQUE (experiment_id, external_id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_task_id_key UNIQUE (task_id);
CREATE INDEX checkpoints_of_trial ON public.checkpoints USING btree (trial_id);
CREATE INDEX logs_of_trial ON public.logs USING btree (trial_id, id);
CREATE INDEX metrics_archived ON public.metrics USING btree (trial_id, steps_completed, "group") WHERE (archived = true);
CREATE UNIQUE INDEX metrics_live ON public.metrics USING btree (trial_id, steps_completed, "group") WHERE (archived = false);
CREATE INDEX trials_of_experiment ON public.trials USING btree (experiment_id);
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(id);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT experiments_forked_from_fkey FOREIGN KEY (forked_from) REFERENCES public.experiments(id);
ALTER TABLE ONLY public.logs
    ADD CONSTRAINT logs_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(id);
ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT metrics_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(id);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_trial_id_fkey FOREIGN KEY (trial_id) REFERENCES public.trials(id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT trials_experiment_id_fkey FOREIGN KEY (experiment_id) REFERENCES public.experiments(id);
