"""The commands of ``iam``: thin, each a module with ``main(arguments) -> int``."""
