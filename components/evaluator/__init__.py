"""TFX's Evaluator, its metrics, and the results that it writes."""
