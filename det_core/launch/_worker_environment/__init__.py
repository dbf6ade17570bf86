"""Environment of workers: variables of the cluster, search path, thread limits, and free ports."""
