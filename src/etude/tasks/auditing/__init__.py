"""What an agent could find instead of working: the sandbox is searched as it would be born (promise 10)."""
