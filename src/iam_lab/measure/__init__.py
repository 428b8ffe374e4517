"""What is measured of a checkpoint, by ``iam measure``: the model, its images, the numbers and their errors."""
