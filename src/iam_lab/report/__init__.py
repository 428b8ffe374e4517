"""From run folders to one page: tables beside the paper's, figures, and what is missing."""
