"""Checkpoints of the Core API: saving, merging the files of ranks, recording and restoring."""
