"""Reading: diagnostics take Datasets and a Problem, never an engine's insides."""
