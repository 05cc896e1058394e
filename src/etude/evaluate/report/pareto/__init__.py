"""The Pareto plot of a bench run: score against what it costs, with intervals both ways, as an SVG for a paper."""
