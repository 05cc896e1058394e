"""Refactoring: a public function or class is renamed in all modules, or moves to another one; libcst computes the reference."""
