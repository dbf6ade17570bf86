"""Names of the files in a checkpoint of a `PyTorchTrial`."""

STATE_FILE = "state_dict.pth"
"""Name of the file with the training state."""
SHARD_DIRECTORY = "shards"
"""Directory in a checkpoint for models and optimizers that slots wrote in parts (`_shards`)."""
