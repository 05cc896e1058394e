"""From a released project to an environment that its tests run in."""
