#!/usr/bin/env python3
"""A stand-in for the Python that has mini-swe-agent: the same protocol with the bench, the same kind of loop, in a few lines.

It is run as `bash_agent.py -I DRIVER [--describe]`, and asks the endpoint named in its environment with the standard library.
"""

import json
import os
import sys
import urllib.error
import urllib.request

BASH = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
}


def tell(row):
    print(json.dumps(row), flush=True)


def ask(messages):
    body = json.dumps({"model": "any", "messages": messages, "tools": [BASH]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def play(job):
    messages = [{"role": "user", "content": job["task"]}]
    for _ in range(job["turns"]):
        try:
            message = ask(messages)
        except urllib.error.HTTPError as error:
            return {"end": "HTTPError", "message": str(error)}
        messages.append(message)
        for call in message["tool_calls"]:
            tell({"command": json.loads(call["function"]["arguments"])["command"]})
            result = json.loads(sys.stdin.readline())
            if result["output"].startswith("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"):
                return {"end": "Submitted", "message": "submitted"}
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result["output"]})
    return {"end": "LimitsExceeded", "message": ""}


if "--describe" in sys.argv:
    tell({"version": "0.1", "config": "none"})
elif __file__.endswith("minisweagent-dies"):
    sys.exit("out of breath")
else:
    tell(play(json.loads(sys.stdin.readline())))
