"""The `Policy` protocol and the policies that need no model of ours. Imports neither torch nor ray."""
