"""Compiled loops: no checks, no allocation of results, they write to ``out``."""
