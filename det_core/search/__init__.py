"""Search methods: which trials exist and how long each trains."""
