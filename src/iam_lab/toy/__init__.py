"""The paper's toy: a small network on three Gaussians in the plane, small enough to know everything about."""
