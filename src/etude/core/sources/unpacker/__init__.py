"""The program that unpacks one archive in a process of its own; started by `unpack.py`, never imported by the parent."""
