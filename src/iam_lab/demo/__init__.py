"""``iam demo``: handwritten digits from 100 labels, five ways, in a minute."""
