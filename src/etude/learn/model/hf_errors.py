"""What a `config.json` can be refused for."""


class UnsupportedConfig(ValueError):
    """A config.json describes a model that this code would compute wrongly or not at all."""
