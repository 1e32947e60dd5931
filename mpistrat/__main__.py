"""Run the command ``mpistrat`` as ``python -m mpistrat``."""

from mpistrat.cli.main import main

if __name__ == "__main__":
    main()
