"""Training state, shards, old layouts, safe loading and staging of the checkpoints of PyTorch trials."""
