"""What runs on the far side of the wall: zygote, launcher and PID-1 runner. Imports only the standard library and itself."""
