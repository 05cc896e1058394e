"""The fleet itself over fake hosts in made-up time: what no two cores could hold, from a seed."""
