"""The rl room's own code under fake engines, trainer, store and network in made-up time: what no laptop could hold, from a seed."""
