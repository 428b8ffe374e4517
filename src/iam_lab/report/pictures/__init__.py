"""The paper's figures, one kind a file, each drawn from runs alone."""
