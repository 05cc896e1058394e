"""The bodies of the stages: each hands a room its settings and folders, and holds no algorithm of its own."""
