"""The client's side of a live sandbox: frames over its control socket, calls, processes, archives."""
