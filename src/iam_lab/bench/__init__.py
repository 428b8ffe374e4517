"""What a step costs on this machine: every objective beside the plain step and beside others' SAM."""
