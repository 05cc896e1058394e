"""The tools of the presets `nano` and `full`: string arguments, all required; their bytes are what a trained model knows."""
