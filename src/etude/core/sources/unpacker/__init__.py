"""The program that unpacks one archive in a process of its own; started by `unpack.py` as a folder, never imported by the parent."""
