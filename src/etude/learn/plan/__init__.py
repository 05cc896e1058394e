"""What training a model over many ranks would take, before there are any: memory, exchanges, time. Nothing here needs a GPU or a second process."""
