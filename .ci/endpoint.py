"""An OpenAI-compatible endpoint on loopback that greets: prints its address, then answers every chat request with the same words."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer

MESSAGE = {"role": "assistant", "content": "hello from the endpoint"}


class GreetingHandler(BaseHTTPRequestHandler):
    """Answers as JSON, or as server-sent events where the request asks for a stream."""

    def do_POST(self) -> None:
        """A chat completion of one message."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        streamed = bool(request.get("stream"))
        choice = {"index": 0, "finish_reason": "stop", ("delta" if streamed else "message"): MESSAGE}
        usage = {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}
        kind = "chat.completion.chunk" if streamed else "chat.completion"
        answer = json.dumps(
            {"id": "1", "object": kind, "created": 0, "model": "greeter", "choices": [choice], "usage": usage}
        )
        body = f"data: {answer}\n\ndata: [DONE]\n\n" if streamed else answer
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stdout holds the address alone."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), GreetingHandler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()
