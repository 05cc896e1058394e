"""Recipes, stages and runs."""
