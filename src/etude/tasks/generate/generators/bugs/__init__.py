"""Bugs put into real projects: operators over concrete syntax trees, each a family a file, and the generator that proves them."""
