"""A machine seen as a folder of text files: what tools and agents do with files and commands, in a person's folder and in a sandbox alike."""
