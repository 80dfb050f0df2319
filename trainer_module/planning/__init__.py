"""The cost model and the planner, which choose where a model is cut; ``search/``."""
