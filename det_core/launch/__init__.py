"""Where the processes of a trial start: the local launcher, a backend's workers, and their entry point."""
