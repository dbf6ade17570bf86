"""Table of the methods of the tracking store that write nothing."""

from __future__ import annotations

READING_METHODS = frozenset(
    {
        "access_token",
        "access_tokens",
        "actions",
        "best_validation",
        "changes",
        "checkpoint",
        "checkpoint_validations",
        "checkpoints",
        "cluster_id",
        "count_experiments",
        "curves",
        "experiment",
        "experiment_summaries",
        "experiments",
        "experiments_by_id",
        "latest_logs",
        "lease_holder",
        "lease_holders",
        "logs",
        "metric_names",
        "metrics",
        "model",
        "model_definition",
        "model_version",
        "model_versions",
        "models",
        "password_hash",
        "registered_checkpoints",
        "run",
        "runs",
        "scored_checkpoints",
        "search_events",
        "search_snapshot",
        "searcher_operation",
        "system_metrics",
        "trial",
        "trial_results",
        "trials",
        "trials_by_id",
        "trials_using",
        "user",
        "users",
    }
)
"""Methods that a client may repeat as they are, and that a user may call who may not write.

All other methods count as writing. A test executes all methods and checks that exactly those open a transaction for
writing."""
