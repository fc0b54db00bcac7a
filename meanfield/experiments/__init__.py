"""What ``meanfield reproduce`` runs: one file for each chapter of the report."""
