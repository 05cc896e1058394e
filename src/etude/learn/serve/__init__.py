"""An OpenAI-compatible server over the sampling engine: `etude serve`."""
