"""Linear attention whose random features are the particles: layers, an encoder, its training, a classifier.

Use ``meanfield.KernelAttentionClassifier`` (``classifier.py``); the other files are its parts, plain
functions on arrays.
"""
