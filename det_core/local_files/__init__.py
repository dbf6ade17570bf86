"""Checksums and syncs of local files, access without following links, and work on many of them in threads."""
