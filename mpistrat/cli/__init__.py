"""The command ``mpistrat``, and ``python -m mpistrat``: a subcommand for each tool."""
