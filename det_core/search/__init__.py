"""Search methods, which decide which trials exist and how long each one trains."""
