"""Environment of workers: variables of the cluster, thread limits, and free ports."""
