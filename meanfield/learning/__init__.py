"""Learning: the simulator's particles as random features of a kernel."""
