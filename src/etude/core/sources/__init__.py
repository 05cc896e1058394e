"""Where projects come from: folders, git, and the archives of package registries."""
