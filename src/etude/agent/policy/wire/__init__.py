"""The wire formats that agents and models speak over HTTP: OpenAI chat completions and responses, Anthropic messages.

One module of types for clients and servers alike: `*_types.py` hold them, `chat.py`, `anthropic.py` and `responses.py` turn them
into our messages and back, `*_stream.py` write and read the streamed forms, `sse.py` their frames. Pure: nothing here opens a
connection.
"""
