"""What a machine's GPUs do with this code: `etude gpu check`."""
