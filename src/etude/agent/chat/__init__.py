"""Messages to tokens and back: renderers per model family, tool-call parsers, loss spans."""
