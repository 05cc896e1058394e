"""The coding agent: policies, chat formats, the harness, its workspace, the app, proxy and importers."""
