"""The policed door to the outside: a forward proxy with an allow-list, package indexes frozen at a date, every decision on record."""
