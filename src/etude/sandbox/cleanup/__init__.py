"""What exists on this machine because of us, written down before it is made, so that whatever dies leaves nothing behind for ever."""
