"""Public bug reports about glue as small Relax graphs, sorted by what the graph is made of."""
