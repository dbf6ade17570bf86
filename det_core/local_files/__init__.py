"""Checksums and syncs of local files, and work on many of them in threads."""
