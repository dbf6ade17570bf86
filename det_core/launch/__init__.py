"""Local launcher, start of a backend's workers, and the entry point of workers."""
