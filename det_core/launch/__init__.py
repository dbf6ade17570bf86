"""Where the processes of a trial start: the local launcher and the worker's entry point."""
